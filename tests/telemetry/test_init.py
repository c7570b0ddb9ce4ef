"""Each record is emitted once, and failing sinks affect no call."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from proxy.call.record import Record, new_record
from proxy.errors import BadRequest
from proxy.ledger.writer import Ledger
from proxy.policy.review.call_history import CallHistory
from proxy.policy.review.compare import CandidateSink
from proxy.runtime.background import SideTasks
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.telemetry import MAX_WAITING_RECORDS, Emitters
from proxy.telemetry.catalog.labels import SINKS
from proxy.telemetry.decisions import DecisionLog
from proxy.telemetry.genai_metrics import GenAiMetrics
from proxy.telemetry.log import CallLog
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.trace import TraceSink
from proxy.types import Call
from tests.call.test_record import HEAD
from tests.for_each import for_each


class Sink:
    name: ClassVar[str] = "ledger"

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.seen: list[str] = []

    def count_begin(self, record: Record) -> None:
        self._see("begin")

    def count_end(self, record: Record) -> None:
        self._see("count_end")

    def emit(self, record: Record) -> None:
        self._see("end")

    def _see(self, step: str) -> None:
        self.seen.append(step)
        if self.broken:
            raise RuntimeError("broken")


ONE_CALL = ["begin", "count_end", "end"]


@for_each("error", [None, BadRequest("x"), KeyError("x"), asyncio.CancelledError()])
async def test_record_is_emitted_once_however_a_call_ends(error: Any) -> None:
    sink, record = Sink(), new_record()
    emitters = Emitters((sink,), lambda sink, error: None)

    try:
        with emitters.emit_on_exit(record):
            if error is not None:
                raise error
    except type(error):
        pass

    assert sink.seen == ONE_CALL
    assert record.ended is not None
    assert record.is_internal_error == isinstance(error, KeyError)


async def test_failing_sink_is_reported_and_others_get_all_records() -> None:
    broken, good = Sink(broken=True), Sink()
    failures: list[object] = []
    emitters = Emitters((broken, good), lambda sink, error: failures.append(sink))

    with emitters.emit_on_exit(new_record()):
        pass

    assert good.seen == ONE_CALL
    assert failures == [broken] * 3


async def test_records_are_emitted_in_batches_and_once() -> None:
    first_sink, second = Sink(), Sink(broken=True)
    steps: list[Any] = []
    emitters = Emitters((first_sink, second), lambda sink, error: None, steps.append)

    for _ in range(3):
        with emitters.emit_on_exit(new_record()):
            pass
    assert (len(steps), "end" in first_sink.seen) == (1, False)
    steps.pop()()
    emitters.emit_pending()

    assert first_sink.seen == second.seen == ONE_CALL[:2] * 3 + ["end"] * 3
    with emitters.emit_on_exit(new_record()):
        pass
    assert len(steps) == 1


async def test_waiting_records_are_bounded_and_large_ones_emitted() -> None:
    sink, steps = Sink(), list[Any]()
    emitters = Emitters((sink,), lambda sink, error: None, steps.append)

    for number in range(1, 2 * MAX_WAITING_RECORDS):
        emitters.end(new_record())
        assert sink.seen.count("end") == (
            MAX_WAITING_RECORDS if number >= MAX_WAITING_RECORDS else 0
        )
    large = new_record()
    large.call = Call(HEAD, {}, size=LARGE_BYTES + 1)
    emitters.end(large)

    assert sink.seen.count("end") == 2 * MAX_WAITING_RECORDS
    emitters.end(new_record())
    large.call = Call(HEAD, {}, size=LARGE_BYTES)
    emitters.end(large)
    assert sink.seen.count("end") == 2 * MAX_WAITING_RECORDS
    emitters.end(new_record())
    emitters.end(new_record())
    steps[-1]()

    assert sink.seen.count("end") == 2 * MAX_WAITING_RECORDS + 4


async def test_last_active_call_is_emitted_in_the_next_iteration() -> None:
    sink, later, turns = Sink(), list[Any](), list[Any]()
    emitters = Emitters((sink,), lambda sink, error: None, later.append, turns.append)
    with emitters.emit_on_exit(new_record()):
        with emitters.emit_on_exit(new_record()):
            pass
        assert (len(later), len(turns)) == (1, 0)
    assert "end" not in sink.seen

    turns.pop()()
    later.pop()()

    assert sink.seen == ["begin"] * 2 + ["count_end"] * 2 + ["end"] * 2
    assert (later, turns) == ([], [])


def test_sink_has_its_name_in_metrics() -> None:
    sinks = (
        Metrics,
        CallLog,
        TraceSink,
        GenAiMetrics,
        Ledger,
        CallHistory,
        CandidateSink,
        DecisionLog,
    )

    assert tuple(sink.name for sink in sinks) == SINKS


async def test_ended_calls_occupy_no_background_task() -> None:
    sink, outcomes = Sink(), list[str]()
    async with SideTasks(max_tasks=2) as side_tasks:
        emitters = Emitters((sink,), lambda sink, error: None, side_tasks=side_tasks)
        finish = asyncio.Event()
        for _ in range(3):
            record = new_record()
            with emitters.emit_on_exit(record):
                await record.run_in_background(finish.wait, outcomes.append)
        assert (outcomes, sink.seen.count("end")) == (["busy"], 1)
        finish.set()

    assert sink.seen.count("end") == 3


async def test_calls_with_pending_results_are_emitted_on_exit() -> None:
    sink = Sink()
    async with SideTasks() as side_tasks:
        emitters = Emitters((sink,), lambda sink, error: None, side_tasks=side_tasks)
        record = new_record()
        with emitters.emit_on_exit(record):
            for _ in range(2):
                await record.run_in_background(asyncio.Event().wait, lambda error: None)
        assert "end" not in sink.seen

    assert sink.seen.count("end") == 1
