"""Attributes and events of spans, by OpenTelemetry's conventions for GenAI and HTTP.

The GenAI conventions are in development and their Python constants are deprecated, so names are
literals here. Values that a client or an upstream writes freely are bounded. An attribute whose
value is None is unknown and is not exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

import orjson

from proxy.call.attempts import Attempt
from proxy.call.facts import UNKNOWN, CallSummary
from proxy.call.record import CapturedText, Record
from proxy.call.summary import summarize
from proxy.dialects.requests.upstream_request import apply_overrides
from proxy.errors.words import MAX_ID, MAX_NAME, MAX_WORD, first_items, read_text, shorten
from proxy.money.usage import NANO_PER_USD, UNCOUNTED_SOURCES

Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value | None]
Event = tuple[str, Attributes]
MAX_INTEGER = 2**63 - 1  # OTLP has signed integers of 64 bits
INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"
OUTCOME_ATTRIBUTE = "headrace.outcome"
OTHER_OPERATIONS = ("conversations", "count_tokens", "passthrough", "stored")
"""Endpoints whose operation is not in the conventions."""
OPERATION_BY_ENDPOINT: Mapping[str | None, str] = {
    "completions": "text_completion",
    "embeddings": "embeddings",
    **{name: name for name in OTHER_OPERATIONS},
}
"""Operations of the conventions by endpoint; all others are ``chat``."""
PARAMETER_ATTRIBUTES: Mapping[str, str] = {
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}
"""Span attributes of request parameters that are numbers, by the field of the request."""


def get_server_span_attributes(summary: CallSummary) -> Attributes:
    """Return the attributes of the server span of a call."""
    has_attempts, is_estimated = bool(summary.attempts), summary.usage_source == "partial_estimate"
    cost_source = "table" if summary.cost is not None else "unknown"
    route, saved = summary.route or UNKNOWN, summary.saved
    return {
        "http.request.method": summary.method,
        "http.route": route,
        "url.path": route,
        "url.scheme": "http",
        "http.response.status_code": summary.status,
        "error.type": summary.error,
        "headrace.dialect": summary.dialect or UNKNOWN,
        "headrace.key": summary.key,
        "headrace.deployment": summary.deployment,
        "headrace.deployment.tags": None
        if summary.tags is None
        else format_tags(summary.tags.items()),
        "headrace.policy.revision": summary.policy,
        "headrace.policy.rules": tuple(summary.rules) or None,
        "headrace.policy.shadow_rules": tuple(summary.shadow_rules) or None,
        "headrace.cache.status": summary.cache,
        "headrace.cache.semantic_match": summary.semantic_match or None,
        OUTCOME_ATTRIBUTE: summary.outcome,
        "headrace.attempt.count": len(summary.attempts),
        "headrace.usage.estimated": is_estimated if has_attempts else None,
        "headrace.cost.source": cost_source if has_attempts else None,
        "headrace.request.id": summary.request_id,
        "headrace.properties": [f"{name}={value}" for name, value in summary.properties] or None,
        "headrace.overhead_ms": round(summary.overhead_s * 1000, 3),
        "headrace.cost.usd": to_usd(summary.cost) if summary.usage_source != "none" else None,
        # Not `gen_ai.usage.*`: a sum of that would count a cached response twice.
        "headrace.saved.tokens": saved.tokens.total if saved else None,
        "headrace.saved.usd": to_usd(saved.cost) if saved else None,
    }


def format_tags(tags: Iterable[tuple[str, str]]) -> list[str]:
    """Return tags as ``name=value``. A caller may have written the values."""
    return [f"{tag}={shorten(value, MAX_NAME)}" for tag, value in tags]


def get_model_metric_attributes(record: Record, summary: CallSummary) -> dict[str, Value | None]:
    """Return the metric attributes of a model call, which its span has too."""
    target = record.attempts[-1].target
    return {
        "gen_ai.operation.name": OPERATION_BY_ENDPOINT.get(summary.endpoint, "chat"),
        "gen_ai.provider.name": target.upstream.provider or target.upstream.dialect,
        "gen_ai.request.model": target.model,
        **get_server_address(target.upstream.base_url),
    }


def get_model_call_attributes(record: Record, summary: CallSummary) -> Attributes:
    """Return the attributes of the span of a model call, which covers all its attempts."""
    last_attempt, tokens = record.attempts[-1], summary.tokens
    attributes = {
        **get_model_metric_attributes(record, summary),
        "gen_ai.response.finish_reasons": tuple(summary.finish_reasons) or None,
        "gen_ai.response.id": last_attempt.meter.response_id,
        "gen_ai.response.model": last_attempt.meter.response_model,
        "gen_ai.response.time_to_first_chunk": get_upstream_first_chunk_seconds(record, summary),
        "error.type": summary.error,
        **_get_request_parameters(record, last_attempt),
    }
    if summary.usage_source not in UNCOUNTED_SOURCES:
        attributes |= {
            "gen_ai.usage.input_tokens": tokens.prompt_total,  # includes cached ones
            "gen_ai.usage.output_tokens": tokens.completion_total,  # includes reasoning
            "gen_ai.usage.cache_read.input_tokens": tokens.cached_input or None,
            "gen_ai.usage.cache_write.input_tokens": tokens.cache_write or None,
            # Older name of the attribute.
            "gen_ai.usage.cache_creation.input_tokens": tokens.cache_write or None,
            "gen_ai.usage.reasoning.output_tokens": tokens.reasoning or None,
            "gen_ai.usage.audio.input_tokens": tokens.audio_input or None,
            "gen_ai.usage.audio.output_tokens": tokens.audio_output or None,
            "gen_ai.usage.image.input_tokens": tokens.image_input or None,
            "gen_ai.usage.image.output_tokens": tokens.image_output or None,
        }
    return attributes


def get_upstream_first_chunk_seconds(record: Record, summary: CallSummary) -> float | None:
    """Return the seconds from the first request to an upstream to the first chunk of a stream."""
    if summary.ttft_s is None or not summary.is_stream:
        return None
    return summary.ttft_s - (record.attempts[0].started - record.started)


def get_captured_texts(record: Record) -> Attributes:
    """Return the captured texts of a call, for the span of its model call."""
    if record.captured is None:
        return {}
    texts = record.captured()
    return {
        INPUT_MESSAGES: _serialize_messages(texts.prompt),
        OUTPUT_MESSAGES: _serialize_messages(texts.response),
    }


def _serialize_messages(texts: Sequence[CapturedText]) -> str | None:
    """Return texts as JSON, in the form of the conventions' messages."""
    messages = [{"role": t.role, "parts": [{"type": "text", "content": t.text}]} for t in texts]
    return orjson.dumps(messages).decode() if messages else None


def _get_request_parameters(record: Record, last_attempt: Attempt) -> Attributes:
    """Return the parameters of the request, after the rules have changed them."""
    if record.call is None or record.plan is None or record.head is None:
        return {}
    changes = record.plan.model_calls[last_attempt.model_call].get_overrides(last_attempt.target)
    body = apply_overrides(record.call, last_attempt.target, changes)
    attributes: dict[str, Value | None] = {
        name: value
        for field, name in PARAMETER_ATTRIBUTES.items()
        if (value := to_number(body.get(field))) is not None
    }
    if record.call.stream:
        attributes["gen_ai.request.stream"] = True
    stop = body.get("stop")
    if isinstance(stop, str | list):
        texts = [stop] if isinstance(stop, str) else first_items(stop)
        attributes["gen_ai.request.stop_sequences"] = [
            text[:MAX_WORD] for text in texts if isinstance(text, str)
        ] or None
    pin = record.call.state_ref
    if pin is not None and pin.id and not pin.is_conversation and record.head.endpoint != "stored":
        attributes["gen_ai.request.previous_response.id"] = read_text(pin.client_id, MAX_ID)
    if (choices := to_number(body.get("n"))) != 1:
        attributes["gen_ai.request.choice.count"] = choices
    if "reasoning_effort" in body:
        attributes["gen_ai.request.reasoning.level"] = read_text(body["reasoning_effort"])
    if isinstance(form := body.get("response_format"), dict):
        attributes["gen_ai.output.type"] = "text" if form.get("type") == "text" else "json"
    return attributes


def to_number(value: object) -> int | float | None:
    """Return a JSON value if it is a number that OTLP can express, else None."""
    if type(value) is int and abs(value) <= MAX_INTEGER:
        return value
    return value if type(value) is float else None


def get_attempt_attributes(attempt: Attempt, method: str) -> Attributes:
    """Return the attributes of the span of one request to an upstream."""
    return {
        "http.request.method": method,
        "http.response.status_code": attempt.status,
        "error.type": attempt.error,
        "headrace.upstream.error_cause": attempt.cause,
        "headrace.upstream.error_text": attempt.system_text,
        "headrace.upstream": attempt.target.upstream.name,
        "headrace.attempt.why": attempt.reason,
        "headrace.attempt.lost": attempt.lost_hedge or None,
        **get_server_address(attempt.target.upstream.base_url),
    }


def get_server_address(base_url: str) -> Attributes:
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"server.address": parts.hostname, "server.port": port}


def list_call_events(summary: CallSummary) -> list[Event]:
    """Return the decisions of guards, limits, cache and router as span events."""
    events: list[Event] = []
    for stage, result in summary.verdicts:
        findings = [f"{kind}={count}" for kind, count in result.findings.items()]
        verdict: Attributes = {
            "headrace.guard.name": result.guard,
            "headrace.guard.stage": stage,
            "headrace.guard.verdict": result.verdict,
            "headrace.guard.shadow": result.shadow or None,
            "error.type": result.error,
            "headrace.guard.duration": result.seconds,
            "headrace.guard.bytes": result.bytes,
            "headrace.guard.findings": findings or None,
        }
        events.append(("headrace.guard", verdict))
    for upstream, finding in summary.upstream_findings:
        verdict = {
            "headrace.upstream": upstream,
            "headrace.guard.name": finding.detector,
            "headrace.guard.stage": finding.stage,
            "headrace.guard.verdict": "flagged" if finding.found else "passed",
        }
        events.append(("headrace.guard", verdict))
    if summary.failure is not None and summary.failure.limit is not None:
        events.append(("headrace.limit", {"headrace.limit.name": summary.failure.limit}))
    if summary.cache_store is not None:
        events.append(("headrace.cache", {"headrace.cache.status": summary.cache}))
    for skip in first_items(summary.skips):
        name, target = "headrace.upstream.skipped", skip.target.id
        events.append((name, {"headrace.upstream": target, f"{name}.reason": skip.reason}))
    return events


def to_usd(cost: int | None) -> float | None:
    """Return nano-USD as USD. Up to 4 million USD, rounding to nano-USD gives ``cost`` again."""
    return None if cost is None else cost / NANO_PER_USD


SpanLevel = Literal["server", "model", "attempt"]
Profile = Callable[[SpanLevel, Record, Attributes], Attributes]
"""Returns the attributes that a profile adds to a span, given the span's other attributes."""


def make_openinference_attributes(
    span_level: SpanLevel, record: Record, attributes: Attributes
) -> Attributes:
    """Return OpenInference's attributes, which Phoenix reads."""
    if span_level != "model":
        return {"openinference.span.kind": "CHAIN"}
    summary = summarize(record)
    tokens, model = summary.tokens, attributes.get("gen_ai.response.model")
    added: dict[str, Value | None] = {
        "openinference.span.kind": "EMBEDDING" if summary.endpoint == "embeddings" else "LLM",
        "llm.model_name": model or attributes["gen_ai.request.model"],
        "llm.provider": attributes["gen_ai.provider.name"],
        "llm.cost.total": to_usd(summary.cost),
        "input.value": attributes.get(INPUT_MESSAGES),
        "output.value": attributes.get(OUTPUT_MESSAGES),
        **_make_user_and_session(record),
    }
    if summary.usage_source not in UNCOUNTED_SOURCES:
        added |= {
            "llm.token_count.prompt": tokens.prompt_total,
            "llm.token_count.completion": tokens.completion_total,
            "llm.token_count.total": tokens.total,
            "llm.token_count.prompt_details.cache_read": tokens.cached_input or None,
            "llm.token_count.prompt_details.cache_write": tokens.cache_write or None,
            "llm.token_count.completion_details.reasoning": tokens.reasoning or None,
        }
    return added


def make_langfuse_attributes(
    span_level: SpanLevel, record: Record, attributes: Attributes
) -> Attributes:
    """Return Langfuse's attributes, which it reads from every span."""
    summary = summarize(record)
    added: dict[str, Value | None] = {**_make_user_and_session(record)}
    if span_level == "model":
        added["gen_ai.usage.cost"] = to_usd(summary.cost)
    if summary.deployment is not None and summary.tags is not None:
        prefix = "langfuse.trace.metadata."
        added[prefix + "deployment"] = summary.deployment
        added["langfuse.trace.tags"] = format_tags(summary.tags.items()) or None
        added |= {prefix + name: shorten(value, MAX_NAME) for name, value in summary.tags.items()}
    return added


ATTRIBUTE_PROFILES: Mapping[str, Profile] = {
    "openinference": make_openinference_attributes,
    "langfuse": make_langfuse_attributes,
}
"""Attributes for backends that do not read the conventions, by name in the settings."""


def _make_user_and_session(record: Record) -> Attributes:
    """Return the end user and the session of a call, which only profiles add to spans."""
    if record.call is None:
        return {}
    head, body = record.call.head, record.call.body
    session = read_text(head.headers.get("x-headrace-session") or head.session, MAX_ID)
    user = read_text(head.user or body.get("user"), MAX_ID)
    return {"user.id": user, "session.id": session, "gen_ai.conversation.id": session}
