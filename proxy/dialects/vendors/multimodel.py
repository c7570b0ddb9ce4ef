"""The multi-model completion: one prompt, one model or several, and one choice per model.

Source: the API document of ``POST /v1/completion``, and its public Python and Go clients, which
accept only status 200, and send a list of one model as a string.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from proxy.dialects.base import ClientDialect, Dialect, UpstreamDialect
from proxy.dialects.vendors import openai
from proxy.dialects.wire.strict_json import as_int, as_object, as_objects, get_int
from proxy.errors import InvalidField
from proxy.fields.field_table import get_fields
from proxy.types import Call, Endpoint, Json

_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


def check_distinct_models(body: Json) -> None:
    models = body["model"]
    if isinstance(models, list) and len(set(models)) < len(models):
        raise InvalidField("model", "must not contain the same model twice")


def refuse_streams_and_choices(body: Json) -> None:
    """Refuse streams and several choices per model, which this API does not have."""
    if body.get("stream") not in (None, False):
        raise InvalidField("stream", "streaming is not supported by this API")
    if body.get("n") not in (None, 1):
        raise InvalidField("n", "must be 1, because this API returns one choice per model")


def to_chat(endpoint: Endpoint, body: Json) -> Json:
    if body.get("max_new_tokens") is not None and body.get("max_tokens") is None:
        body = body | {"max_tokens": body["max_new_tokens"]}
    return {k: v for k, v in body.items() if k not in ("max_new_tokens", "stream", "n")}


def from_chat(endpoint: Endpoint, body: Json) -> Json:
    """Remove fields of streams. Send stop sequences as a list, and a single prompt as a string."""
    changed: Json = {}
    if isinstance(body.get("stop"), str):
        changed["stop"] = [body["stop"]]
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        changed["prompt"] = prompt[0]
    absent = ("stream", "stream_options")
    return {k: v for k, v in body.items() if k not in absent} | changed


def _make_choice(model: str, document: Json) -> Json:
    [choice, *_] = as_objects(document.get("choices")) or [{}]
    native = as_object(document.get("usage"))
    usage: Json = {name: get_int(native, name) for name in _COUNTS}
    reported_ms, measured_ms = (get_int(doc, "prediction_time_ms") for doc in (native, document))
    usage["prediction_time_ms"] = (measured_ms or 0) if reported_ms is None else reported_ms
    result: Json = {
        "text": choice.get("text") or "",
        "created": document.get("created") or int(datetime.now(UTC).timestamp()),
        "model": model,
        "finish_reason": choice.get("finish_reason"),
        "usage": usage,
    }
    return result | ({"error": document["error"]} if "error" in document else {})


def compose_response(call: Call, documents: Mapping[int, Json]) -> Json:
    """Return the response: one choice per model in the requested order, and the sum of usage.

    ``prediction_time_ms`` is the maximum, because models run concurrently.
    """
    models = enumerate(call.requested_models)
    choices = [_make_choice(model, documents[index]) for index, model in models]
    usages = [choice["usage"] for choice in choices if "error" not in choice]
    totals: Json = {}
    for name in _COUNTS:
        counts = [usage[name] for usage in usages]
        totals[name] = None if None in counts else sum(counts)
    times = [choice["usage"]["prediction_time_ms"] for choice in choices]
    return {
        "id": str(uuid.uuid4()),
        "object": "text_completion",
        "created": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "choices": choices,
        "usage": {**totals, "prediction_time_ms": max(times)},
    }


FINISH_REASONS = {"stop token reached": "stop", "timeout": "length"}
"""Finish reasons of this API, and OpenAI's."""


def convert_to_legacy_completion(data: Json) -> Json:
    """Return a response as a legacy completion."""
    choices: list[Json] = []
    upstream_choices = as_objects(data.get("choices"))
    for choice in upstream_choices:
        text, reason = choice.get("text") or "", choice.get("finish_reason")
        members = {"text": text, "logprobs": None, "finish_reason": reason}
        choices.append({"index": len(choices), **members})
    usage, first = data.get("usage"), next(iter(upstream_choices), {})
    result: Json = {"id": data.get("id"), "object": "text_completion"}
    result |= {"created": as_int(first.get("created")), "model": first.get("model")}
    return {**result, "choices": choices, **({} if usage is None else {"usage": usage})}


MULTIMODEL = Dialect(
    name="multimodel",
    fields={"completions": get_fields("multimodel")},
    client=ClientDialect(
        routes={("POST", "/v1/completion"): "completions"},
        make_error_response=openai.make_error_response,
        rules={"completions": (refuse_streams_and_choices, check_distinct_models)},
        ruled_fields=frozenset({"model"}),
        to_chat=to_chat,
        aliases={"max_new_tokens": "max_tokens"},
        merge_documents=compose_response,
        reports_latency=True,
    ),
    server=UpstreamDialect(
        prefix="/v1",
        paths={"completions": "/completion"},
        from_chat=from_chat,
        to_chat=convert_to_legacy_completion,
        finish_reasons=FINISH_REASONS,
        default_values={"context_length_exceeded_behavior": "error"},
        can_stream=False,
        has_usage_option=False,
    ),
)
