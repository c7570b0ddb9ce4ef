"""Attributes and events of spans. Values that a client or an upstream writes freely are bounded.

An attribute whose value is None is unknown and is not exported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import orjson

from proxy.attempts import Attempt
from proxy.call_facts import UNKNOWN, CallFacts
from proxy.dialects.upstream_request import parameters
from proxy.emit import semconv
from proxy.errors import UpstreamFinding
from proxy.record import CapturedText, Record
from proxy.types.guard import GuardResult, Stage
from proxy.usage import NANO, UNCOUNTED
from proxy.words import MAX_ID, MAX_NAME, MAX_WORD, few, word, word_of

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value | None]
Event = tuple[str, Attributes]
NUMERIC_PARAMETERS: Mapping[str, str] = {
    "max_tokens": semconv.MAX_TOKENS,
    "max_completion_tokens": semconv.MAX_TOKENS,
    "temperature": semconv.TEMPERATURE,
    "top_p": semconv.TOP_P,
    "top_k": semconv.TOP_K,
    "frequency_penalty": semconv.FREQUENCY_PENALTY,
    "presence_penalty": semconv.PRESENCE_PENALTY,
    "seed": semconv.SEED,
}
"""Span attributes of request parameters that are numbers, by the field of the request."""
MAX_INTEGER = 2**63 - 1  # OTLP has signed integers of 64 bits


def call_attributes(facts: CallFacts) -> Attributes:
    """Return the attributes of the server span of a call."""
    has_attempts = bool(facts.attempts)
    cost_source = "table" if facts.cost is not None else "unknown"
    route, saved = facts.route or UNKNOWN, facts.saved
    return {
        semconv.HTTP_METHOD: facts.method,
        semconv.HTTP_ROUTE: route,
        semconv.URL_PATH: route,
        semconv.URL_SCHEME: "http",
        semconv.HTTP_STATUS: facts.status,
        semconv.ERROR_TYPE: facts.failure.code if facts.failure is not None else None,
        semconv.DIALECT: facts.dialect or UNKNOWN,
        semconv.KEY: facts.key,
        semconv.DEPLOYMENT: facts.deployment,
        semconv.TAGS: format_tags(facts.tags.items()) if facts.tags is not None else None,
        semconv.POLICY: facts.policy,
        semconv.RULES: tuple(facts.rules) or None,
        semconv.SHADOW_RULES: tuple(facts.shadow_rules) or None,
        semconv.CACHE_STATUS: facts.cache,
        semconv.CACHE_SEMANTIC_MATCH: facts.semantic_match or None,
        semconv.OUTCOME: facts.outcome,
        semconv.ATTEMPTS: len(facts.attempts),
        semconv.USAGE_ESTIMATED: facts.source == "partial_estimate" if has_attempts else None,
        semconv.COST_SOURCE: cost_source if has_attempts else None,
        semconv.REQUEST_ID: facts.request_id,
        semconv.PROPERTIES: [f"{name}={value}" for name, value in facts.properties] or None,
        semconv.OVERHEAD_MS: round(facts.overhead_s * 1000, 3),
        semconv.COST_USD: usd(facts.cost) if facts.source != "none" else None,
        # Not `gen_ai.usage.*`: a sum of that would count a cached response twice.
        semconv.SAVED_TOKENS: saved.tokens.total if saved else None,
        semconv.SAVED_USD: usd(saved.cost) if saved else None,
    }


def format_tags(tags: Iterable[tuple[str, str]]) -> list[str]:
    """Return tags as ``name=value``. A caller may have written the values."""
    return [f"{tag}={word(value, MAX_NAME)}" for tag, value in tags]


def model_attributes(record: Record, facts: CallFacts, last: Attempt) -> Attributes:
    """Return the attributes of the span of a model call, which covers all its attempts."""
    meter, tokens, upstream = last.meter, facts.tokens, last.target.upstream
    attributes: dict[str, Value | None] = {
        semconv.OPERATION: semconv.OPERATIONS.get(facts.endpoint or "", "chat"),
        semconv.PROVIDER: upstream.provider or upstream.dialect,
        semconv.REQUEST_MODEL: last.target.model,
        semconv.RESPONSE_FINISH_REASONS: tuple(facts.finish_reasons) or None,
        semconv.RESPONSE_ID: meter.answer_id,
        semconv.RESPONSE_MODEL: meter.answer_model,
        semconv.RESPONSE_FIRST_CHUNK: first_chunk_s(record, facts),
        semconv.ERROR_TYPE: facts.failure.code if facts.failure is not None else None,
        **address(upstream.base_url),
        **_request_parameters(record, last),
    }
    if facts.source not in UNCOUNTED:
        attributes |= {
            semconv.INPUT_TOKENS: tokens.prompt_total,
            semconv.OUTPUT_TOKENS: tokens.completion_total,
            semconv.CACHE_READ: tokens.cached_input or None,
            semconv.CACHE_WRITE: tokens.cache_write or None,
            semconv.CACHE_CREATION: tokens.cache_write or None,
            semconv.REASONING_TOKENS: tokens.reasoning or None,
            semconv.AUDIO_INPUT_TOKENS: tokens.audio_input or None,
            semconv.AUDIO_OUTPUT_TOKENS: tokens.audio_output or None,
            semconv.IMAGE_INPUT_TOKENS: tokens.image_input or None,
            semconv.IMAGE_OUTPUT_TOKENS: tokens.image_output or None,
        }
    return attributes


def first_chunk_s(record: Record, facts: CallFacts) -> float | None:
    """Return the seconds from the first request to an upstream to the first chunk of a stream."""
    if facts.ttft_s is None or not facts.is_stream:
        return None
    return facts.ttft_s - (record.attempts[0].started - record.started)


def captured_texts(record: Record) -> Attributes:
    """Return the captured texts of a call, for the span of its model call."""
    if record.captured is None:
        return {}
    captured = record.captured()
    return {
        semconv.INPUT_MESSAGES: _messages(captured.asked),
        semconv.OUTPUT_MESSAGES: _messages(captured.answered),
    }


def _messages(texts: Sequence[CapturedText]) -> str | None:
    """Return texts as JSON, in the form of the conventions' messages."""
    messages = [
        {"role": text.role, "parts": [{"type": "text", "content": text.text}]} for text in texts
    ]
    return orjson.dumps(messages).decode() if messages else None


def _request_parameters(record: Record, last: Attempt) -> Attributes:
    """Return the parameters of the request, after the rules have changed them."""
    if record.call is None or record.plan is None or record.head is None:
        return {}
    changes = record.plan.model_calls[last.leg].changes_for(last.target)
    body = parameters(record.call, last.target, changes)
    attributes: dict[str, Value | None] = {
        name: value
        for field, name in NUMERIC_PARAMETERS.items()
        if (value := number(body.get(field))) is not None
    }
    if record.call.stream:
        attributes[semconv.REQUEST_STREAM] = True
    stop = body.get("stop")
    if isinstance(stop, str | list):
        texts = [stop] if isinstance(stop, str) else few(stop)
        attributes[semconv.STOP_SEQUENCES] = [
            text[:MAX_WORD] for text in texts if isinstance(text, str)
        ] or None
    pin = record.call.pin
    if pin is not None and pin.id and not pin.is_conversation and record.head.endpoint != "stored":
        attributes[semconv.PREVIOUS_RESPONSE_ID] = word_of(pin.sealed, MAX_ID)
    if (choices := number(body.get("n"))) != 1:
        attributes[semconv.CHOICE_COUNT] = choices
    if "reasoning_effort" in body:
        attributes[semconv.REASONING_LEVEL] = word_of(body["reasoning_effort"])
    if isinstance(form := body.get("response_format"), dict):
        attributes[semconv.OUTPUT_TYPE] = "text" if form.get("type") == "text" else "json"
    return attributes


def number(value: object) -> int | float | None:
    """Return a value of JSON if it is a number that OTLP can express, else None."""
    if type(value) is int and abs(value) <= MAX_INTEGER:
        return value
    return value if type(value) is float else None


def attempt_attributes(attempt: Attempt, method: str) -> Attributes:
    """Return the attributes of the span of one request to an upstream."""
    return {
        semconv.HTTP_METHOD: method,
        semconv.HTTP_STATUS: attempt.status,
        semconv.ERROR_TYPE: attempt.error,
        semconv.ERROR_CAUSE: attempt.cause,
        semconv.ERROR_TEXT: attempt.system_text,
        semconv.UPSTREAM: attempt.target.upstream.name,
        semconv.WHY: attempt.why,
        semconv.LOST: attempt.lost or None,
        **address(attempt.target.upstream.base_url),
    }


def address(base_url: str) -> Attributes:
    """Return the host and port of an upstream."""
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {semconv.SERVER_ADDRESS: parts.hostname, semconv.SERVER_PORT: port}


def call_events(facts: CallFacts) -> list[Event]:
    """Return the decisions of guards, limits, the cache and the router."""
    events = [_guard_event(stage, result) for stage, result in facts.verdicts]
    events += [_upstream_guard_event(*finding) for finding in facts.upstream_findings]
    if facts.failure is not None and facts.failure.limit is not None:
        events.append((semconv.LIMIT_EVENT, {semconv.LIMIT: facts.failure.limit}))
    if facts.cache_store is not None:
        events.append((semconv.CACHE_EVENT, {semconv.CACHE_STATUS: facts.cache}))
    for skip in few(facts.skips):
        skipped = {semconv.UPSTREAM: skip.target.title, semconv.SKIP_REASON: skip.reason}
        events.append((semconv.SKIP_EVENT, skipped))
    return events


def _guard_event(stage: Stage, result: GuardResult) -> Event:
    return semconv.GUARD_EVENT, {
        semconv.GUARD: result.guard,
        semconv.GUARD_STAGE: stage,
        semconv.GUARD_VERDICT: result.verdict,
        semconv.GUARD_SHADOW: result.shadow or None,
        semconv.ERROR_TYPE: result.error,
        semconv.GUARD_SECONDS: result.seconds,
        semconv.GUARD_BYTES: result.bytes,
        semconv.GUARD_FINDINGS: [f"{kind}={count}" for kind, count in result.findings.items()]
        or None,
    }


def _upstream_guard_event(upstream: str, finding: UpstreamFinding) -> Event:
    return semconv.GUARD_EVENT, {
        semconv.UPSTREAM: upstream,
        semconv.GUARD: finding.detector,
        semconv.GUARD_STAGE: finding.stage,
        semconv.GUARD_VERDICT: "flagged" if finding.found else "passed",
    }


def usd(cost: int | None) -> float | None:
    """Return nano-USD as USD. The result is exact up to 4 million USD."""
    return None if cost is None else cost / NANO
