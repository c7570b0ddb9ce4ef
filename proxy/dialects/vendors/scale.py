"""Scale GenAI Platform: ``x-api-key``, FastAPI's validation errors, streams without ``[DONE]``.

Sources: Scale's API reference for ``POST /v4/beta/completions``, its two Python SDKs, and the
public llm-engine server.
"""

from __future__ import annotations

import re
from typing import Any

from proxy.dialects.base import ClientDialect, Dialect, ErrorResponse, UpstreamDialect
from proxy.dialects.chat import requests
from proxy.dialects.vendors import openai
from proxy.errors import InvalidField, ProxyError, UpstreamRejected
from proxy.errors.field_problems import describe_conflict
from proxy.fields.checks import Fields
from proxy.fields.field_table import get_fields
from proxy.types import Endpoint, Json

MAX_STOPS = 4
GUIDED_FIELDS = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
_NEVER_INJECTED = frozenset(
    {"apikey", "authorization", "connection", "content-length", "cookie", "expect", "forwarded"}
    | {"host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "via", "x-api-key"}
    | {"x-openai-api-key", "x-selected-account-id"}
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NEVER_INJECTED_PREFIXES = ("proxy-", "x-forwarded-", "x-headrace-", "x-portkey-", "x-enkrypt-")

FIELDS: dict[Endpoint, Fields] = {
    "completions": get_fields("completions", "scale", "scale.completions"),
    "chat": get_fields("chat", "scale"),
}


def check_guided_fields(body: Json) -> None:
    guides = [name for name in GUIDED_FIELDS if body.get(name) is not None]
    if len(guides) > 1:
        raise InvalidField(guides[1], describe_conflict(guides[0]))


REQUEST_CHECKS = (openai.check_stream_options, check_guided_fields, openai.check_top_logprobs)


def _select_permitted_headers(extra_headers: dict[str, Any]) -> dict[str, Any]:
    """Return the extra headers, except those for authentication, framing and routing."""
    return {
        name: value
        for name, value in extra_headers.items()
        if name.lower() not in _NEVER_INJECTED
        and not name.lower().startswith(_NEVER_INJECTED_PREFIXES)
        and isinstance(value, str)
        and _HEADER_NAME.fullmatch(name)
        and value.isprintable()
    }


def to_chat(endpoint: Endpoint, body: Json) -> Json:
    """Convert a client's Scale fields to OpenAI's."""
    body = dict(body)
    bound = body.pop("max_new_tokens", None)
    if bound is not None and body.get("max_tokens") is None:
        body["max_tokens"] = bound
    if body.get("stop") is None and body.get("stop_sequences") is not None:
        body["stop"] = body.pop("stop_sequences")
    if body.get("inference_extra_headers") is not None:
        body["inference_extra_headers"] = _select_permitted_headers(body["inference_extra_headers"])
    if body.pop("return_token_log_probs", None) and not body.get("logprobs"):
        body["logprobs"] = True
    if endpoint != "completions":
        return body
    bound = body.pop("max_completion_tokens", None)
    if bound is not None and body.get("max_tokens") is None:
        body["max_tokens"] = bound
    return requests.convert_logprobs_to_count(body)


def from_chat(endpoint: Endpoint, body: Json) -> Json:
    """Send more than four stop sequences as ``stop_sequences``."""
    stop = body.get("stop")
    if isinstance(stop, list) and len(stop) > MAX_STOPS and body.get("stop_sequences") is None:
        body = {**body, "stop_sequences": stop}
        del body["stop"]
    return requests.convert_logprobs_to_chat(body) if endpoint == "completions" else body


def split_off_deployment(model: str) -> tuple[str, str | None]:
    """Split ``vendor/model/deployment`` into model and deployment."""
    vendor, _, path = model.partition("/")
    name, slash, deployment = path.rpartition("/")
    return (f"{vendor}/{name}", deployment) if slash and name and deployment else (model, None)


def make_error_response(
    error: ProxyError, request_id: str, *, ends_stream: bool = False
) -> ErrorResponse:
    """Return OpenAI's error object, with FastAPI's ``detail`` and status 422 for a field."""
    body: Json = {"detail": error.message, "error": openai.make_error_object(error)}
    is_rejected = isinstance(error, UpstreamRejected) and error.status == 422 and error.param
    if not isinstance(error, InvalidField) and not is_rejected:
        return ErrorResponse(error.status, body, openai.make_retry_headers(error))
    if isinstance(error, InvalidField):
        message = error.problem
    else:
        message = error.message.removeprefix(f"{error.param}: ")
    place = ["body", *(error.param or "").split(".")]
    body["detail"] = [{"loc": place, "msg": message, "type": "value_error"}]
    return ErrorResponse(422, body)


SCALE = Dialect(
    name="scale",
    fields=FIELDS,
    client=ClientDialect(
        routes={
            ("POST", version + path): endpoint
            for version in ("/v4/beta", "/v5")
            for (_, path), endpoint in openai.make_routes("").items()
            if endpoint in ("completions", "chat")
        },
        key_headers=("x-api-key",),
        make_error_response=make_error_response,
        rules={"completions": (*REQUEST_CHECKS, openai.check_best_of), "chat": REQUEST_CHECKS},
        ruled_fields=openai.RULED_FIELDS.union(GUIDED_FIELDS),
        to_chat=to_chat,
        aliases={"max_new_tokens": "max_tokens", "max_completion_tokens": "max_tokens"},
        filtered_fields=("inference_extra_headers",),
        split_off_deployment=split_off_deployment,
        sends_done=False,
        accepts_chat_logprobs=True,
    ),
    server=UpstreamDialect(
        prefix="/v4/beta",
        paths={"completions": "/completions", "chat": "/chat/completions"},
        key_header="x-api-key",
        from_chat=from_chat,
    ),
)
