"""Spans: one for the client's call, one for the model call, one for each request to an upstream.

No span is alive while a call runs. Its ids were drawn at the door; when it has ended the spans are
built from its record, complete, and handed to OpenTelemetry's batch processor and its thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from proxy.emit import semconv, summary
from proxy.record import Attempt, Record

Value = str | bool | int | float | list[str]
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Processor(Protocol):
    """OpenTelemetry's span processor, as far as finished spans need it."""

    def on_end(self, span: ReadableSpan) -> None: ...


def sampled(trace_id: str, ratio: float) -> bool:
    """Decide by the trace's id alone, so that all parts of a trace are kept or none.

    What a client says about sampling is not asked: it could force the cost of tracing on us.
    """
    return int(trace_id[16:], 16) < ratio * 2**64


class Traces:
    """The sink that makes spans of records."""

    def __init__(self, processor: Processor, resource: Resource, ratio: float) -> None:
        self._processor = processor
        self._resource = resource
        self._ratio = ratio
        self._scope = InstrumentationScope("headrace")

    def begin(self, record: Record) -> None:
        return None

    def end(self, record: Record) -> None:
        if not sampled(record.ids.trace_id, self._ratio):
            return
        for attempt in record.attempts:
            self._emit_attempt(record, attempt)
        if record.attempts:
            self._emit_model_call(record)
        self._emit_server(record)

    def _emit_server(self, record: Record) -> None:
        door = record.door
        parent = door.parent.span_id if door and door.parent else None
        method = "GET" if door and door.endpoint == "models" else "POST"
        failed = record.status is not None and record.status >= 500
        route = door.route if door else "unknown"
        self._emit(
            f"{method} {route}",
            SpanKind.SERVER,
            (record.ids.trace_id, record.ids.server_span, parent),
            (self._ns(record, record.started), self._ns(record, record.ended)),
            _server_attributes(record, method, route),
            Status(StatusCode.ERROR) if failed or record.bug else Status(),
        )

    def _emit_model_call(self, record: Record) -> None:
        first, last = record.attempts[0], record.attempts[-1]
        operation = semconv.OPERATIONS.get(summary.endpoint(record), "chat")
        self._emit(
            f"{operation} {last.target.model}",
            SpanKind.CLIENT,
            (record.ids.trace_id, record.ids.model_span, record.ids.server_span),
            (self._ns(record, first.started), self._ns(record, last.ended or record.ended)),
            _model_attributes(record, last, operation),
            Status(StatusCode.ERROR) if record.error is not None else Status(),
        )

    def _emit_attempt(self, record: Record, attempt: Attempt) -> None:
        failed = attempt.error is not None
        self._emit(
            "POST",
            SpanKind.CLIENT,
            (record.ids.trace_id, attempt.span_id, record.ids.model_span),
            (self._ns(record, attempt.started), self._ns(record, attempt.ended or record.ended)),
            _attempt_attributes(attempt),
            Status(StatusCode.ERROR) if failed else Status(),
        )

    def _emit(
        self,
        name: str,
        kind: SpanKind,
        ids: tuple[str, str, str | None],
        times: tuple[int, int],
        attributes: Mapping[str, Value],
        status: Status,
    ) -> None:
        trace_id, span_id, parent = ids
        span = ReadableSpan(
            name=name,
            context=_context(trace_id, span_id),
            parent=_context(trace_id, parent, remote=kind is SpanKind.SERVER) if parent else None,
            resource=self._resource,
            attributes=attributes,
            kind=kind,
            status=status,
            start_time=times[0],
            end_time=times[1],
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(span)

    def _ns(self, record: Record, moment: float | None) -> int:
        """Give a monotonic moment as nanoseconds since the epoch."""
        after = timedelta(seconds=(moment or record.started) - record.started)
        return int((record.started_at + after).timestamp() * 1e9)


def _context(trace_id: str, span_id: str, *, remote: bool = False) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), remote, _SAMPLED)


def _server_attributes(record: Record, method: str, route: str) -> dict[str, Value]:
    plan, door, cost = record.plan, record.door, record.cost
    said: dict[str, Value | None] = {
        semconv.HTTP_METHOD: method,
        semconv.HTTP_ROUTE: route,
        semconv.URL_PATH: route,
        semconv.URL_SCHEME: "http",
        semconv.HTTP_STATUS: record.status,
        semconv.ERROR_TYPE: record.error.code if record.error else None,
        semconv.REQUEST_ID: door.request_id if door else None,
        semconv.DIALECT: summary.dialect(record),
        semconv.KEY: record.key,
        semconv.DEPLOYMENT: plan.deployment if plan else None,
        semconv.TAGS: [f"{k}={v}" for k, v in plan.tags.items()] if plan else None,
        semconv.POLICY: record.revision,
        semconv.RULES: (list(plan.rules) or None) if plan else None,
        semconv.WOULD: (list(plan.would) or None) if plan else None,
        semconv.CACHE_STATUS: record.cache,
        semconv.OUTCOME: record.outcome,
        semconv.ATTEMPTS: len(record.attempts),
        semconv.OVERHEAD_MS: round(summary.overhead(record) * 1000, 3),
        semconv.USAGE_ESTIMATED: record.source == "partial_estimate" if record.attempts else None,
        semconv.COST_SOURCE: _cost_source(record),
        semconv.COST_USD: float(cost) / 1e6 if record.attempts and cost is not None else None,
    }
    return _known(said)


def _cost_source(record: Record) -> str | None:
    if not record.attempts:
        return None
    return "unknown" if record.cost is None else "table"


def _model_attributes(record: Record, last: Attempt, operation: str) -> dict[str, Value]:
    upstream, tokens, first = last.target.upstream, record.tokens, summary.first_token(record)
    said: dict[str, Value | None] = {
        semconv.OPERATION: operation,
        semconv.PROVIDER: upstream.provider or upstream.dialect,
        semconv.REQUEST_MODEL: last.target.model,
        semconv.REQUEST_STREAM: True if record.call and record.call.stream else None,
        semconv.RESPONSE_FINISH_REASONS: summary.finish_reasons(record) or None,
        semconv.RESPONSE_FIRST_CHUNK: first,
        semconv.ERROR_TYPE: record.error.code if record.error else None,
        **_address(last),
    }
    if record.source != "none":
        said |= {
            semconv.INPUT_TOKENS: tokens.prompt_total,
            semconv.OUTPUT_TOKENS: tokens.completion_total,
            semconv.CACHE_READ: tokens.cached_input or None,
            semconv.CACHE_WRITE: tokens.cache_write or None,
            semconv.CACHE_CREATION: tokens.cache_write or None,
            semconv.REASONING_TOKENS: tokens.reasoning or None,
        }
    return _known(said)


def _attempt_attributes(attempt: Attempt) -> dict[str, Value]:
    return _known(
        {
            semconv.HTTP_METHOD: "POST",
            semconv.HTTP_STATUS: attempt.status,
            semconv.ERROR_TYPE: attempt.error,
            semconv.UPSTREAM: attempt.target.upstream.name,
            semconv.WHY: attempt.why,
            semconv.LOST: attempt.lost or None,
            **_address(attempt),
        }
    )


def _address(attempt: Attempt) -> dict[str, Value | None]:
    parts = urlsplit(attempt.target.upstream.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {semconv.SERVER_ADDRESS: parts.hostname, semconv.SERVER_PORT: port}


def _known(said: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in said.items() if value is not None}
