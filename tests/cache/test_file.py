"""Opening the file of kept answers: what is ours, what is not, and what is put aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cache.file import ForeignFile, move_damaged, open_file
from proxy.runtime.spool import file_identity


def test_new_file_is_private_and_has_the_application_id(tmp_path: Path) -> None:
    file = tmp_path / "cache.db"

    open_file(file).close()
    open_file(file).close()

    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes()[68:72] == b"HdCa"


def test_file_without_application_id_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "cache.db"
    database = open_file(file)
    database.executescript("PRAGMA application_id = 0; PRAGMA user_version = 0;")
    database.execute("INSERT INTO answers VALUES (x'00', x'01', 9, 2e9, 0)")
    database.close()

    database = open_file(file)

    assert database.execute("SELECT entries, size FROM held").fetchone() == (1, 9)
    assert database.execute("PRAGMA application_id").fetchone() != (0,)
    database.close()


def test_other_file_is_foreign(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("not ours\n")

    with pytest.raises(ForeignFile, match="not a SQLite database"):
        open_file(notes)
    assert notes.read_text() == "not ours\n"


def test_damaged_file_is_renamed_with_its_log(tmp_path: Path) -> None:
    file = tmp_path / "cache.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").write_text(suffix)

    path = move_damaged(file)

    assert file_identity(file) is None
    assert file_identity(path) is not None
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "cache.db.damaged",
        "cache.db.damaged-wal",
    ]
