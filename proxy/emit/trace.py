"""Spans: one for the client's call, one for the model call, one for each request to an upstream.

No span is alive while a call runs. Its ids were drawn on arrival; when it has ended the spans are
written from its record, complete, and put into the outbox. So which calls are kept is decided by
how they ended: a share of all, and each that failed or was blocked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Protocol

from proxy.attempts import Attempt
from proxy.call_facts import CallFacts
from proxy.emit import attributes, semconv
from proxy.emit.attributes import Shared
from proxy.emit.otlp import (
    EVENT,
    SPAN,
    Attributes,
    Value,
    before_float,
    encode_attributes,
    encode_events,
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


Ids = tuple[bytes, bytes, bytes]
"""Those that the spans of a call share: of its trace, of its own span, and of its model call's."""


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
        self._call, self._model, self._cached = kept(_call), kept(_model), kept(_cached)
        self._attempt, self._guard, self._bytes = kept(_attempt), kept(_guard), kept(_bytes)

    def end(self, record: Record) -> None:
        if not record.reported:
            return
        facts = record.facts or facts_of(record)
        chosen = self._ratio >= 1 or sampled(record.sample_id, self._ratio)
        if not chosen and facts.outcome not in ALWAYS:
            return
        # Nanoseconds since the epoch at which the clock of the call was at zero.
        base_ns = round(record.started_at.timestamp() * 1e6) * 1000 - int(record.started * 1e9)
        drawn = bytes.fromhex(facts.trace_id + facts.server_span + record.ids.model_span)
        ids = drawn[:16], drawn[16:24], drawn[24:]
        spans: list[bytes] = []
        texts, error = NOTHING, None
        for attempt in record.attempts:
            spans += (self._of_attempt(record, attempt, ids, base_ns),)
        if spans:
            try:
                texts = attributes.captured_texts(record)
            except Exception as problem:  # noqa: BLE001  # raised once the spans are sent
                error = problem
            spans += (self._of_model_call(record, facts, ids, base_ns, texts),)
        spans += (self._of_call(record, facts, ids, base_ns),)
        self._outbox.take(spans)
        if error is not None:
            raise error

    def _of_call(self, record: Record, facts: CallFacts, ids: Ids, base_ns: int) -> bytes:
        parent = record.head.parent if record.head is not None else None
        ended_ns = base_ns + int((record.ended or record.started) * 1e9)
        content = self._call(attributes.call_shared(facts))
        content += encode_attributes(SPAN, attributes.call_own(facts))
        content += encode_events(encode_time(ended_ns), self._events(facts))
        if self._profiles:
            content += self._added("server", record)
        trace_id, own_id, _ = ids
        return encode_span(
            (trace_id, own_id, bytes.fromhex(parent.span_id) if parent else b""),
            (base_ns + int(record.started * 1e9), ended_ns),
            content,
            serves=True,
            failed=_failed(facts),
        )

    def _of_model_call(
        self, record: Record, facts: CallFacts, ids: Ids, base_ns: int, texts: Attributes
    ) -> bytes:
        first, last = record.attempts[0], record.attempts[-1]
        upstream = last.target.upstream
        shared = (
            semconv.OPERATIONS.get(facts.endpoint or "", "chat"),
            upstream.provider or upstream.dialect,
            last.target.model,
            upstream.base_url,
            tuple(facts.finish_reasons),
        )
        own = {**attributes.model_own(record, facts, last), **texts}
        content = self._model(*shared) + encode_attributes(SPAN, own)
        if self._profiles:
            known = {**attributes.model_shared(*shared), **own}
            content += self._added("model", record, known)
        ended = last.ended or record.ended or last.started
        trace_id, server_id, own_id = ids
        return encode_span(
            (trace_id, own_id, server_id),
            (base_ns + int(first.started * 1e9), base_ns + int(ended * 1e9)),
            content,
            serves=False,
            failed=facts.failure is not None,
        )

    def _of_attempt(self, record: Record, attempt: Attempt, ids: Ids, base_ns: int) -> bytes:
        upstream = attempt.target.upstream
        method = "POST" if record.head is None else record.head.method
        shared = attributes.attempt_shared(attempt, method)
        content = self._attempt(method, upstream.base_url, shared)
        if attempt.system_text is not None:
            content += encode_attributes(SPAN, {semconv.ERROR_TEXT: attempt.system_text})
        if self._profiles:
            content += self._added("attempt", record)
        ended = attempt.ended or record.ended or attempt.started
        trace_id, _, model_id = ids
        return encode_span(
            (trace_id, bytes.fromhex(attempt.span_id), model_id),
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

    def _events(self, facts: CallFacts) -> list[bytes]:
        """Return what was decided, as events of the call's end: a record holds no moments of it."""
        events: list[bytes] = []
        for stage, result in facts.verdicts:
            content = (
                self._guard(result.guard, stage, result.verdict, result.shadow, result.error)
                + encode_float(result.seconds)
                + self._bytes(result.bytes)
            )
            if result.findings:
                content += encode_attributes(EVENT, attributes.findings(result))
            events += (content,)
        if facts.upstream_findings or facts.failure is not None or facts.skips:
            for name, decided in attributes.decisions(facts):
                events += (encode_named(EVENT, name, decided),)
        elif facts.cache_store is not None:
            events += (self._cached(facts.cache),)
        return events


def _call(shared: Shared) -> bytes:
    values = dict(shared)
    tags = values[semconv.TAGS]
    values[semconv.TAGS] = attributes.tags_of(tags) if tags is not None else None
    title = f"{values[semconv.HTTP_METHOD]} {values[semconv.HTTP_ROUTE]}"
    return encode_named(SPAN, title, values)


def _model(
    operation: str, provider: str, model: str, base_url: str, finish_reasons: tuple[str, ...]
) -> bytes:
    shared = attributes.model_shared(operation, provider, model, base_url, finish_reasons)
    return encode_named(SPAN, f"{operation} {model}", shared)


def _attempt(method: str, base_url: str, shared: Shared) -> bytes:
    return encode_named(SPAN, method, {**dict(shared), **attributes.address(base_url)})


def _guard(name: str, stage: str, verdict: str, shadow: bool, error: str | None) -> bytes:
    """Return the event of a guard as far as the number of the seconds that it took."""
    shared = attributes.guard_shared(name, stage, verdict, shadow, error)
    event = encode_named(EVENT, semconv.GUARD_EVENT, shared)
    return event + before_float(EVENT, semconv.GUARD_SECONDS)


def _cached(status: str) -> bytes:
    return encode_named(EVENT, semconv.CACHE_EVENT, {semconv.CACHE_STATUS: status})


def _bytes(count: int) -> bytes:
    return encode_attributes(EVENT, {semconv.GUARD_BYTES: count})


def _failed(facts: CallFacts) -> bool:
    """True if a call failed, and not by its client's fault; its head may have left before."""
    ended_badly = facts.outcome in ("proxy_error", "timeout", "upstream_error")
    return ended_badly and not 400 <= (facts.status or 500) < 500
