"""What spans say of a call: their attributes and events; texts only as policy lets them.

What a client or an upstream writes freely, as the name of a model that has answered, is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import orjson

from proxy.attempts import Attempt
from proxy.call_facts import UNKNOWN, CallFacts
from proxy.dialects.upstream_request import parameters
from proxy.emit import semconv
from proxy.errors import UpstreamFinding
from proxy.record import CapturedText, Record
from proxy.summary import facts_of
from proxy.types import Json
from proxy.types.guard import GuardResult, Stage
from proxy.usage import NANO
from proxy.words import MAX_NAME, few, word, word_of

Value = str | bool | int | float | list[str]
Attributes = dict[str, Value]

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


def server(facts: CallFacts, method: str, route: str) -> Attributes:
    """Return the attributes of the span of a client's call."""
    saved = facts.saved
    return known(
        {
            semconv.HTTP_METHOD: method,
            semconv.HTTP_ROUTE: route,
            semconv.URL_PATH: route,
            semconv.URL_SCHEME: "http",
            semconv.HTTP_STATUS: facts.status,
            semconv.ERROR_TYPE: facts.error,
            semconv.REQUEST_ID: facts.request_id,
            semconv.DIALECT: facts.dialect or UNKNOWN,
            semconv.KEY: facts.key,
            semconv.DEPLOYMENT: facts.deployment,
            semconv.TAGS: tags_of(facts.tags) if facts.tags is not None else None,
            semconv.POLICY: facts.policy,
            semconv.RULES: list(facts.rules) or None,
            semconv.SHADOW_RULES: list(facts.shadow_rules) or None,
            semconv.CACHE_STATUS: facts.cache,
            semconv.CACHE_OTHER_WORDS: facts.other_words or None,
            semconv.OUTCOME: facts.outcome,
            semconv.ATTEMPTS: len(facts.attempts),
            semconv.OVERHEAD_MS: round(facts.overhead_s * 1000, 3),
            **(_cost(facts) if facts.attempts else {}),
            # Not under the names of usage: what adds those up would count a cached answer again.
            semconv.SAVED_TOKENS: saved.tokens.total if saved else None,
            semconv.SAVED_USD: usd(saved.cost) if saved else None,
        }
    )


def tags_of(tags: Mapping[str, str]) -> list[str]:
    """Return the tags of a call, the values of which a caller may have written."""
    return [f"{tag}={word(value, MAX_NAME)}" for tag, value in tags.items()]


def _cost(facts: CallFacts) -> dict[str, Value | None]:
    return {
        semconv.USAGE_ESTIMATED: facts.source == "partial_estimate",
        semconv.COST_SOURCE: "unknown" if facts.cost is None else "table",
        semconv.COST_USD: usd(facts.cost),
    }


def model_call(record: Record, last: Attempt, operation: str) -> Attributes:
    """Return the attributes of the span of a model call, which is all attempts together."""
    facts, upstream, meter = facts_of(record), last.target.upstream, last.meter
    tokens = facts.tokens
    attributes: dict[str, Value | None] = {
        semconv.OPERATION: operation,
        semconv.PROVIDER: upstream.provider or upstream.dialect,
        semconv.REQUEST_MODEL: last.target.model,
        semconv.RESPONSE_ID: meter.answer_id,
        semconv.RESPONSE_MODEL: meter.answer_model,
        semconv.RESPONSE_FINISH_REASONS: facts.finish_reasons or None,
        semconv.RESPONSE_FIRST_CHUNK: facts.ttft_s,
        semconv.ERROR_TYPE: facts.error,
        **_asked(record, last),
        **_address(last),
    }
    if record.captured is not None:
        shown = record.captured()
        attributes[semconv.INPUT_MESSAGES] = _messages(shown.asked)
        attributes[semconv.OUTPUT_MESSAGES] = _messages(shown.answered)
    if facts.source != "none":
        attributes |= {
            semconv.INPUT_TOKENS: tokens.prompt_total,
            semconv.OUTPUT_TOKENS: tokens.completion_total,
            semconv.CACHE_READ: tokens.cached_input or None,
            semconv.CACHE_WRITE: tokens.cache_write or None,
            semconv.CACHE_CREATION: tokens.cache_write or None,
            semconv.REASONING_TOKENS: tokens.reasoning or None,
        }
    return known(attributes)


def _messages(texts: Sequence[CapturedText]) -> str | None:
    """Return texts in the form of the conventions' messages, as JSON."""
    messages = [
        {"role": text.role, "parts": [{"type": "text", "content": text.text}]} for text in texts
    ]
    return orjson.dumps(messages).decode() if messages else None


def _asked(record: Record, last: Attempt) -> dict[str, Value | None]:
    """Return the parameters as the rules left them."""
    if record.call is None or record.plan is None or record.head is None:
        return {}
    changes = record.plan.model_calls[last.leg].changes_for(last.target)
    body = parameters(record.call, last.target, changes)
    attributes: dict[str, Value | None] = {
        name: body[field] for field, name in ASKED.items() if _number(body.get(field))
    }
    choices, level = body.get("n"), body.get("reasoning_effort")
    attributes[semconv.REQUEST_STREAM] = True if record.call.stream else None
    attributes[semconv.CHOICE_COUNT] = choices if _number(choices) and choices != 1 else None
    attributes[semconv.REASONING_LEVEL] = word_of(level)
    attributes[semconv.OUTPUT_TYPE] = _output_type(body)
    return attributes


def _number(value: object) -> bool:
    return type(value) in (int, float)


def _output_type(body: Json) -> str | None:
    form = body.get("response_format")
    if not isinstance(form, dict):
        return None
    return "text" if form.get("type") == "text" else "json"


def attempt(made: Attempt) -> Attributes:
    """Return the attributes of the span of one request to an upstream."""
    return known(
        {
            semconv.HTTP_METHOD: "POST",
            semconv.HTTP_STATUS: made.status,
            semconv.ERROR_TYPE: made.error,
            semconv.UPSTREAM: made.target.upstream.name,
            semconv.WHY: made.why,
            semconv.LOST: made.lost or None,
            **_address(made),
        }
    )


def _address(made: Attempt) -> dict[str, Value | None]:
    parts = urlsplit(made.target.upstream.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {semconv.SERVER_ADDRESS: parts.hostname, semconv.SERVER_PORT: port}


def decisions(facts: CallFacts) -> list[tuple[str, Attributes]]:
    """Return what was decided during the call, as names and attributes of events."""
    events = [(semconv.GUARD_EVENT, _guard(stage, result)) for stage, result in facts.verdicts]
    events += [(semconv.GUARD_EVENT, _finding(*each)) for each in facts.upstream_findings]
    if facts.failure is not None and facts.failure.limit is not None:
        events.append((semconv.LIMIT_EVENT, {semconv.LIMIT: facts.failure.limit}))
    if facts.cache_store is not None:
        events.append((semconv.CACHE_EVENT, {semconv.CACHE_STATUS: facts.cache}))
    for skip in few(facts.skips):
        names = skip.target.title
        skipped: Attributes = {semconv.UPSTREAM: names, semconv.SKIP_REASON: skip.reason}
        events.append((semconv.SKIP_EVENT, skipped))
    return events


def _finding(upstream: str, finding: UpstreamFinding) -> Attributes:
    return {
        semconv.UPSTREAM: upstream,
        semconv.GUARD: finding.detector,
        semconv.GUARD_STAGE: finding.stage,
        semconv.GUARD_VERDICT: "flagged" if finding.found else "passed",
    }


def _guard(stage: Stage, result: GuardResult) -> Attributes:
    found = [f"{kind}={count}" for kind, count in result.findings.items()]
    return known(
        {
            semconv.GUARD: result.guard,
            semconv.GUARD_STAGE: stage,
            semconv.GUARD_VERDICT: result.verdict,
            semconv.GUARD_SHADOW: result.shadow or None,
            semconv.GUARD_FINDINGS: found or None,
            semconv.GUARD_BYTES: result.bytes,
            semconv.GUARD_SECONDS: result.seconds,
            semconv.ERROR_TYPE: result.error,
        }
    )


def usd(cost: int | None) -> float | None:
    """Return nano-USD as USD, which a reader sees exactly up to four million."""
    return None if cost is None else cost / NANO


def known(attributes: Mapping[str, Value | None]) -> Attributes:
    """Return the attributes that are known."""
    return {name: value for name, value in attributes.items() if value is not None}
