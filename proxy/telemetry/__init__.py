"""Emits metrics, spans and one log line per call from its record, once, however the call ended.

Emitting never raises and never waits, and happens within ``EMIT_INTERVAL_S`` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar, Protocol, runtime_checkable

from proxy.call.record import Record
from proxy.errors import ProxyError
from proxy.runtime.background import SideTasks
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.telemetry.log import Quota

EMIT_INTERVAL_S = 0.05
MAX_WAITING_RECORDS = 16  # calls; emitting this many blocks the event loop for about 3 ms


class RecordSink(Protocol):
    """Receiver of records. ``emit`` is called once per call, with a complete record.

    ``name`` is the sink's label in metrics: one of ``SINKS`` in ``catalog/labels.py``.
    """

    name: ClassVar[str]

    def emit(self, record: Record) -> None: ...


@runtime_checkable
class CallCounter(RecordSink, Protocol):
    """Sink whose counts of begun and ended calls survive a kill.

    ``count_end`` is called when a call ends, up to ``EMIT_INTERVAL_S`` seconds before ``emit``.
    """

    def count_begin(self, record: Record) -> None: ...

    def count_end(self, record: Record) -> None: ...


Step = Callable[[], None]


@dataclass(slots=True)
class Emitters:
    """Passes the records of finished calls to all sinks.

    Records wait and are emitted in batches, sink by sink, which uses the processor's cache better.
    A large record is emitted at once, and so is a batch of ``MAX_WAITING_RECORDS``.

    Attributes:
        on_error: Called with each error of a sink. The other sinks continue.
        schedule_batch: Schedules the next batch.
        schedule_next_iteration: Schedules a batch in the next iteration of the event loop, if no
            other call is active.
        unauthenticated_quota: Bounds the log lines, spans and rows of calls without a known key,
            which anybody can send. Metrics count all of these calls.
        side_tasks: Runs background work of calls. A call ends when its work is done.
        active: Number of calls that have not ended.
    """

    sinks: tuple[RecordSink, ...]
    on_error: Callable[[RecordSink, BaseException], None]
    schedule_batch: Callable[[Step], object] = lambda step: step()
    schedule_next_iteration: Callable[[Step], object] | None = None
    unauthenticated_quota: Quota | None = None
    side_tasks: SideTasks | None = None
    _ended: list[Record] = field(default_factory=list)
    active: int = 0
    _counters: list[CallCounter] = field(init=False)

    def __post_init__(self) -> None:
        self._counters = [sink for sink in self.sinks if isinstance(sink, CallCounter)]

    def emit_on_exit(self, record: Record) -> Observation:
        return Observation(self, record)

    def begin(self, record: Record) -> None:
        self.active += 1
        record.side_tasks = self.side_tasks
        for counter in self._counters:
            self._run_step(counter, counter.count_begin, record)

    def end(self, record: Record) -> None:
        record.side_tasks, record.pending = None, ()  # a stored record must not keep them alive
        if (
            self.unauthenticated_quota is not None
            and record.key is None
            and not record.is_internal_error
        ):
            missed = self.unauthenticated_quota.take_token()
            record.is_reported, record.unreported_count = missed is not None, missed or 0
        for counter in self._counters:
            self._run_step(counter, counter.count_end, record)
        self.active -= 1
        is_first = not self._ended
        self._ended += (record,)
        is_large = record.call is not None and record.call.size > LARGE_BYTES
        if is_large or len(self._ended) >= MAX_WAITING_RECORDS:
            self.emit_pending()
        elif self.schedule_next_iteration is not None and not self.active:
            self.schedule_next_iteration(self.emit_pending)
        elif is_first:
            self.schedule_batch(self.emit_pending)

    def emit_pending(self) -> None:
        """Pass the records of all ended calls to the sinks."""
        records, self._ended = self._ended, []
        for sink in self.sinks:
            for record in records:
                try:
                    sink.emit(record)
                except Exception as error:  # noqa: BLE001  # telemetry must not break a call
                    self.on_error(sink, error)

    def _run_step(self, sink: RecordSink, step: Callable[[Record], None], record: Record) -> None:
        try:
            step(record)
        except Exception as error:  # noqa: BLE001  # telemetry must not break a call
            self.on_error(sink, error)


@dataclass(slots=True)
class Observation:
    """Context manager around one call. Its record is emitted when the call has ended."""

    emitters: Emitters
    record: Record

    def __enter__(self) -> None:
        self.emitters.begin(self.record)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        record = self.record
        if error is not None and isinstance(error, Exception) and not isinstance(error, ProxyError):
            record.is_internal_error = True
            record.status = 500
        record.ended = record.now()
        if not record.pending:
            self.emitters.end(record)
            return
        waiting = set(record.pending)

        def on_done(task: asyncio.Task[None]) -> None:
            waiting.remove(task)
            if not waiting:
                self.emitters.end(record)

        for task in record.pending:
            task.add_done_callback(on_done)
