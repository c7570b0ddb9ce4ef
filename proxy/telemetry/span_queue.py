"""Passes finished spans to an exporter through the SDK's batch processor, and counts every loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from proxy.runtime.otel_settings import BatchBounds
from proxy.telemetry.attributes import INPUT_MESSAGES, OUTPUT_MESSAGES

MAX_TEXT_CHARS = 32 * 1024 * 1024  # of captured text in all waiting spans
CLOSE_TIMEOUT_S = 3.0
GRACE_S = 2.0


class SpanQueue:
    """Queue of finished spans and the thread that exports them, in batches.

    It holds at most ``bounds.max_spans`` spans, including the batch in transit, so the batch
    processor never evicts one. ``on_drop`` gets the number of lost spans and the reason:
    ``queue_full``, ``export_failed``, ``shutdown`` or ``closed``. ``on_error`` gets exceptions of
    the exporter. Both may be called in either thread.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        on_drop: Callable[[str, int], None],
        on_error: Callable[[Exception], None],
        bounds: BatchBounds,
    ) -> None:
        self._max_spans = bounds.max_spans
        self._on_drop = on_drop
        self._spans = self._chars = 0
        self._exporter = _CountingExporter(exporter, on_drop, on_error)
        self._processor = BatchSpanProcessor(
            self._exporter, bounds.max_spans, bounds.delay_ms, bounds.max_batch
        )

    @property
    def pending_count(self) -> int:
        """Spans that are neither exported nor dropped."""
        return self._spans - self._exporter.spans

    def enqueue(self, spans: Sequence[ReadableSpan]) -> None:
        """Take all spans of a call, or drop all of them. Never waits."""
        chars = sum(map(_count_captured_chars, spans))
        is_full = (
            self.pending_count + len(spans) > self._max_spans
            or self._chars + chars - self._exporter.chars > MAX_TEXT_CHARS
        )
        if is_full or self._exporter.is_closed:
            self._on_drop("queue_full" if is_full else "closed", len(spans))
            return
        self._spans += len(spans)
        self._chars += chars
        for span in spans:
            self._processor.on_end(span)

    def close(self, within_s: float = CLOSE_TIMEOUT_S, grace_s: float = GRACE_S) -> None:
        """Export the waiting spans. Blocks.

        After ``within_s`` seconds no further batch starts, and the batch in transit has ``grace_s``
        seconds to end. Spans that are not exported then are counted as dropped.
        """
        closing = threading.Thread(target=self._processor.shutdown, name="span-queue", daemon=True)
        closing.start()
        closing.join(within_s)
        if closing.is_alive():
            self._exporter.shutdown()
            closing.join(grace_s)
        self._exporter.is_settled = True
        if self.pending_count:
            self._on_drop("shutdown", self.pending_count)


class _CountingExporter(SpanExporter):
    """Exports spans in the processor's thread. Counts handled ``spans`` and ``chars`` of text."""

    def __init__(
        self,
        exporter: SpanExporter,
        on_drop: Callable[[str, int], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._exporter = exporter
        self._on_drop = on_drop
        self._on_error = on_error
        self.spans = self.chars = 0
        self.is_closed = False  # True: no further batch starts
        self.is_settled = False  # True if the batch in transit has been counted

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch without retries: a collector that failed may have stored a part of it."""
        if self.is_closed:
            return SpanExportResult.FAILURE
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  # exporters are third-party code
            self._on_error(error)
        if not self.is_settled:
            if result is not SpanExportResult.SUCCESS:
                self._on_drop("export_failed", len(spans))
            self.spans += len(spans)
            self.chars += sum(map(_count_captured_chars, spans))
        return result

    def shutdown(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._exporter.shutdown()


def _count_captured_chars(span: ReadableSpan) -> int:
    attributes = span.attributes or {}
    texts = (attributes.get(INPUT_MESSAGES), attributes.get(OUTPUT_MESSAGES))
    return sum(len(text) for text in texts if isinstance(text, str))
