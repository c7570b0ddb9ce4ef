"""The embedded ledger: whole batches, versions, runs that crashed, and files that are no ledger."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from proxy.call.attempts import AttemptReason, SpendUse
from proxy.ledger.audit import audit
from proxy.ledger.rows import Rows, joined, rows_of
from proxy.ledger.schema import APPLICATION
from proxy.ledger.store import Counts, Unusable, Unwritten
from proxy.money.usage import Source
from tests.ledger.conftest import Stores
from tests.ledger.kept import PRICED, call_entry, finished, kept


def batch(*seqs: int) -> Rows:
    return joined(rows_of(call_entry(seq, finished(PRICED, PRICED))) for seq in seqs)


def counted(ended: int, dropped: int = 0) -> Counts:
    return Counts(ended, ended, dropped, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_a_batch_and_its_count_are_kept_together(path: Path, store: Stores) -> None:
    kept_in, _ = store(path)
    kept_in.write(batch(1, 2, 3), counted(3))
    kept_in.close(counted(3))

    assert [row["seq"] for row in kept(path)] == [1, 2, 3]
    assert len(kept(path, "attempts")) == 6
    [run] = kept(path, "runs")
    assert (run["ended"], run["settled"], run["written"]) == (3, 3, 3)
    assert run["closed_ms"] == 1_700_000_000_000


def test_a_batch_of_any_size_is_kept(path: Path, store: Stores) -> None:
    kept_in, _ = store(path)
    kept_in.write(batch(*range(1, 3001)), counted(3000))

    assert len(kept(path)) == 3000
    assert len(kept(path, "attempts")) == 6000


def test_retried_batch_is_not_stored_twice(path: Path, store: Stores) -> None:
    kept_in, _ = store(path)
    rows = batch(1, 2)
    kept_in.write(rows, counted(2))
    reopened, _ = store(path)
    reopened._run = kept_in._run  # the same process, which did not learn that it had worked
    reopened.write(rows, counted(2))

    assert len(kept(path)) == 2
    [run] = kept(path, "runs")
    assert (run["settled"], run["written"]) == (2, 2)


def test_moved_file_is_replaced_with_its_log(path: Path, store: Stores) -> None:
    logs: list[Path | None] = []
    kept_in, _ = store(path, logs=logs)
    kept_in.write(batch(1, 2), counted(2))
    moved = path.rename(path.with_name("moved"))

    kept_in.write(batch(3), counted(3))
    kept_in.close(counted(3))

    assert [row["seq"] for row in kept(path)] == [3]
    [run] = kept(path, "runs")
    assert (run["settled"], run["written"]) == (3, 1)
    assert audit(path).violations == ()
    [log] = logs
    assert log is not None
    log.rename(f"{moved}-wal")
    assert [row["seq"] for row in kept(moved)] == [1, 2]


@pytest.mark.parametrize("notice", ["write", "prune", "close"])
def test_a_file_that_was_deleted_is_told_once(notice: str, path: Path, store: Stores) -> None:
    logs: list[Path | None] = []
    kept_in, _ = store(path, logs=logs)
    kept_in.write(batch(1), counted(1))
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()

    if notice == "prune":
        kept_in.prune()
    if notice == "write":
        kept_in.write(batch(2), counted(2))
    assert logs == ([] if notice == "close" else [None])
    kept_in.close(counted(2))

    assert logs == [None]
    assert len(kept(path, "runs")) == 1


def test_replaced_file_keeps_its_log(path: Path, store: Stores) -> None:
    logs: list[Path | None] = []
    kept_in, _ = store(path, logs=logs)
    kept_in.write(batch(1), counted(1))
    other_store, _ = store(path.with_name("other"))
    other_store.write(batch(7), counted(1))
    for suffix in ("-wal", "-shm", ""):
        Path(f"{path}{suffix}").unlink()
        Path(f"{path.with_name('other')}{suffix}").rename(f"{path}{suffix}")

    kept_in.write(batch(2), counted(2))

    assert [row["seq"] for row in kept(path)] == [7, 2]
    assert logs == [None]


def test_foreign_file_is_left_unchanged(tmp_path: Path, store: Stores) -> None:
    text, other_path, folder = tmp_path / "text", tmp_path / "other", tmp_path / "none" / "ledger"
    text.write_text("no database at all, but long enough to be told from an empty one" * 20)
    with closing(sqlite3.connect(other_path)) as file:
        file.execute("CREATE TABLE theirs (a)")

    for path, why in (
        (text, "not a SQLite"),
        (other_path, "not a Headrace ledger"),
        (folder, "No such file"),
    ):
        with pytest.raises(Unusable, match=why):
            store(path)[0].open()
    with closing(sqlite3.connect(other_path)) as file:
        assert file.execute("PRAGMA application_id").fetchone() != (APPLICATION,)
        assert file.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def test_waits_for_a_lock(path: Path, store: Stores) -> None:
    kept_in, _ = store(path)
    kept_in.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other_connection:
        other_connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unwritten, match="SQLITE_BUSY"):
            kept_in.write(batch(1), counted(1))
    kept_in.write(batch(1), counted(1))

    assert len(kept(path)) == 1


ATTEMPTS_MADE = "SELECT sql FROM sqlite_master WHERE name = 'attempts'"
OF_WHY = re.compile(r"CHECK \(why = .*?\)")
WORDS_OF_WHY = ", ".join(f"'{word}'" for word in get_args(AttemptReason))


def made_as(path: Path, check: str) -> tuple[str, str]:
    """Rebuild a column's words as an older version made them; return old and new statements."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        [(statement,)] = file.execute(ATTEMPTS_MADE).fetchall()
        file.execute("PRAGMA writable_schema = ON")
        old = OF_WHY.sub(check, statement)
        file.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'attempts'", [old])
    assert old != statement
    return statement, old


@pytest.mark.parametrize(
    "check", ["CHECK (why = 'first' OR why = 'retry')", "CHECK (why IN ('first', 'retry'))"]
)
def test_gains_missing_words_without_loss(check: str, path: Path, store: Stores) -> None:
    store_before, counters = store(path)
    store_before.write(batch(1, 2), counted(2))
    counters.close(settled=True)
    statement, _ = made_as(path, check)
    rows = kept(path, "attempts")

    record = finished(PRICED, PRICED)
    record.attempts[1].reason = "guard"
    entry = call_entry(1, record)
    store_after, _ = store(path)
    store_after.write(rows_of(entry), counted(1))

    assert kept(path, "attempts")[: len(rows)] == rows
    assert [row["why"] for row in kept(path, "attempts")[len(rows) :]] == ["first", "guard"]
    with closing(sqlite3.connect(path)) as file:
        assert file.execute(ATTEMPTS_MADE).fetchone()[0].split() == statement.split()


def test_same_words_in_old_form_need_no_rebuild(path: Path, store: Stores) -> None:
    store_before, _ = store(path)
    store_before.write(batch(1, 2), counted(2))
    _, old = made_as(path, f"CHECK (why IN ({WORDS_OF_WHY}))")

    store_after, _ = store(path)
    store_after.write(batch(3), counted(3))

    assert [row["seq"] for row in kept(path, "attempts")] == [1, 1, 2, 2, 3, 3]
    with closing(sqlite3.connect(path)) as file:
        assert file.execute(ATTEMPTS_MADE).fetchone() == (old,)


def test_schema_allows_every_word_of_a_record(path: Path, store: Stores) -> None:
    store(path)[0].open()
    with closing(sqlite3.connect(path)) as file:
        [statement] = file.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'attempts'"
        ).fetchone()

    for words in (AttemptReason, Source, SpendUse):
        for word in get_args(words):
            assert f"'{word}'" in statement


def test_unreachable_folder_stops_no_pruning(tmp_path: Path, store: Stores) -> None:
    folder = tmp_path / "ledger"
    folder.mkdir()
    kept_there, _ = store(folder / "ledger.db")
    kept_there.write(batch(1), counted(1))
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("a file in its place")

    assert not kept_there.prune()
    with pytest.raises(Unwritten):
        kept_there.write(batch(2), counted(2))
