"""The ledger's writing thread: bounds, retries, and rows set aside."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.app.telemetry import build_writer_error_callback
from proxy.ledger.audit import audit
from proxy.ledger.crashes import CallCounters
from proxy.ledger.jsonl import RefusedRows, get_refused_rows_path
from proxy.ledger.rows import Rows
from proxy.ledger.store import Counts, LedgerWriteFailed, RowsRefused
from proxy.ledger.writer import CALLS_PER_TRANSACTION, MAX_CALLS, MAX_WAITING_TO_PAUSE, Ledger
from proxy.telemetry.metrics import Metrics
from tests.cache.stores import until
from tests.doubles import ScriptedUpstream
from tests.ledger.records import (
    PRICED,
    FakeLog,
    book,
    call_entry,
    finished_record,
    ledger_at,
    proxy_with_ledger,
    stored_rows,
)
from tests.servers import eventually
from tests.test_pipeline import BEARER

NOWHERE = Path("/nonexistent")


class Memory:
    """A store that may be full or hang until it is released."""

    def __init__(self) -> None:
        self.seqs: list[Any] = []
        self.counts: Counts | None = None
        self.closed = False
        self.full = False
        self.go = threading.Event()
        self.go.set()

    def open(self) -> None:
        return None

    def write(self, batch: Sequence[Rows], counts: Counts) -> None:
        self.go.wait()
        if self.full:
            raise LedgerWriteFailed("ENOSPC")
        self.seqs += [rows.call["seq"] for rows in batch]
        self.counts = counts

    def prune(self) -> bool:
        return False

    def close(self, counts: Counts) -> None:
        self.counts, self.closed = counts, True


def writing(store: Any, fake_log: FakeLog, folder: Path = NOWHERE) -> tuple[Ledger, CallCounters]:
    tally = CallCounters(None, "")
    refused = RefusedRows(folder / "refused", "run")
    log = cast(Any, fake_log)
    return Ledger(store, refused, tally, fake_log.dropped, fake_log.failed, log), tally


def put(writer: Ledger, tally: CallCounters, count: int) -> None:
    for _ in range(count):
        tally.count_begin()
        tally.count_end()
        writer.enqueue(call_entry(tally.ended, finished_record()))


def test_close_writes_all_waiting_calls() -> None:
    store, fake_log = Memory(), FakeLog()
    writer, tally = writing(store, fake_log)
    put(writer, tally, 1000)
    writer.close(5)

    assert store.seqs == list(range(1, 1001))
    assert (store.counts, store.closed, fake_log.drops) == (Counts(1000, 1000, 0, 0), True, {})


async def test_failed_write_is_retried_and_reported_once() -> None:
    store, fake_log = Memory(), FakeLog()
    store.full = True
    writer, tally = writing(store, fake_log)
    put(writer, tally, 3)
    await eventually(lambda: bool(fake_log.entries))
    store.full = False
    await eventually(lambda: len(store.seqs) == 3)
    writer.close(5)

    assert [event for event, _ in fake_log.entries] == ["ledger.failing", "ledger.mended"]
    assert fake_log.drops == {}
    assert store.counts is not None
    assert store.counts.failures >= 1


def test_hanging_store_drops_beyond_the_queue_bound() -> None:
    store, fake_log = Memory(), FakeLog()
    store.go.clear()
    writer, tally = writing(store, fake_log)
    entry = call_entry(1, finished_record())
    for _ in range(MAX_CALLS * 2):
        tally.count_begin()
        tally.count_end()
        writer.enqueue(entry)
    writer.close(0.05)
    store.go.set()

    assert MAX_CALLS * 0.9 < fake_log.drops["queue_full"] <= MAX_CALLS
    assert sum(fake_log.drops.values()) == MAX_CALLS * 2


def test_unwritten_rows_are_counted_twice_by_design(tmp_path: Path) -> None:
    path, fake_log, log = tmp_path / "ledger", FakeLog(), FakeLog()
    keeping = ledger_at(path, fake_log)
    with closing(sqlite3.connect(path, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        for _ in range(4):
            record = finished_record(PRICED)
            book(keeping, record)
        keeping.close(0.1)
        keeping._spool._thread.join(5)  # it may still get the lock

    ledger_at(path, log).close()

    assert fake_log.drops == {"shutdown": 4}
    assert log.drops == {"crash": 4}
    assert log.entries == [("ledger.crashed", {"run": 1, "lost": 4, "running": 0, "exact": True})]
    missing = ("4 calls have no row",)
    assert (stored_rows(path), audit(path).violations) == ([], missing)


class Batches(Memory):
    """A store that records the size of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def write(self, batch: Sequence[Rows], counts: Counts) -> None:
        super().write(batch, counts)
        self.sizes.append(len(batch))


def test_batch_size_grows_with_the_queue() -> None:
    store, fake_log = Batches(), FakeLog()
    store.go.clear()
    writer, tally = writing(store, fake_log)
    put(writer, tally, 2 * MAX_WAITING_TO_PAUSE)
    store.go.set()
    writer.close(5)

    assert sum(store.sizes) == len(store.seqs) == 2 * MAX_WAITING_TO_PAUSE
    assert max(store.sizes) > CALLS_PER_TRANSACTION
    small = [size for size in store.sizes if size <= CALLS_PER_TRANSACTION]
    assert sum(small) >= MAX_WAITING_TO_PAUSE // 2
    assert fake_log.drops == {}


class Picky(Memory):
    """A store that refuses some calls, or raises for them."""

    def __init__(self, refuses: dict[int, Exception]) -> None:
        super().__init__()
        self.refuses = refuses
        self.writes = 0

    def write(self, batch: Sequence[Rows], counts: Counts) -> None:
        self.writes += 1
        for rows in batch:
            if (error := self.refuses.get(cast(int, rows.call["seq"]))) is not None:
                raise error
        super().write(batch, counts)


def test_refused_row_is_set_aside_and_others_are_written(tmp_path: Path) -> None:
    fake_log = FakeLog()
    store = Picky({7: RowsRefused("SQLITE_CONSTRAINT"), 200: OverflowError("too large")})
    writer, tally = writing(store, fake_log, tmp_path)
    put(writer, tally, 256)
    writer.close(10)

    assert sorted(store.seqs) == [n for n in range(1, 257) if n not in (7, 200)]
    lines = [json.loads(line) for line in (tmp_path / "refused").read_text().splitlines()]
    reasons = {line["call"]["seq"]: line["reason"] for line in lines}
    assert reasons == {7: "SQLITE_CONSTRAINT", 200: "OverflowError"}
    assert [attempt["cost_nano_usd"] for attempt in lines[0]["attempts"]] == [22_000]
    # 256, 128 ... 1; fewer if the writer started with a part
    assert store.counts in [Counts(256, 256, 2, failures) for failures in range(2, 10)]
    assert fake_log.drops == {"refused": 2}
    assert [type(error) for error in fake_log.failures] == [OverflowError]
    told_of = {"calls": 2, "reasons": ["OverflowError", "SQLITE_CONSTRAINT"]}
    fields = {**told_of, "file": str(tmp_path / "refused")}
    assert fake_log.entries == [("ledger.rows_refused", fields)]


def test_refusing_store_gets_two_writes_per_call(tmp_path: Path) -> None:
    store = Picky(dict.fromkeys(range(1, 257), RowsRefused("SQLITE_CONSTRAINT")))
    fake_log = FakeLog()
    writer, tally = writing(store, fake_log, tmp_path)
    put(writer, tally, 256)
    writer.close(10)

    assert (fake_log.drops, writer.pending_count) == ({"refused": 256}, 0)
    assert store.writes <= 2 * 256


def test_rows_are_written_when_setting_aside_fails() -> None:
    fake_log, store = FakeLog(), Picky({2: RowsRefused("SQLITE_CONSTRAINT")})
    writer, tally = writing(store, fake_log)
    put(writer, tally, 3)
    writer.close(10)

    assert store.seqs == [1, 3]
    assert fake_log.drops == {"refused": 1}
    assert "ledger.not_set_aside" in dict(fake_log.entries)


@pytest.mark.parametrize("fate", ["written", "refused", "invalid", "queue_full", "closed"])
def test_bills_are_reported_for_written_and_lost_rows(fate: str, tmp_path: Path) -> None:
    store, fake_log, names = Picky({}), FakeLog(), list[str]()
    writer, tally = writing(store, fake_log, tmp_path)
    writer.on_bills_settled = names.extend
    if fate == "queue_full":
        store.go.clear()
        put(writer, tally, MAX_CALLS)
    if fate == "closed":
        writer.close(5)
    if fate == "refused":
        store.refuses = {1: RowsRefused("SQLITE_CONSTRAINT")}
    record = finished_record()
    record.attempts[0].bill_name = "bill"
    entry = call_entry(1, record)
    if fate == "invalid":
        entry.summary.started_at = cast(Any, None)
    writer.enqueue(entry)
    store.go.set()
    writer.close(5)

    assert names == ["bill"]
    assert fake_log.drops == ({} if fate == "written" else {fate: 1})


class Pruning(Memory):
    """A store whose pruning raises an unexpected error."""

    def prune(self) -> bool:
        raise AttributeError


async def test_exception_in_thread_is_reported_and_thread_continues() -> None:
    fake_log, store = FakeLog(), Pruning()
    writer, tally = writing(store, fake_log)
    put(writer, tally, 1)
    await eventually(lambda: bool(fake_log.failures))
    put(writer, tally, 1)
    await eventually(lambda: len(store.seqs) == 2)
    writer.close(5)

    assert (store.closed, fake_log.drops) == (True, {})
    assert {type(error) for error in fake_log.failures} == {AttributeError}


def test_oversize_number_affects_no_other_call(tmp_path: Path) -> None:
    path, fake_log = tmp_path / "ledger", FakeLog()
    keeping = ledger_at(path, fake_log)
    for status in (200, 2**70, 200):
        record = finished_record(PRICED)
        record.status = status
        book(keeping, record)
    keeping.close()

    report = audit(path)
    assert [row["seq"] for row in stored_rows(path)] == [1, 3]
    assert json.loads(get_refused_rows_path(path).read_text())["call"]["status"] == 2**70
    assert report.violations == ("1 call has no row",)
    assert str(get_refused_rows_path(path)) in report.text()
    assert audit(path, known_missing=1).violations == ()


async def test_broken_ledger_is_set_aside(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxy_with_ledger(tmp_path, upstream) as (proxy, client, path):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("DROP TABLE attempts")
        body = {"model": "resilient", "prompt": "Hi"}
        async with client.post("/v1/completions", headers=BEARER, json=body) as response:
            assert response.status == 200
        await eventually(get_refused_rows_path(path).exists)
        await eventually(lambda: get_refused_rows_path(path).read_text().endswith("\n"))
        dropped = 'headrace_telemetry_dropped_total{reason="refused",signal="ledger"} 1.0'

        async def is_counted() -> bool:
            return dropped in await proxy.metrics()

        await until(is_counted)

    line = json.loads(get_refused_rows_path(path).read_text())
    assert (line["reason"], line["attempts"][0]["cost_nano_usd"]) == ("SQLITE_ERROR", 22_000)


def test_exceptions_are_counted_and_logged_at_a_limited_rate() -> None:
    metrics, fake_log = Metrics("1"), FakeLog()
    failed = build_writer_error_callback(metrics, cast(Any, fake_log))

    for _ in range(3):
        failed("ledger", OverflowError("the words of a client"))

    assert 'headrace_writer_failures_total{writer="ledger"} 3.0' in metrics.render()[0].decode()
    fields = {"writer": "ledger", "type": "OverflowError", "location": "?"}
    assert fake_log.entries == [("writer.failed", fields)]
