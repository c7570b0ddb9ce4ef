"""Finished spans on their way to a collector: a bounded queue, small batches, every loss counted.

OpenTelemetry's batch processor does the queueing and the sending; what it would only log, a queue
that is full or a collector that does not answer, is counted here. A call's spans are taken all
together or not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

MOST_QUEUED = 2048
A_BATCH = 128  # encoding holds up the other threads: 128 spans for some 7 ms, in slices
WAITS_MS = 1000  # the longest that a batch which is not full waits to be sent
CLOSING_S = 3.0
UNDER_WAY_S = 2.0  # the longest that a batch under way then is waited for

Dropped = Callable[[str, int], None]


class _Sending(SpanExporter):
    """Sends batches until it is told to stop, and counts what has gone either way."""

    def __init__(
        self,
        exporter: SpanExporter,
        clock: Callable[[], float],
        lost: Dropped,
        failed: Callable[[Exception], None],
    ) -> None:
        self._exporter = exporter
        self._failed = failed
        self._clock = clock
        self._lost = lost
        self.until = float("inf")
        self.given_up = False
        self.handled = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        late = self._clock() > self.until
        result = SpanExportResult.FAILURE
        try:
            if not late:
                result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  # the library would only print it
            self._failed(error)
        finally:
            self.handled += len(spans)
            if result is not SpanExportResult.SUCCESS and not self.given_up:
                self._lost("shutdown" if late else "export_failed", len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class Outbox:
    """Takes spans from one thread and sends them from another; ``take`` never waits.

    ``lost`` is told of spans that do not arrive, and why: ``queue_full``, ``export_failed`` or
    ``shutdown``, from either thread; ``failed`` of an exception while they are sent.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        clock: Callable[[], float],
        lost: Dropped,
        failed: Callable[[Exception], None],
        most: int = MOST_QUEUED,
    ) -> None:
        self._clock = clock
        self._lost = lost
        self._most = most
        self._taken = 0
        self._sending = _Sending(exporter, clock, lost, failed)
        # Room for the batch under way as well: so it never throws out what was taken.
        self._processor = BatchSpanProcessor(
            self._sending,
            max_queue_size=most + A_BATCH,
            max_export_batch_size=A_BATCH,
            schedule_delay_millis=WAITS_MS,
        )

    @property
    def waiting(self) -> int:
        """How many spans were taken and have not gone either way."""
        return self._taken - self._sending.handled

    def take(self, spans: Sequence[ReadableSpan]) -> None:
        """Take all spans of a call, or drop all of them where there is no room."""
        if self.waiting + len(spans) > self._most:
            self._lost("queue_full", len(spans))
            return
        self._taken += len(spans)
        for span in spans:
            self._processor.on_end(span)

    def close(self, within_s: float = CLOSING_S) -> None:
        """Send what waits. Batches begun after ``within_s`` seconds are dropped. Blocks, but not
        for a collector that never comes to an end: what it has not taken then is lost."""
        self._sending.until = self._clock() + within_s
        ending = threading.Thread(target=self._processor.shutdown, name="outbox", daemon=True)
        ending.start()
        ending.join(within_s + UNDER_WAY_S)
        if ending.is_alive():
            self._sending.given_up = True
            self._lost("shutdown", self.waiting)
