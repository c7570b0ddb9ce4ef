"""What spans say of a record: their attributes and events; texts only as policy lets them.

What a client or an upstream writes freely, as the name of a model that has answered, is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import orjson

from proxy.attempts import Attempt
from proxy.dialects.upstream_request import parameters
from proxy.emit import semconv, summary
from proxy.errors import LimitExceeded, LimitStoreUnavailable, UpstreamFinding
from proxy.record import CapturedText, Record
from proxy.types import Json, Plan
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


def server(record: Record, method: str, route: str) -> Attributes:
    """Return the attributes of the span of a client's call."""
    plan, cost, saved = record.plan, record.billing.cost, record.saved
    return known(
        {
            semconv.HTTP_METHOD: method,
            semconv.HTTP_ROUTE: route,
            semconv.URL_PATH: route,
            semconv.URL_SCHEME: "http",
            semconv.HTTP_STATUS: record.status,
            semconv.ERROR_TYPE: record.error.code if record.error else None,
            semconv.REQUEST_ID: record.request_id,
            semconv.DIALECT: summary.dialect(record),
            semconv.KEY: record.key,
            semconv.DEPLOYMENT: plan.deployment if plan else None,
            semconv.TAGS: tags_of(plan) if plan else None,
            semconv.POLICY: record.revision,
            semconv.RULES: (list(plan.rules) or None) if plan else None,
            semconv.WOULD: (list(plan.would) or None) if plan else None,
            semconv.CACHE_STATUS: record.cache,
            semconv.CACHE_SCORE: record.likeness,
            semconv.OUTCOME: record.outcome,
            semconv.ATTEMPTS: len(record.attempts),
            semconv.OVERHEAD_MS: round(summary.overhead(record) * 1000, 3),
            semconv.USAGE_ESTIMATED: _estimated(record),
            semconv.COST_SOURCE: _cost_source(record),
            semconv.COST_USD: usd(cost) if record.attempts else None,
            # Not under the names of usage: what adds those up would count a cached answer again.
            semconv.SAVED_TOKENS: saved.tokens.total if saved else None,
            semconv.SAVED_USD: usd(saved.cost) if saved else None,
        }
    )


def tags_of(plan: Plan) -> list[str]:
    """Return the tags of a call, the values of which a caller may have written."""
    return [f"{tag}={word(value, MAX_NAME)}" for tag, value in plan.tags.items()]


def _estimated(record: Record) -> bool | None:
    return record.billing.source == "partial_estimate" if record.attempts else None


def _cost_source(record: Record) -> str | None:
    if not record.attempts:
        return None
    return "unknown" if record.billing.cost is None else "table"


def model_call(record: Record, last: Attempt, operation: str) -> Attributes:
    """Return the attributes of the span of a model call, which is all attempts together."""
    upstream, tokens, meter = last.target.upstream, record.billing.tokens, last.meter
    attributes: dict[str, Value | None] = {
        semconv.OPERATION: operation,
        semconv.PROVIDER: upstream.provider or upstream.dialect,
        semconv.REQUEST_MODEL: last.target.model,
        semconv.RESPONSE_ID: meter.answer_id,
        semconv.RESPONSE_MODEL: meter.answer_model,
        semconv.RESPONSE_FINISH_REASONS: summary.finish_reasons(record) or None,
        semconv.RESPONSE_FIRST_CHUNK: summary.first_token(record),
        semconv.ERROR_TYPE: record.error.code if record.error else None,
        **_asked(record, last),
        **_address(last),
    }
    if record.captured is not None:
        shown = record.captured()
        attributes[semconv.INPUT_MESSAGES] = _messages(shown.asked)
        attributes[semconv.OUTPUT_MESSAGES] = _messages(shown.answered)
    if record.billing.source != "none":
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


def decisions(record: Record) -> list[tuple[str, Attributes]]:
    """Return what was decided during the call, as names and attributes of events."""
    verdicts = summary.verdicts(record)
    events = [(semconv.GUARD_EVENT, _guard(stage, result)) for stage, result in verdicts]
    events += few(
        (semconv.GUARD_EVENT, _finding(attempt, each))
        for attempt in record.attempts
        for each in attempt.findings
    )
    if isinstance(record.error, LimitExceeded | LimitStoreUnavailable):
        events.append((semconv.LIMIT_EVENT, {semconv.LIMIT: record.error.limit}))
    if record.plan is not None and record.plan.cache is not None:
        events.append((semconv.CACHE_EVENT, {semconv.CACHE_STATUS: record.cache}))
    for skip in few(record.skips):
        names = skip.target.title
        skipped: Attributes = {semconv.UPSTREAM: names, semconv.SKIP_REASON: skip.reason}
        events.append((semconv.SKIP_EVENT, skipped))
    return events


def _finding(attempt: Attempt, finding: UpstreamFinding) -> Attributes:
    return {
        semconv.UPSTREAM: attempt.target.upstream.name,
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
