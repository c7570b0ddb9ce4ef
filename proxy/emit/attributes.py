"""What spans say of a call: their attributes and events; texts only as policy lets them.

What many calls have in common stands apart from what one says alone, so that it is written once.
What is None is unknown, and not said. What a client or an upstream writes freely, as the name of a
model that has answered, is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from proxy.attempts import Attempt
from proxy.call_facts import UNKNOWN, CallFacts
from proxy.dialects.upstream_request import parameters
from proxy.emit import semconv
from proxy.emit.otlp import Attributes, Value
from proxy.errors import UpstreamFinding
from proxy.record import CapturedText, Record
from proxy.types.guard import GuardResult
from proxy.usage import NANO, UNCOUNTED
from proxy.words import MAX_NAME, few, word, word_of

ASKED: Mapping[str, str] = {
    "max_tokens": semconv.MAX_TOKENS,
    "max_completion_tokens": semconv.MAX_TOKENS,
    "temperature": semconv.TEMPERATURE,
    "top_p": semconv.TOP_P,
    "top_k": semconv.TOP_K,
    "frequency_penalty": semconv.FREQUENCY_PENALTY,
    "presence_penalty": semconv.PRESENCE_PENALTY,
    "seed": semconv.SEED,
}
"""Parameters of a request that are numbers, by what spans call them."""
NUMBERS = (int, float)


Shared = tuple[tuple[str, Any], ...]
"""Attributes that many calls have in common, hashable: what is written of them is kept by them."""


def call_shared(facts: CallFacts) -> Shared:
    """Return what the span of a client's call says like those of others.

    Tags are names and values. What is not known yet, as a cost before an upstream was asked, is
    None.
    """
    asked = bool(facts.attempts)
    cost_source = "table" if facts.cost is not None else "unknown"
    route = facts.route or UNKNOWN
    shared = {
        semconv.HTTP_METHOD: facts.method,
        semconv.HTTP_ROUTE: route,
        semconv.URL_PATH: route,
        semconv.URL_SCHEME: "http",
        semconv.HTTP_STATUS: facts.status,
        semconv.ERROR_TYPE: facts.failure.code if facts.failure is not None else None,
        semconv.DIALECT: facts.dialect or UNKNOWN,
        semconv.KEY: facts.key,
        semconv.DEPLOYMENT: facts.deployment,
        semconv.TAGS: tuple(facts.tags.items()) if facts.tags is not None else None,
        semconv.POLICY: facts.policy,
        semconv.RULES: tuple(facts.rules) or None,
        semconv.SHADOW_RULES: tuple(facts.shadow_rules) or None,
        semconv.CACHE_STATUS: facts.cache,
        semconv.CACHE_SEMANTIC_MATCH: facts.semantic_match or None,
        semconv.OUTCOME: facts.outcome,
        semconv.ATTEMPTS: len(facts.attempts),
        semconv.USAGE_ESTIMATED: facts.source == "partial_estimate" if asked else None,
        semconv.COST_SOURCE: cost_source if asked else None,
    }
    return tuple(shared.items())


def call_own(facts: CallFacts) -> Attributes:
    """Return what the span of a client's call says of this one alone."""
    saved = facts.saved
    return {
        semconv.REQUEST_ID: facts.request_id,
        semconv.PROPERTIES: [f"{name}={value}" for name, value in facts.properties] or None,
        semconv.OVERHEAD_MS: round(facts.overhead_s * 1000, 3),
        semconv.COST_USD: usd(facts.cost) if facts.source != "none" else None,
        # Not under the names of usage: what adds those up would count a cached answer again.
        semconv.SAVED_TOKENS: saved.tokens.total if saved else None,
        semconv.SAVED_USD: usd(saved.cost) if saved else None,
    }


def tags_of(tags: Iterable[tuple[str, str]]) -> list[str]:
    """Return the tags of a call, the values of which a caller may have written."""
    return [f"{tag}={word(value, MAX_NAME)}" for tag, value in tags]


def model_shared(
    operation: str, provider: str, name: str, base_url: str, finish_reasons: tuple[str, ...]
) -> Attributes:
    """Return what the span of a model call says of the model that was asked, and of why it came to
    an end."""
    return {
        semconv.OPERATION: operation,
        semconv.PROVIDER: provider,
        semconv.REQUEST_MODEL: name,
        semconv.RESPONSE_FINISH_REASONS: finish_reasons or None,
        **address(base_url),
    }


def model_own(record: Record, facts: CallFacts, last: Attempt) -> Attributes:
    """Return what the span of a model call, which is all attempts together, says of this one."""
    meter, tokens = last.meter, facts.tokens
    attributes: dict[str, Value | None] = {
        semconv.RESPONSE_ID: meter.answer_id,
        semconv.RESPONSE_MODEL: meter.answer_model,
        semconv.RESPONSE_FIRST_CHUNK: facts.ttft_s,
        semconv.ERROR_TYPE: facts.failure.code if facts.failure is not None else None,
        **_asked(record, last),
    }
    if facts.source not in UNCOUNTED:
        attributes |= {
            semconv.INPUT_TOKENS: tokens.prompt_total,
            semconv.OUTPUT_TOKENS: tokens.completion_total,
            semconv.CACHE_READ: tokens.cached_input or None,
            semconv.CACHE_WRITE: tokens.cache_write or None,
            semconv.CACHE_CREATION: tokens.cache_write or None,
            semconv.REASONING_TOKENS: tokens.reasoning or None,
        }
    return attributes


def captured_texts(record: Record) -> Attributes:
    """Return the captured texts of a call for the span of its model call."""
    if record.captured is None:
        return {}
    shown = record.captured()
    return {
        semconv.INPUT_MESSAGES: _messages(shown.asked),
        semconv.OUTPUT_MESSAGES: _messages(shown.answered),
    }


def _messages(texts: Sequence[CapturedText]) -> str | None:
    """Return texts in the form of the conventions' messages, as JSON."""
    messages = [
        {"role": text.role, "parts": [{"type": "text", "content": text.text}]} for text in texts
    ]
    return orjson.dumps(messages).decode() if messages else None


def _asked(record: Record, last: Attempt) -> Attributes:
    """Return the parameters as the rules left them."""
    if record.call is None or record.plan is None or record.head is None:
        return {}
    changes = record.plan.model_calls[last.leg].changes_for(last.target)
    body = parameters(record.call, last.target, changes)
    attributes: dict[str, Value | None] = {
        name: body[field]
        for field, name in ASKED.items()
        if field in body and type(body[field]) in NUMBERS
    }
    if record.call.stream:
        attributes[semconv.REQUEST_STREAM] = True
    if type(choices := body.get("n")) in NUMBERS and choices != 1:
        attributes[semconv.CHOICE_COUNT] = choices
    if "reasoning_effort" in body:
        attributes[semconv.REASONING_LEVEL] = word_of(body["reasoning_effort"])
    if isinstance(form := body.get("response_format"), dict):
        attributes[semconv.OUTPUT_TYPE] = "text" if form.get("type") == "text" else "json"
    return attributes


def attempt_shared(attempt: Attempt, method: str) -> Shared:
    """Return what the span of one request to an upstream says, but for the upstream's address."""
    shared = {
        semconv.HTTP_METHOD: method,
        semconv.HTTP_STATUS: attempt.status,
        semconv.ERROR_TYPE: attempt.error,
        semconv.ERROR_CAUSE: attempt.cause,
        semconv.UPSTREAM: attempt.target.upstream.name,
        semconv.WHY: attempt.why,
        semconv.LOST: attempt.lost or None,
    }
    return tuple(shared.items())


def address(base_url: str) -> Attributes:
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {semconv.SERVER_ADDRESS: parts.hostname, semconv.SERVER_PORT: port}


def guard_shared(
    name: str, stage: str, verdict: str, shadow: bool, error: str | None
) -> Attributes:
    """Return what the event of a guard says like those of other calls."""
    return {
        semconv.GUARD: name,
        semconv.GUARD_STAGE: stage,
        semconv.GUARD_VERDICT: verdict,
        semconv.GUARD_SHADOW: shadow or None,
        semconv.ERROR_TYPE: error,
    }


def findings(result: GuardResult) -> Attributes:
    """Return what a guard has found, kind by kind."""
    counts = [f"{kind}={count}" for kind, count in result.findings.items()]
    return {semconv.GUARD_FINDINGS: counts}


def decisions(facts: CallFacts) -> list[tuple[str, Attributes]]:
    """Return what else was decided during the call, as names and attributes of events."""
    events = [(semconv.GUARD_EVENT, _finding(*each)) for each in facts.upstream_findings]
    if facts.failure is not None and facts.failure.limit is not None:
        events.append((semconv.LIMIT_EVENT, {semconv.LIMIT: facts.failure.limit}))
    if facts.cache_store is not None:
        events.append((semconv.CACHE_EVENT, {semconv.CACHE_STATUS: facts.cache}))
    for skip in few(facts.skips):
        skipped = {semconv.UPSTREAM: skip.target.title, semconv.SKIP_REASON: skip.reason}
        events.append((semconv.SKIP_EVENT, skipped))
    return events


def _finding(upstream: str, finding: UpstreamFinding) -> Attributes:
    return {
        semconv.UPSTREAM: upstream,
        semconv.GUARD: finding.detector,
        semconv.GUARD_STAGE: finding.stage,
        semconv.GUARD_VERDICT: "flagged" if finding.found else "passed",
    }


def usd(cost: int | None) -> float | None:
    """Return nano-USD as USD, which a reader sees exactly up to four million."""
    return None if cost is None else cost / NANO
