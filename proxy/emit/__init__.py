"""What the world learns of a call: metrics, spans and one log line, all from the one Record.

Emitting never raises, never waits and happens once, whatever way the call ended, within
``EMIT_EVERY_S`` after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar, Protocol, runtime_checkable

from proxy.background import SideTasks
from proxy.emit.log_limits import Quota
from proxy.errors import ProxyError
from proxy.offload import LARGE_BYTES
from proxy.record import Record

EMIT_EVERY_S = 0.05
MAX_WAITING = 16  # calls: emitting them takes some three milliseconds, and blocks the loop


class Sink(Protocol):
    """One receiver of records. ``end`` is called once, with the record complete.

    ``name`` is what metrics and logs call it: one of ``SINKS`` in ``declared/axes.py``.
    """

    name: ClassVar[str]

    def end(self, record: Record) -> None: ...


@runtime_checkable
class BeginSink(Sink, Protocol):
    """A sink that knows of the calls under way as well: ``begin`` is called as each begins."""

    def begin(self, record: Record) -> None: ...


@runtime_checkable
class EndCounter(Sink, Protocol):
    """A sink whose count of ended calls survives a kill: ``count_end`` is called as each call ends,
    up to ``EMIT_EVERY_S`` before ``end``."""

    def count_end(self, record: Record) -> None: ...


Step = Callable[[], None]


@dataclass(slots=True)
class Emitters:
    """All sinks of the process. A sink that fails is reported and hurts nobody.

    Calls are told of together, sink by sink: what is still in the processor's cache serves the
    next record for less. ``soon`` runs a step in a moment, and ``MAX_WAITING`` calls or a large one
    do not wait for it. Nor does a call that leaves no other under way: ``next_turn`` runs a step as
    soon as that one is over, so that the next finds nothing to wait behind. Every call without a
    known key is counted, but ``unauthenticated`` bounds how many of them are told of beyond the
    metrics, as anybody can send them. ``side_tasks`` own what calls run beside themselves: a record
    with such work is emitted when that is done, and its connection is free before.
    """

    sinks: tuple[Sink, ...]
    failed: Callable[[Sink, BaseException], None]
    soon: Callable[[Step], object] = lambda step: step()
    next_turn: Callable[[Step], object] | None = None
    unauthenticated: Quota | None = None
    side_tasks: SideTasks | None = None
    _ended: list[Record] = field(default_factory=list)
    _under_way: int = 0
    _begin_sinks: list[BeginSink] = field(init=False)
    _end_counters: list[EndCounter] = field(init=False)

    def __post_init__(self) -> None:
        self._begin_sinks = [sink for sink in self.sinks if isinstance(sink, BeginSink)]
        self._end_counters = [sink for sink in self.sinks if isinstance(sink, EndCounter)]

    def observing(self, record: Record) -> Observation:
        return Observation(self, record)

    def begin(self, record: Record) -> None:
        self._under_way += 1
        record.side_tasks = self.side_tasks
        for sink in self._begin_sinks:
            try:
                sink.begin(record)
            except Exception as error:  # noqa: BLE001  # telemetry must not break a call
                self.failed(sink, error)

    def end(self, record: Record) -> None:
        record.side_tasks, record.pending = None, ()  # finished: a kept record must not hold them
        if self.unauthenticated is not None and record.key is None and not record.bug:
            missed = self.unauthenticated.take()
            record.reported, record.unreported = missed is not None, missed or 0
        for counter in self._end_counters:
            try:
                counter.count_end(record)
            except Exception as error:  # noqa: BLE001  # telemetry must not break a call
                self.failed(counter, error)
        self._under_way -= 1
        is_first = not self._ended
        self._ended += (record,)
        is_large = record.call is not None and record.call.size > LARGE_BYTES
        if is_large or len(self._ended) >= MAX_WAITING:
            self.tell()
        elif self.next_turn is not None and not self._under_way:
            self.next_turn(self.tell)
        elif is_first:
            self.soon(self.tell)

    def tell(self) -> None:
        """Pass all records that have ended to the sinks."""
        records, self._ended = self._ended, []
        for sink in self.sinks:
            for record in records:
                try:
                    sink.end(record)
                except Exception as error:  # noqa: BLE001  # telemetry must not break a call
                    self.failed(sink, error)


@dataclass(slots=True)
class Observation:
    """The time in which one call is observed."""

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
            record.bug = True
            record.status = 500
        record.ended = record.now()
        waiting = set(record.pending)
        if not waiting:
            self.emitters.end(record)

        def on_done(task: asyncio.Task[None]) -> None:
            waiting.remove(task)
            if not waiting:
                self.emitters.end(record)

        for task in record.pending:
            task.add_done_callback(on_done)
