"""Brings the tables of a ledger up to date, with a copy of the file as it was.

Processes of two versions must not write one file: the later one does not start while it can see the
earlier one, and a process whose file was brought up to date meanwhile sets its rows aside.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from proxy.ledger import call_counters
from proxy.ledger.schema import APPLICATION, MIGRATIONS, allowed_words, widened
from proxy.ledger.store import RowsRefused, Unusable

MODE = 0o640


def migrate(file: sqlite3.Connection, path: Path, folder: Path) -> None:
    """Bring the tables of a ledger, open as ``file``, up to date. Raise ``Unusable`` for any other
    file, and while another process writes it, whose counts are in ``folder``."""
    file.execute("BEGIN IMMEDIATE")
    version = known(file)
    if version is None:
        file.execute(f"PRAGMA application_id = {APPLICATION}")
        file.execute("CREATE TABLE migrations (version INTEGER PRIMARY KEY)")
    elif version < len(MIGRATIONS) or _is_narrow(file):
        _require_no_process(file, folder)
        _back_up(path, version)
    done = version or 0
    for number, statements in enumerate(MIGRATIONS[done:], done + 1):
        for statement in statements:
            file.execute(statement)
        file.execute("INSERT INTO migrations VALUES (?)", [number])
    if _is_narrow(file):
        _widen(file)
    file.execute("COMMIT")


def require_current(file: sqlite3.Connection) -> None:
    """Raise ``RowsRefused`` if a later version has brought the tables up to date: these rows are of
    other columns."""
    [version] = file.execute("SELECT MAX(version) FROM migrations").fetchone()
    if version != len(MIGRATIONS):
        raise RowsRefused("a later version of Headrace has changed the tables")


def _require_no_process(file: sqlite3.Connection, folder: Path) -> None:
    """Raise ``Unusable`` while another process is at work with the file."""
    query = "SELECT name, version FROM runs WHERE closed_ms IS NULL AND crashed_ms IS NULL"
    for name, version in file.execute(query).fetchall():
        left = call_counters.left_by(folder, name)
        if left is not None and left.alive:
            raise Unusable(f"a process of version {version} writes it; stop that process first")


def _back_up(path: Path, version: int) -> None:
    """Copy a ledger as it is, to a file that is named by the version of its tables."""
    copy = path.with_name(f"{path.name}.v{version}.backup")
    part = copy.with_name(f"{copy.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
    with (
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file,
        closing(sqlite3.connect(part)) as target,
    ):
        file.backup(target)
    part.replace(copy)


def _is_narrow(file: sqlite3.Connection) -> bool:
    """Return True if the attempts of a file cannot hold all words that this version knows."""
    made = _attempts_table(file)
    return allowed_words(made) != allowed_words(widened(made))


def _attempts_table(file: sqlite3.Connection) -> str:
    query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'attempts'"
    return str(file.execute(query).fetchone()[0])


def _widen(file: sqlite3.Connection) -> None:
    """Make the table of attempts anew so that it can hold all words, and copy every row."""
    made = _attempts_table(file)
    info = file.execute("PRAGMA table_info(attempts)").fetchall()  # leaves out what is computed
    columns = ", ".join(row[1] for row in info)
    file.execute("ALTER TABLE attempts RENAME TO attempts_before")
    file.execute(widened(made))
    file.execute(
        f"INSERT INTO attempts ({columns}) SELECT {columns} FROM attempts_before"  # noqa: S608  # our own names
    )
    file.execute("DROP TABLE attempts_before")


def known(file: sqlite3.Connection) -> int | None:
    """Return the version of a ledger's tables, None for a file without any. Raises ``Unusable``."""
    [application] = file.execute("PRAGMA application_id").fetchone()
    [tables] = file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if not tables:
        return None
    if application != APPLICATION:
        raise Unusable("the file is not a Headrace ledger")
    [version] = file.execute("SELECT COALESCE(MAX(version), 0) FROM migrations").fetchone()
    if version > len(MIGRATIONS):
        raise Unusable("a later version of Headrace has written the file")
    return int(version)
