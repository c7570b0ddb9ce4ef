"""Runs that did not close, and ledgers that were replaced by older copies."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy.ledger.audit import audit
from proxy.ledger.crashes import Crash, get_position_path, read_position
from proxy.ledger.store import Counts
from tests.ledger.conftest import Stores
from tests.ledger.records import PRICED, FakeLog, book, finished_record, ledger_at, stored_rows
from tests.ledger.test_sqlite import batch, counted


def test_crash_is_reported_once(path: Path, store: Stores) -> None:
    dead, tally = store(path)
    for _ in range(5):
        tally.count_begin()
    for _ in range(4):
        tally.count_end()
    dead.write(batch(1, 2), Counts(3, 2, 0, 0))
    tally.close(settled=False)
    crashes: list[Crash] = []

    store(path, crashes)[0].open()
    store(path, crashes)[0].open()

    assert crashes == [Crash(1, unwritten_calls=2, running_calls=1, is_exact=True)]


def test_lost_counts_are_reported_as_a_minimum(path: Path, store: Stores) -> None:
    dead, tally = store(path)
    dead.write(batch(1, 2), Counts(6, 4, 0, 0))
    tally.close(settled=True)
    crashes: list[Crash] = []

    store(path, crashes)[0].open()

    assert crashes == [Crash(1, unwritten_calls=2, running_calls=2, is_exact=False)]
    report = audit(path, sleep=lambda seconds: None)
    assert "are not visible: at least 4 calls have no row (2 ended" in report.text()
    assert report.violations == ("4 calls have no row",)


def test_active_run_is_not_a_crash(path: Path, store: Stores) -> None:
    alive, tally = store(path)
    tally.count_begin()
    alive.write(batch(1), Counts(1, 1, 0, 0))
    crashes: list[Crash] = []

    other_store, _ = store(path, crashes)
    other_store.write(batch(1), counted(1))

    assert crashes == []
    assert len(stored_rows(path)) == 2


def copied(path: Path) -> Path:
    backup = path.with_name("backup")
    with closing(sqlite3.connect(path)) as file, closing(sqlite3.connect(backup)) as copy:
        file.backup(copy)
    return backup


def restore(backup: Path, path: Path) -> None:
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        name.unlink(missing_ok=True)
    shutil.move(backup, path)


def run_once(path: Path, calls: int) -> FakeLog:
    """Write ``calls`` calls in one process and return its log."""
    fake_log = FakeLog()
    keeping = ledger_at(path, fake_log)
    book(keeping, *[finished_record(PRICED) for _ in range(calls)])
    keeping.close()
    return fake_log


@pytest.mark.parametrize(("count_before", "count_after"), [(0, 1), (0, 3), (5, 2)])
def test_older_copy_is_reported(
    count_before: int, count_after: int, path: Path, store: Stores
) -> None:
    """The copy was made after ``before`` calls of the last process."""
    run_once(path, 4)
    last_store, counters = store(path)
    if count_before:
        last_store.write(batch(*range(1, count_before + 1)), counted(count_before))
    backup = copied(path)
    total = count_before + count_after
    last_store.write(batch(*range(count_before + 1, total + 1)), counted(total))
    counters.close(settled=False)
    restore(backup, path)
    unseen = audit(path, sleep=lambda seconds: None)

    fake_log = run_once(path, 1)

    report = audit(path, sleep=lambda seconds: None)
    assert unseen.missing == report.missing == count_after
    assert len(unseen.violations) == len(report.violations) == 1
    run = 2 if count_before else 3  # this process has the next number
    fields = {"run": run, "lost": count_after, "file": str(path)}
    assert fake_log.entries == [("ledger.older_copy", fields)]
    assert fake_log.drops == {"crash": count_after}
    assert run_once(path, 1).entries == []
    assert audit(path, count_after).violations == ()


def test_run_missing_from_a_copy_gets_a_row(path: Path) -> None:
    run_once(path, 1)
    backup = copied(path)
    run_once(path, 1)
    last_log = run_once(path, 2)
    restore(backup, path)

    run_once(path, 1)

    assert last_log.entries == []
    assert [(run["id"], run["ended"], run["written"]) for run in stored_rows(path, "runs")] == [
        (1, 1, 1),
        (2, 1, 1),
        (3, 2, 0),
    ]


def test_replaced_ledger_is_reported(path: Path) -> None:
    run_once(path, 3)
    path.unlink()
    empty = run_once(path, 1)

    assert [event for event, _ in empty.entries] == ["ledger.begun_anew"]
    assert (empty.replacements, empty.drops) == (1, {})
    assert audit(path).violations == ()


@pytest.mark.parametrize(
    "text", ["", "x", "0123456789abcdef 1", "0123456789abcdef -1\n", "\udcff", "é" * 9]
)
def test_invalid_position_file_is_ignored(text: str, path: Path) -> None:
    run_once(path, 1)
    get_position_path(path).write_bytes(text.encode(errors="surrogateescape"))

    assert read_position(path) is None
    assert audit(path).violations == ()
    assert run_once(path, 1).entries == []


def test_unwritable_position_affects_no_call(path: Path) -> None:
    get_position_path(path).mkdir()

    assert run_once(path, 1).failures == []
    assert len(stored_rows(path)) == 1
