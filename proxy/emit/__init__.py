"""What the world learns of a call: metrics, spans and one log line, all from the one Record.

Emitting never raises, never waits and happens once, whatever way the call ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from proxy.errors import ProxyError
from proxy.record import Record


class Sink(Protocol):
    """One receiver of records. ``end`` is called once, with the record complete."""

    def begin(self, record: Record) -> None: ...

    def end(self, record: Record) -> None: ...


@dataclass(frozen=True, slots=True)
class Emitters:
    """All sinks of the process. A sink that fails is reported and hurts nobody."""

    sinks: tuple[Sink, ...]
    failed: Callable[[Sink, BaseException], None]

    def observing(self, record: Record) -> Observation:
        return Observation(self, record)

    def tell(self, step: Callable[[Sink], None]) -> None:
        for sink in self.sinks:
            try:
                step(sink)
            except Exception as error:  # noqa: BLE001  # telemetry must not break a call
                self.failed(sink, error)


@dataclass(slots=True)
class Observation:
    """The time in which one call is observed."""

    emitters: Emitters
    record: Record

    async def __aenter__(self) -> None:
        self.emitters.tell(lambda sink: sink.begin(self.record))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, ProxyError):
            self.record.bug = True
            self.record.status = 500
        self.record.ended = self.record.now()
        self.emitters.tell(lambda sink: sink.end(self.record))
