"""Spans: one for the client's call, one for the model call, one for each request to an upstream.

No span is alive while a call runs. Its ids were drawn on arrival; when it has ended the spans are
written from its record, complete, and put into the outbox. So which calls are kept is decided by
how they ended: a share of all, and each that failed or was blocked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, NamedTuple, Protocol

from proxy.attempts import Attempt
from proxy.call_facts import CallFacts
from proxy.emit import attributes, semconv
from proxy.emit.attributes import SharedCallFields
from proxy.emit.otlp import (
    EVENT,
    SPAN,
    Attributes,
    Value,
    before_float,
    encode_attributes,
    encode_event,
    encode_float,
    encode_named,
    encode_span,
    encode_time,
)
from proxy.emit.profiles import Profile, SpanOf
from proxy.record import Record
from proxy.summary import facts_of

ALWAYS = frozenset({"blocked", "proxy_error", "timeout", "upstream_error"})
MOST_SHARED = 1024  # of each kind
NOTHING: Attributes = {}


class SpanReceiver(Protocol):
    """Where finished spans go."""

    def take(self, spans: Sequence[bytes]) -> None:
        """Take all spans of a call, at once; never wait."""


def sampled(sample_id: str, ratio: float) -> bool:
    """True if a call is of that share of all, by the number that the record has for it.

    What a client says is not asked, be it the flag or the id of its trace: it could force the
    cost of tracing on us, or have its calls seen by nobody.
    """
    return int(sample_id[16:], 16) < ratio * 2**64


class _Ids(NamedTuple):
    """The ids that the spans of a call share."""

    trace: bytes
    server: bytes
    model: bytes


class Traces:
    """The sink that writes spans of records.

    ``ratio`` is the share of calls that is kept whatever came of them; ``profiles`` add what their
    readers want. What many calls have in common is written when it is first met, and kept for as
    many ways as ``MOST_SHARED``: names of policies and closed sets, and values of tags.
    """

    name: ClassVar[str] = "traces"

    def __init__(
        self, outbox: SpanReceiver, ratio: float, profiles: Sequence[Profile] = ()
    ) -> None:
        self._outbox = outbox
        self._ratio = ratio
        self._profiles = profiles
        kept = lru_cache(MOST_SHARED)
        self._call, self._model = kept(_call), kept(_model)
        self._attempt, self._guard, self._bytes = kept(_attempt), kept(_guard), kept(_bytes)

    def end(self, record: Record) -> None:
        if not record.reported:
            return
        if record.outcome not in ALWAYS and not sampled(record.sample_id, self._ratio):
            return
        facts, base_ns = facts_of(record), _base_ns(record)
        ids = _Ids(
            trace=bytes.fromhex(facts.trace_id),
            server=bytes.fromhex(facts.server_span),
            model=bytes.fromhex(record.ids.model_span),
        )
        spans = [self._of_attempt(record, attempt, ids, base_ns) for attempt in record.attempts]
        if spans:
            spans.append(self._of_model_call(record, facts, ids, base_ns))
        spans.append(self._of_call(record, facts, ids, base_ns))
        self._outbox.take(spans)

    def _of_call(self, record: Record, facts: CallFacts, ids: _Ids, base_ns: int) -> bytes:
        parent = record.head.parent if record.head is not None else None
        ended_ns = base_ns + int((record.ended or record.started) * 1e9)
        parts = [
            self._call(attributes.shared_call_fields(facts)),
            encode_attributes(SPAN, attributes.call_own(facts)),
            *self._events(facts, encode_time(ended_ns)),
        ]
        if self._profiles:
            parts.append(self._added("server", record))
        return encode_span(
            (ids.trace, ids.server, bytes.fromhex(parent.span_id) if parent else b""),
            (base_ns + int(record.started * 1e9), ended_ns),
            b"".join(parts),
            serves=True,
            failed=_failed(facts),
        )

    def _of_model_call(self, record: Record, facts: CallFacts, ids: _Ids, base_ns: int) -> bytes:
        first, last = record.attempts[0], record.attempts[-1]
        upstream = last.target.upstream
        operation = semconv.OPERATIONS.get(facts.endpoint or "", "chat")
        provider = upstream.provider or upstream.dialect
        shared = operation, provider, last.target.model, upstream.base_url
        own = attributes.model_own(record, facts, last)
        parts = [self._model(*shared), encode_attributes(SPAN, own)]
        if self._profiles:
            parts.append(self._added("model", record, {**attributes.model_shared(*shared), **own}))
        ended = last.ended or record.ended or last.started
        return encode_span(
            (ids.trace, ids.model, ids.server),
            (base_ns + int(first.started * 1e9), base_ns + int(ended * 1e9)),
            b"".join(parts),
            serves=False,
            failed=facts.failure is not None,
        )

    def _of_attempt(self, record: Record, attempt: Attempt, ids: _Ids, base_ns: int) -> bytes:
        upstream = attempt.target.upstream
        result = attempt.why, attempt.status, attempt.error, attempt.lost
        content = self._attempt(upstream.name, upstream.base_url, *result)
        if self._profiles:
            content += self._added("attempt", record)
        ended = attempt.ended or record.ended or attempt.started
        return encode_span(
            (ids.trace, bytes.fromhex(attempt.span_id), ids.model),
            (base_ns + int(attempt.started * 1e9), base_ns + int(ended * 1e9)),
            content,
            serves=False,
            failed=attempt.error is not None,
        )

    def _added(self, of: SpanOf, record: Record, known: Attributes = NOTHING) -> bytes:
        """Return what the profiles add to a span, by what is known of it: only the model's needs
        that."""
        added: dict[str, Value | None] = {}
        for profile in self._profiles:
            added |= profile(of, record, known)
        return encode_attributes(SPAN, added)

    def _events(self, facts: CallFacts, at: bytes) -> list[bytes]:
        """Return what was decided, each at the call's end: a record holds no moments of it."""
        events = []
        for stage, result in facts.verdicts:
            content = (
                self._guard(result.guard, stage, result.verdict, result.shadow, result.error)
                + encode_float(result.seconds)
                + self._bytes(result.bytes)
            )
            if result.findings:
                content += encode_attributes(EVENT, attributes.findings(result))
            events.append(encode_event(at, content))
        for name, decided in attributes.decisions(facts):
            events.append(encode_event(at, encode_named(EVENT, name, decided)))
        return events


def _call(shared: SharedCallFields) -> bytes:
    return encode_named(SPAN, f"{shared.method} {shared.route}", attributes.call_shared(shared))


def _model(operation: str, provider: str, model: str, base_url: str) -> bytes:
    shared = attributes.model_shared(operation, provider, model, base_url)
    return encode_named(SPAN, f"{operation} {model}", shared)


def _attempt(
    upstream: str, base_url: str, why: str, status: int | None, error: str | None, lost: bool
) -> bytes:
    shared = attributes.attempt_shared(upstream, base_url, why, status, error, lost)
    return encode_named(SPAN, "POST", shared)


def _guard(name: str, stage: str, verdict: str, shadow: bool, error: str | None) -> bytes:
    """Return the event of a guard as far as the number of the seconds that it took."""
    shared = attributes.guard_shared(name, stage, verdict, shadow, error)
    event = encode_named(EVENT, semconv.GUARD_EVENT, shared)
    return event + before_float(EVENT, semconv.GUARD_SECONDS)


def _bytes(count: int) -> bytes:
    return encode_attributes(EVENT, {semconv.GUARD_BYTES: count})


def _base_ns(record: Record) -> int:
    """Return the nanoseconds since the epoch at which the clock of a call was at zero."""
    return round(record.started_at.timestamp() * 1e6) * 1000 - int(record.started * 1e9)


def _failed(facts: CallFacts) -> bool:
    """True if a call failed, and not by its client's fault; its head may have left before."""
    ended_badly = facts.outcome in ("proxy_error", "timeout", "upstream_error")
    return ended_badly and not 400 <= (facts.status or 500) < 500
