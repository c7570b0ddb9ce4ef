"""The writing thread: bounded, patient, and never in the way."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from proxy import ledger
from proxy.ledger.audit import audit
from proxy.ledger.rows import Row, noted
from proxy.ledger.store import Counts, Unwritten
from proxy.ledger.tally import Tally
from proxy.ledger.writer import MAX_CALLS, Writer
from proxy.settings import LedgerAt
from tests.ledger.kept import PRICED, Told, finished, kept, until


class Memory:
    """A store that may be full, and that may be stuck until it is let go."""

    def __init__(self) -> None:
        self.calls: list[Row] = []
        self.counts: Counts | None = None
        self.closed = False
        self.full = False
        self.go = threading.Event()
        self.go.set()

    def open(self) -> None:
        return None

    def write(self, calls: Sequence[Row], attempts: Sequence[Row], counts: Counts) -> None:
        self.go.wait()
        if self.full:
            raise Unwritten("ENOSPC")
        self.calls.extend(calls)
        self.counts = counts

    def prune(self) -> bool:
        return False

    def close(self, counts: Counts) -> None:
        self.counts, self.closed = counts, True


def writing(store: Any, told: Told) -> tuple[Writer, Tally]:
    tally = Tally(None, "")
    return Writer(store, tally, told.dropped, cast(Any, told)), tally


def put(writer: Writer, tally: Tally, count: int) -> None:
    for _ in range(count):
        tally.begin()
        writer.put(noted(tally.end(), finished()))


def test_a_stop_writes_all_that_waits() -> None:
    store, told = Memory(), Told()
    writer, tally = writing(store, told)
    put(writer, tally, 1000)
    writer.close(5)

    assert [row[0] for row in store.calls] == list(range(1, 1001))
    assert (store.counts, store.closed, told.drops) == (Counts(1000, 1000, 0, 0), True, {})


async def test_what_cannot_be_written_waits_and_is_told_of_once() -> None:
    store, told = Memory(), Told()
    store.full = True
    writer, tally = writing(store, told)
    put(writer, tally, 3)
    await until(lambda: bool(told.events))
    store.full = False
    await until(lambda: len(store.calls) == 3)
    writer.close(5)

    assert [event for event, _ in told.events] == ["ledger.failing", "ledger.mended"]
    assert told.drops == {}
    assert store.counts is not None
    assert store.counts.failures >= 1


def test_a_store_that_hangs_fills_a_bounded_queue_and_the_rest_is_counted() -> None:
    store, told = Memory(), Told()
    store.go.clear()
    writer, tally = writing(store, told)
    entry = noted(1, finished())
    for _ in range(MAX_CALLS * 2):
        tally.begin()
        tally.end()
        writer.put(entry)
    writer.close(0.05)
    store.go.set()

    assert MAX_CALLS * 0.9 < told.drops["queue_full"] <= MAX_CALLS
    assert sum(told.drops.values()) == MAX_CALLS * 2


def test_what_could_not_be_written_before_the_end_is_counted_and_again_at_the_next_start(
    tmp_path: Path,
) -> None:
    path, told, again = tmp_path / "ledger", Told(), Told()
    opened = ledger.opened(LedgerAt("sqlite", path), "1", told.dropped, cast(Any, told))
    with closing(sqlite3.connect(path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        for _ in range(4):
            record = finished(PRICED)
            opened.begin(record)
            opened.end(record)
        opened._writer.close(0.1)
        opened._writer._thread.join(5)  # it may still be waiting for the lock, and get it

    ledger.opened(LedgerAt("sqlite", path), "1", again.dropped, cast(Any, again)).close()

    assert told.drops == {"shutdown": 4}
    assert again.drops == {"crash": 4}
    assert again.events == [("ledger.crashed", {"run": 1, "lost": 4, "running": 0, "exact": True})]
    assert (kept(path), audit(path).violations) == ([], ())


def test_a_call_that_ends_after_the_end_is_counted() -> None:
    store, told = Memory(), Told()
    writer, tally = writing(store, told)
    writer.close(5)
    put(writer, tally, 2)

    assert (store.calls, told.drops) == ([], {"closed": 2})


def test_a_call_that_makes_no_row_is_counted_and_hurts_no_other() -> None:
    store, told = Memory(), Told()
    writer, tally = writing(store, told)
    tally.begin()
    writer.put(noted(tally.end(), finished())._replace(attempts=cast(Any, None)))
    put(writer, tally, 2)
    writer.close(5)

    assert ([row[0] for row in store.calls], told.drops) == ([2, 3], {"invalid": 1})
