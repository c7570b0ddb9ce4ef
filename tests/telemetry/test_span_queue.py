"""Sampling of spans and their queue to the exporter, which counts each loss."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

import pytest
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, TraceIdRatioBased
from opentelemetry.trace import SpanContext, TraceFlags

from proxy.runtime.otel_settings import BatchBounds
from proxy.telemetry.attributes import INPUT_MESSAGES, OUTCOME_ATTRIBUTE, OUTPUT_MESSAGES
from proxy.telemetry.span_queue import GRACE_S, MAX_TEXT_CHARS, SpanQueue
from proxy.telemetry.trace import RateLimitedSampler, load_sampler
from tests.for_each import for_each

CONTEXT = SpanContext(1, 1, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def spans_of_call(count: int = 3, **texts: str) -> list[ReadableSpan]:
    return [
        ReadableSpan("POST", CONTEXT, resource=Resource({}), attributes=texts, start_time=1)
        for _ in range(count)
    ]


class Gate(SpanExporter):
    """Exporter that blocks until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.is_called = threading.Event()
        self.exported = 0
        self.largest_batch = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_called.set()
        self.open.wait(10)
        self.exported += len(spans)
        self.largest_batch = max(self.largest_batch, len(spans))
        return SpanExportResult.SUCCESS


@pytest.fixture
def dropped() -> Counter[str]:
    return Counter()


def queue_to(exporter: SpanExporter, dropped: Counter[str], max_spans: int = 300) -> SpanQueue:
    def count(reason: str, spans: int) -> None:
        dropped.update({reason: spans})

    bounds = BatchBounds(max_spans, min(512, max_spans))
    return SpanQueue(exporter, count, lambda error: count(type(error).__name__, 1), bounds)


def test_spans_are_exported_in_small_batches(dropped: Counter[str]) -> None:
    gate = Gate()
    gate.open.set()
    queue = queue_to(gate, dropped, max_spans=2000)

    for _ in range(200):
        queue.enqueue(spans_of_call())
    queue.close()

    assert gate.exported == 600
    assert gate.largest_batch <= 512
    assert queue.pending_count == 0
    assert not dropped


def test_full_queue_drops_whole_calls(dropped: Counter[str]) -> None:
    gate = Gate()
    queue = queue_to(gate, dropped)

    for _ in range(1000):
        queue.enqueue(spans_of_call())
    gate.open.set()
    queue.close()

    assert gate.exported == 300
    assert dropped == {"queue_full": 2700}


@pytest.mark.parametrize("attribute", [INPUT_MESSAGES, OUTPUT_MESSAGES])
def test_captured_text_in_the_queue_is_bounded(attribute: str, dropped: Counter[str]) -> None:
    gate = Gate()
    gate.open.set()
    queue = queue_to(gate, dropped)

    queue.enqueue(spans_of_call(1, **{attribute: "x" * (MAX_TEXT_CHARS - 1)}))
    queue.enqueue(spans_of_call(1, **{attribute: "xx"}))
    queue.enqueue(spans_of_call(2))
    queue.close()

    assert gate.exported == 3
    assert dropped == {"queue_full": 1}


def test_exported_batch_frees_space(dropped: Counter[str]) -> None:
    gate = Gate()
    gate.open.set()
    queue = queue_to(gate, dropped, max_spans=150)

    deadline = time.monotonic() + 10
    accepted = 0
    while accepted < 450 and time.monotonic() < deadline:
        count_before = dropped["queue_full"]
        queue.enqueue(spans_of_call(1, **{INPUT_MESSAGES: "x" * (MAX_TEXT_CHARS // 150)}))
        accepted += dropped["queue_full"] == count_before
    queue.close()

    assert gate.exported == accepted == 450


def test_spans_after_the_end_are_counted(dropped: Counter[str]) -> None:
    queue = queue_to(Gate(), dropped)
    queue.close()

    queue.enqueue(spans_of_call())

    assert dropped == {"closed": 3}


class Broken(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise AttributeError


class Refusing(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.FAILURE


@pytest.mark.parametrize(("exporter", "errors"), [(Refusing, {}), (Broken, {"AttributeError": 1})])
def test_failed_export_is_counted(
    exporter: type[SpanExporter], errors: dict[str, int], dropped: Counter[str]
) -> None:
    queue = queue_to(exporter(), dropped)

    queue.enqueue(spans_of_call())
    queue.close()

    assert dropped == {"export_failed": 3, **errors}


class Dripping:
    """A collector that sends its response head byte by byte without end."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.is_called = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1/traces"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        context, _ = self._listener.accept()
        with context, suppress(OSError):
            context.recv(1000)
            self.is_called.set()
            context.sendall(b"HTTP/1.1 200 OK\r\nx-drip: ")
            while not self.over.wait(0.05):
                context.sendall(b".")

    def close(self) -> None:
        self.over.set()
        self._thread.join()
        self._listener.close()


def test_slow_collector_does_not_delay_exit(dropped: Counter[str]) -> None:
    with closing(Dripping()) as collector:
        queue = queue_to(OTLPSpanExporter(collector.url, timeout=0.2), dropped)
        queue.enqueue(spans_of_call())
        assert collector.is_called.wait(10)

        closer = threading.Thread(target=queue.close, args=(0.1,))
        closer.start()
        closer.join(GRACE_S + 8)

        assert not closer.is_alive()
        assert dropped == {"shutdown": 3}


def test_close_counts_spans_left_at_its_deadline(dropped: Counter[str]) -> None:
    gate = Gate()
    queue = queue_to(gate, dropped, max_spans=1000)
    for _ in range(300):
        queue.enqueue(spans_of_call())
    assert gate.is_called.wait(10)
    threading.Timer(0.2, gate.open.set).start()

    queue.close(within_s=0.1)

    assert gate.exported == 512  # the batch in transit
    assert dropped == {"shutdown": 900 - 512}


RATE = 10
# Trace ids: the first is in every sample, the last only in a sample of all.
LOWEST_ID, HIGHEST_ID = (0, 2**128 - 1)


@dataclass
class Sampled:
    """A sampler with its clock and decisions."""

    ratio: float = 1.0
    now: float = 0.0
    limited: int = 0
    sampler: RateLimitedSampler = field(init=False)

    def __post_init__(self) -> None:
        self.sampler = RateLimitedSampler(lambda: self.now, self.limit, self.ratio, RATE)

    def limit(self) -> None:
        self.limited += 1

    def count(self, calls: int, outcome: str = "success", trace_id: int = HIGHEST_ID) -> int:
        """Return how many of these calls are sampled."""
        decisions = [
            self.sampler.should_sample(
                Context(), trace_id, "POST /v1/completions", attributes={OUTCOME_ATTRIBUTE: outcome}
            ).decision
            for _ in range(calls)
        ]
        return decisions.count(Decision.RECORD_AND_SAMPLE)


def test_every_call_up_to_the_rate_is_sampled() -> None:
    sampled = Sampled()

    assert sampled.count(3 * RATE) == RATE
    assert sampled.limited == 2 * RATE


def test_quota_refills_with_time() -> None:
    sampled = Sampled()
    sampled.count(RATE)

    sampled.now = 0.5
    assert sampled.count(3 * RATE) == RATE / 2
    sampled.now = 100
    assert sampled.count(3 * RATE) == RATE


@for_each("outcome", ["blocked", "limited", "client_error", "upstream_error", "timeout"])
def test_failed_and_refused_calls_have_a_second_quota(outcome: str) -> None:
    sampled = Sampled()
    sampled.count(RATE)

    assert sampled.count(3 * RATE, outcome) == RATE
    assert sampled.count(1) == 0


def test_calls_beyond_the_rate_are_sampled_by_trace_id() -> None:
    sampled = Sampled()
    sampled.count(2 * RATE, "timeout")
    limit = sampled.limited

    assert sampled.count(5, trace_id=LOWEST_ID) == 5
    assert sampled.count(5, "timeout", LOWEST_ID) == 5
    assert sampled.limited == limit


def test_ratio_applies_to_successes_before_the_rate() -> None:
    sampled = Sampled(ratio=0.5)

    assert sampled.count(5) == 0
    assert sampled.count(5, trace_id=LOWEST_ID) == 5
    assert sampled.count(5, "timeout") == 5
    assert sampled.limited == 0


def test_unknown_outcome_is_no_success() -> None:
    sampler = Sampled(ratio=0.0).sampler

    assert sampler.should_sample(None, HIGHEST_ID, "").decision is Decision.RECORD_AND_SAMPLE
    assert sampler.get_description() == "RateLimitedSampler"


@pytest.mark.parametrize(("argument", "rate"), [("0.25", 0.25), (None, 1.0)])
def test_sdk_sampler_is_loaded_by_name(argument: str | None, rate: float) -> None:
    sampler = load_sampler("TraceIdRatio", argument)

    assert isinstance(sampler, TraceIdRatioBased)
    assert sampler.rate == rate


def test_sampler_without_ratio_accepts_any_argument() -> None:
    sampler = load_sampler("always_off", "x")

    assert sampler is not None
    assert sampler.get_description() == ALWAYS_OFF.get_description()


def test_unknown_sampler_is_none() -> None:
    assert load_sampler("jaeger_remote", "endpoint=http://jaeger") is None
