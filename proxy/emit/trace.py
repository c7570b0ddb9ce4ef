"""Spans: one for the client's call, one for the model call, one for each request to an upstream.

No span is alive while a call runs. Its ids were drawn on arrival; when it has ended the spans are
built from its record, complete, and put into the outbox. So which calls are kept is decided by how
they ended: a share of all, and each that failed or was blocked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, Protocol

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from proxy.attempts import Attempt
from proxy.emit import attributes, semconv
from proxy.emit.attributes import Attributes
from proxy.emit.profiles import Profile, SpanOf
from proxy.record import Record
from proxy.summary import facts_of

ALWAYS = frozenset({"blocked", "proxy_error", "timeout", "upstream_error"})
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class SpanReceiver(Protocol):
    """Where finished spans go."""

    def take(self, spans: Sequence[ReadableSpan]) -> None:
        """Take all spans of a call, at once; never wait."""


def sampled(sample_id: str, ratio: float) -> bool:
    """True if a call is of that share of all, by the number that the record has for it.

    What a client says is not asked, be it the flag or the id of its trace: it could force the
    cost of tracing on us, or have its calls seen by nobody.
    """
    return int(sample_id[16:], 16) < ratio * 2**64


class Traces:
    """The sink that makes spans of records.

    ``ratio`` is the share of calls that is kept whatever came of them; ``profiles`` add what their
    readers want.
    """

    name: ClassVar[str] = "traces"

    def __init__(
        self,
        outbox: SpanReceiver,
        resource: Resource,
        ratio: float,
        profiles: Sequence[Profile] = (),
    ) -> None:
        self._outbox = outbox
        self._resource = resource
        self._ratio = ratio
        self._profiles = profiles
        self._scope = InstrumentationScope("headrace")

    def begin(self, record: Record) -> None:
        return None

    def end(self, record: Record) -> None:
        if not record.reported:
            return
        if record.outcome not in ALWAYS and not sampled(record.sample_id, self._ratio):
            return
        spans = [self._attempt(record, attempt) for attempt in record.attempts]
        if record.attempts:
            spans.append(self._model_call(record))
        self._outbox.take([*spans, self._server(record)])

    def _server(self, record: Record) -> ReadableSpan:
        head = record.head
        parent = head.parent.span_id if head and head.parent else None
        method = "GET" if head and head.endpoint == "models" else "POST"
        route = head.route if head else "unknown"
        return self._span(
            f"{method} {route}",
            (record.ids.trace_id, record.ids.server_span, parent),
            (_ns(record, record.started), _ns(record, record.ended)),
            self._profiled("server", record, attributes.server(facts_of(record), method, route)),
            failed=_failed(record),
            events=_events(record),
        )

    def _model_call(self, record: Record) -> ReadableSpan:
        first, last = record.attempts[0], record.attempts[-1]
        operation = semconv.OPERATIONS.get(record.head.endpoint if record.head else "", "chat")
        return self._span(
            f"{operation} {last.target.model}",
            (record.ids.trace_id, record.ids.model_span, record.ids.server_span),
            (_ns(record, first.started), _ns(record, last.ended or record.ended)),
            self._profiled("model", record, attributes.model_call(record, last, operation)),
            failed=record.error is not None,
        )

    def _attempt(self, record: Record, attempt: Attempt) -> ReadableSpan:
        return self._span(
            "POST",
            (record.ids.trace_id, attempt.span_id, record.ids.model_span),
            (_ns(record, attempt.started), _ns(record, attempt.ended or record.ended)),
            self._profiled("attempt", record, attributes.attempt(attempt)),
            failed=attempt.error is not None,
        )

    def _profiled(self, span: SpanOf, record: Record, named: Attributes) -> Attributes:
        """Return attributes with what the profiles add."""
        for profile in self._profiles:
            named = {**named, **profile(span, record, named)}
        return named

    def _span(
        self,
        name: str,
        ids: tuple[str, str, str | None],
        times: tuple[int, int],
        named: Attributes,
        *,
        failed: bool,
        events: Sequence[Event] | None = None,
    ) -> ReadableSpan:
        """Make a span; the one that may have events is the server's."""
        trace_id, span_id, parent = ids
        serves = events is not None
        return ReadableSpan(
            name=name,
            context=_context(trace_id, span_id),
            parent=_context(trace_id, parent, remote=serves) if parent else None,
            resource=self._resource,
            attributes=named,
            events=events or (),
            kind=SpanKind.SERVER if serves else SpanKind.CLIENT,
            status=Status(StatusCode.ERROR) if failed else Status(),
            start_time=times[0],
            end_time=times[1],
            instrumentation_scope=self._scope,
        )


def _ns(record: Record, moment: float | None) -> int:
    """Return a monotonic moment as nanoseconds since the epoch."""
    after = timedelta(seconds=(moment or record.started) - record.started)
    return int((record.started_at + after).timestamp() * 1e9)


def _failed(record: Record) -> bool:
    """True if a call failed, and not by its client's fault; its head may have left before."""
    ended_badly = record.outcome in ("proxy_error", "timeout", "upstream_error")
    return ended_badly and not 400 <= (record.status or 500) < 500


def _events(record: Record) -> list[Event]:
    """Return what was decided, each at the call's end: a record holds no moments of it."""
    at = _ns(record, record.ended)
    return [Event(name, named, at) for name, named in attributes.decisions(facts_of(record))]


def _context(trace_id: str, span_id: str, *, remote: bool = False) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), remote, _SAMPLED)
