"""Sink that exports the spans of calls: the client's call, its model call, and each attempt.

No span is alive while a call runs: its ids are drawn on arrival, and its spans are built from the
record when it has ended. So the decision to sample knows how the call ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from proxy.attempts import Attempt
from proxy.call_facts import UNKNOWN, CallFacts
from proxy.emit import attributes
from proxy.emit.attributes import OUTCOME, Attributes, Profile, SpanOf
from proxy.emit.lines import redact_text
from proxy.record import Record
from proxy.summary import facts_of

FAILED = frozenset({"proxy_error", "timeout", "upstream_error"})
SAMPLED, UNSAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
NO_PARENT = Context()
OK, ERROR = Status(), Status(StatusCode.ERROR)
SCOPE = InstrumentationScope("headrace")


class SpanReceiver(Protocol):
    """Receives the spans of a call."""

    def put(self, spans: Sequence[ReadableSpan]) -> None:
        """Take all of the spans or drop all of them. Never waits."""


class Traces:
    """Exports the spans of the calls that ``sampler`` samples.

    The sampler gets the outcome of a call among its attributes. It sees the client's trace id and
    sampling flag only if the key may decide: with them a client could force the cost of tracing on
    the proxy, or hide its calls. ``on_sample`` is called for each sampled call.
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

    def end(self, record: Record) -> None:
        """Export the spans of a call. An error in its captured texts is raised after that."""
        if not record.reported:
            return
        facts = facts_of(record)
        if not self._is_sampled(record, facts):
            return
        self._on_sample()
        texts: Attributes = {}
        error = None
        try:
            texts = attributes.captured_texts(record) if record.attempts else {}
        except Exception as problem:  # noqa: BLE001  # raised once the spans are exported
            error = problem
        call = CallSpans(record, facts, self._resource, self._profiles)
        spans = [call.attempt(attempt) for attempt in record.attempts]
        if spans:
            spans.append(call.model_call(texts))
        spans.append(call.server())
        for receiver in self._receivers:
            receiver.put(spans)
        if error is not None:
            raise error

    def _is_sampled(self, record: Record, facts: CallFacts) -> bool:
        route = facts.route or UNKNOWN
        result = self._sampler.should_sample(
            _parent_context(record),
            int(record.sample_id, 16),
            f"{facts.method} {route}",
            SpanKind.SERVER,
            {
                "http.request.method": facts.method,
                "http.route": route,
                OUTCOME: facts.outcome,
            },
        )
        return result.decision is Decision.RECORD_AND_SAMPLE


def _parent_context(record: Record) -> Context:
    """Return the client's span, if its key may decide whether a call is sampled."""
    parent = record.head.parent if record.head is not None else None
    if parent is None or record.parent_sampled is None:
        return NO_PARENT
    flags = SAMPLED if record.parent_sampled else UNSAMPLED
    trace_id, span_id = int(parent.trace_id, 16), int(parent.span_id, 16)
    span = NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags))
    return set_span_in_context(span, NO_PARENT)


class CallSpans:
    """Builds the spans of one finished call."""

    __slots__ = ("epoch_ns", "facts", "profiles", "record", "resource", "trace_id")

    def __init__(
        self, record: Record, facts: CallFacts, resource: Resource, profiles: Sequence[Profile]
    ) -> None:
        self.record = record
        self.facts = facts
        self.resource = resource
        self.profiles = profiles
        self.trace_id = int(facts.trace_id, 16)
        # Nanoseconds since the epoch when the record's monotonic clock was 0.
        started_us = round(facts.started_at.timestamp() * 1e6)
        self.epoch_ns = started_us * 1000 - int(record.started * 1e9)

    def server(self) -> ReadableSpan:
        """Return the span of the client's call. Its parent is the client's own span."""
        record, facts = self.record, self.facts
        parent = record.head.parent if record.head is not None else None
        ended = record.ended or record.started
        return self._span(
            "server",
            f"{facts.method} {facts.route or UNKNOWN}",
            (facts.server_span, parent.span_id if parent is not None else None),
            (record.started, ended),
            attributes.call_attributes(facts),
            attributes.call_events(facts),
        )

    def model_call(self, texts: Attributes) -> ReadableSpan:
        """Return the span that covers all attempts, with the captured texts."""
        record, facts = self.record, self.facts
        first, last = record.attempts[0], record.attempts[-1]
        described = {**attributes.model_attributes(record, facts), **texts}
        return self._span(
            "model",
            f"{described['gen_ai.operation.name']} {last.target.model}",
            (record.ids.model_span, facts.server_span),
            (first.started, last.ended or record.ended or last.started),
            described,
        )

    def attempt(self, attempt: Attempt) -> ReadableSpan:
        """Return the span of one request to an upstream."""
        record, method = self.record, self.facts.method
        return self._span(
            "attempt",
            method,
            (attempt.span_id, record.ids.model_span),
            (attempt.started, attempt.ended or record.ended or attempt.started),
            attributes.attempt_attributes(attempt, method),
        )

    def _span(
        self,
        span_of: SpanOf,
        name: str,
        ids: tuple[str, str | None],
        times: tuple[float, float],
        described: Attributes,
        events: Sequence[attributes.Event] = (),
    ) -> ReadableSpan:
        """Return a span. ``ids`` are its own and its parent's, ``times`` of the record's clock.
        Events have the time of its end."""
        own_id, parent_id = ids
        ended_ns = self.epoch_ns + int(times[1] * 1e9)
        is_server = span_of == "server"
        is_error = self._is_error() if is_server else described["error.type"] is not None
        added: dict[str, Any] = {}
        for profile in self.profiles:
            added |= profile(span_of, self.record, described)
        known, *of_events = exported([{**described, **added}, *(values for _, values in events)])
        return ReadableSpan(
            redact_text(name),
            context=self._context(own_id),
            parent=self._context(parent_id, is_remote=is_server) if parent_id else None,
            resource=self.resource,
            attributes=known,
            events=[
                Event(name, values, ended_ns)
                for (name, _), values in zip(events, of_events, strict=True)
            ],
            kind=SpanKind.SERVER if is_server else SpanKind.CLIENT,
            status=ERROR if is_error else OK,
            start_time=self.epoch_ns + int(times[0] * 1e9),
            end_time=ended_ns,
            instrumentation_scope=SCOPE,
        )

    def _is_error(self) -> bool:
        """Return True if the proxy or the upstream failed. The head may have been sent before."""
        is_client_error = 400 <= (self.facts.status or 500) < 500
        return self.facts.outcome in FAILED and not is_client_error

    def _context(self, span_id: str, *, is_remote: bool = False) -> SpanContext:
        return SpanContext(self.trace_id, int(span_id, 16), is_remote, SAMPLED)


def exported(described: Sequence[Attributes]) -> list[dict[str, Any]]:
    """Return the attributes that are known, with credentials and lone surrogates replaced."""
    known = [
        {name: value for name, value in each.items() if value is not None} for each in described
    ]
    text = repr(known)  # one search instead of one for each value: nearly always it finds nothing
    if "\\ud" not in text and redact_text(text) == text:
        return known
    return [{name: _redacted(value) for name, value in each.items()} for each in known]


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    return [redact_text(text) for text in value] if isinstance(value, (list, tuple)) else value
