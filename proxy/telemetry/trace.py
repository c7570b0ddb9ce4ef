"""Sink that exports the spans of sampled calls: the client's call, its model call, its attempts.

No span exists while a call runs. Its ids are drawn when the call arrives, and its spans are built
from the record when the call has ended. So the sampler knows the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.sampling import (
    Decision,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.util._importlib_metadata import entry_points

from proxy.call.facts import UNKNOWN, CallSummary
from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.runtime.otel_settings import RATIO_SAMPLERS
from proxy.telemetry.attributes import (
    OUTCOME_ATTRIBUTE,
    Attributes,
    Profile,
    SpanLevel,
    get_attempt_attributes,
    get_captured_texts,
    get_model_call_attributes,
    get_server_span_attributes,
    list_call_events,
)
from proxy.telemetry.lines import redact_text
from proxy.telemetry.log import Quota

FAILED_OUTCOMES = frozenset({"proxy_error", "timeout", "upstream_error"})
SAMPLED_FLAGS, UNSAMPLED_FLAGS = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
NO_PARENT = Context()
STATUS_OK, STATUS_ERROR = Status(), Status(StatusCode.ERROR)
SPAN_NAME_ATTRIBUTES: Mapping[SpanLevel, Sequence[str]] = {
    "server": ("http.request.method", "http.route"),
    "model": ("gen_ai.operation.name", "gen_ai.request.model"),
    "attempt": ("http.request.method",),
}
"""Attributes whose values form the name of a span, by kind of span."""
INSTRUMENTATION_SCOPE = InstrumentationScope("headrace")


class SpanReceiver(Protocol):
    """Receives the spans of a call."""

    def enqueue(self, spans: Sequence[ReadableSpan]) -> None:
        """Take all of the spans or drop all of them. Never waits."""


class TraceSink:
    """Exports the spans of the calls that ``sampler`` samples.

    The sampler gets the outcome of a call among its attributes. It sees the client's trace id and
    sampling flag only if the key may decide about sampling. With them, a client could have all its
    calls traced, or none. ``on_sample`` is called for each sampled call.
    """

    name: ClassVar[str] = "traces"

    def __init__(
        self,
        receivers: Sequence[SpanReceiver],
        sampler: Sampler,
        resource: Resource,
        profiles: Sequence[Profile] = (),
        on_sample: Callable[[], None] = lambda: None,
    ) -> None:
        self._receivers = receivers
        self._sampler = sampler
        self._resource = resource
        self._profiles = profiles
        self._on_sample = on_sample

    def emit(self, record: Record) -> None:
        """Export the spans of a call. An error of the captured texts is raised afterwards."""
        if not record.is_reported:
            return
        summary = summarize(record)
        if not self._is_sampled(record, summary):
            return
        self._on_sample()
        texts: Attributes = {}
        error = None
        try:
            texts = get_captured_texts(record) if record.attempts else {}
        except Exception as problem:  # noqa: BLE001  # raised once the spans are exported
            error = problem
        spans = self._make_spans(record, summary, texts)
        for receiver in self._receivers:
            receiver.enqueue(spans)
        if error is not None:
            raise error

    def _is_sampled(self, record: Record, summary: CallSummary) -> bool:
        """Ask the sampler. It gets the client's decision only if the key of a call allows that."""
        context, parent = NO_PARENT, record.head.parent if record.head is not None else None
        if parent is not None and record.parent_sampled is not None:
            flags = SAMPLED_FLAGS if record.parent_sampled else UNSAMPLED_FLAGS
            ids = int(parent.trace_id, 16), int(parent.span_id, 16)
            span = NonRecordingSpan(SpanContext(*ids, is_remote=True, trace_flags=flags))
            context = set_span_in_context(span, NO_PARENT)
        route = summary.route or UNKNOWN
        result = self._sampler.should_sample(
            context,
            int(record.sample_id, 16),
            f"{summary.method} {route}",
            SpanKind.SERVER,
            {
                "http.request.method": summary.method,
                "http.route": route,
                OUTCOME_ATTRIBUTE: summary.outcome,
            },
        )
        return result.decision is Decision.RECORD_AND_SAMPLE

    def _make_spans(
        self, record: Record, summary: CallSummary, texts: Attributes
    ) -> list[ReadableSpan]:
        """Return the spans of a call: the attempts, the model call around them, and the call."""
        server_id, model_id = summary.server_span, record.ids.model_span
        spans = [
            self._make_span(
                record,
                "attempt",
                (attempt.span_id, model_id),
                (attempt.started, attempt.ended or record.ended or attempt.started),
                get_attempt_attributes(attempt, summary.method),
            )
            for attempt in record.attempts
        ]
        if record.attempts:
            first, last = record.attempts[0], record.attempts[-1]
            attributes = {**get_model_call_attributes(record, summary), **texts}
            times = first.started, last.ended or record.ended or last.started
            spans.append(self._make_span(record, "model", (model_id, server_id), times, attributes))
        parent = record.head.parent if record.head is not None else None
        server = self._make_span(
            record,
            "server",
            (server_id, parent.span_id if parent is not None else None),
            (record.started, record.ended or record.started),
            get_server_span_attributes(summary),
            list_call_events(summary),
        )
        return [*spans, server]

    def _make_span(
        self,
        record: Record,
        span_level: SpanLevel,
        ids: tuple[str, str | None],
        times: tuple[float, float],
        attributes: Attributes,
        events: Sequence[tuple[str, Attributes]] = (),
    ) -> ReadableSpan:
        """Return a span.

        ``ids`` are the ids of the span and its parent, ``times`` its start and end on the record's
        clock. Events get the end time.
        """
        is_server, trace_id = span_level == "server", int(record.ids.trace_id, 16)
        # Nanoseconds since the epoch when the record's monotonic clock was 0.
        epoch_us = round(record.started_at.timestamp() * 1e6)
        epoch_ns = epoch_us * 1000 - int(record.started * 1e9)
        ended_ns = epoch_ns + int(times[1] * 1e9)
        added: dict[str, Any] = {}
        for profile in self._profiles:
            added |= profile(span_level, record, attributes)
        all_attributes = [{**attributes, **added}, *(values for _, values in events)]
        span_attributes, *of_events = drop_none_and_redact(all_attributes)
        own_id, parent_id = ids
        parent = None
        if parent_id is not None:
            parent = SpanContext(trace_id, int(parent_id, 16), is_server, SAMPLED_FLAGS)
        return ReadableSpan(
            redact_text(
                " ".join([f"{attributes[key]}" for key in SPAN_NAME_ATTRIBUTES[span_level]])
            ),
            context=SpanContext(trace_id, int(own_id, 16), False, SAMPLED_FLAGS),
            parent=parent,
            resource=self._resource,
            attributes=span_attributes,
            events=[
                Event(event, values, ended_ns)
                for (event, _), values in zip(events, of_events, strict=True)
            ],
            kind=SpanKind.SERVER if is_server else SpanKind.CLIENT,
            status=STATUS_ERROR if _is_proxy_or_upstream_failure(attributes) else STATUS_OK,
            start_time=epoch_ns + int(times[0] * 1e9),
            end_time=ended_ns,
            instrumentation_scope=INSTRUMENTATION_SCOPE,
        )


def _is_proxy_or_upstream_failure(attributes: Attributes) -> bool:
    """Return True if the proxy or an upstream failed, even after the response head was sent."""
    if OUTCOME_ATTRIBUTE not in attributes:
        return attributes["error.type"] is not None
    status: Any = attributes["http.response.status_code"] or 500
    return attributes[OUTCOME_ATTRIBUTE] in FAILED_OUTCOMES and not 400 <= status < 500


def drop_none_and_redact(attributes: Sequence[Attributes]) -> list[dict[str, Any]]:
    """Return the attributes that are not None, with credentials and lone surrogates replaced."""
    known = [{k: value for k, value in part.items() if value is not None} for part in attributes]
    text = repr(known)  # one search for all values, because matches are rare
    if "\\ud" not in text and redact_text(text) == text:
        return known
    return [{name: _redact_value(value) for name, value in values.items()} for values in known]


def _redact_value(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    return [redact_text(text) for text in value] if isinstance(value, (list, tuple)) else value


CALLS_PER_S = 50  # a traced call takes 0.7 ms of processor time
MIN_SHARE = 0.01
NORMAL_OUTCOMES = frozenset({"success", "client_abort"})
RECORD_AND_SAMPLE, DROP_SPAN = (
    SamplingResult(Decision.RECORD_AND_SAMPLE),
    SamplingResult(Decision.DROP),
)


class RateLimitedSampler(Sampler):
    """Samples calls up to a rate, and further failed or refused calls up to a second rate.

    Above these rates it samples the share ``MIN_SHARE``. ``ratio`` is the share of successful calls
    that is considered at all. ``on_limit`` is called for a call that is dropped because of the
    rate. ``now`` returns monotonic seconds.
    """

    def __init__(
        self,
        now: Callable[[], float],
        on_limit: Callable[[], None],
        ratio: float = 1.0,
        calls_per_s: float = CALLS_PER_S,
    ) -> None:
        self._on_limit = on_limit
        self._ratio = TraceIdRatioBased.get_bound_for_rate(ratio)
        self._share = TraceIdRatioBased.get_bound_for_rate(MIN_SHARE)
        self._calls = Quota(now, calls_per_s, 60 * calls_per_s)
        self._failures = Quota(now, calls_per_s, 60 * calls_per_s)

    def should_sample(  # noqa: PLR0913, PLR0917  # the SDK's interface
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        number = trace_id & TraceIdRatioBased.TRACE_ID_LIMIT
        is_failure = (attributes or {}).get(OUTCOME_ATTRIBUTE) not in NORMAL_OUTCOMES
        if not is_failure and number >= self._ratio:
            return DROP_SPAN
        if self._calls.take_token() is not None or (
            is_failure and self._failures.take_token() is not None
        ):
            return RECORD_AND_SAMPLE
        if number < self._share:
            return RECORD_AND_SAMPLE
        self._on_limit()
        return DROP_SPAN

    def get_description(self) -> str:
        return "RateLimitedSampler"


def load_sampler(name: str, argument: str | None) -> Sampler | None:
    """Return a sampler of the SDK or of another package, by its entry point, None without one."""
    for entry_point in entry_points(group="opentelemetry_traces_sampler", name=name.lower()):
        is_ratio = name.lower() in RATIO_SAMPLERS
        sampler: Sampler = entry_point.load()(float(argument or 1) if is_ratio else argument)
        return sampler
    return None
