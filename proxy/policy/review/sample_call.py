"""Builds calls that no client sent, for explanations and tests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from proxy.dialects import ENDPOINTS_WITHOUT_BODY, RequestContext, parse_request_head, read_call
from proxy.dialects.responses.schema import CONVERSATION, PREVIOUS_RESPONSE_ID, is_item_reference
from proxy.dialects.responses.stored import read_conversation_call
from proxy.errors import NotFound
from proxy.types import ABOUT_STATE, Call, Json, RequestHead
from proxy.types.passthrough import PassthroughPaths

CHAT_PATH, COMPLETIONS_PATH = "/v1/chat/completions", "/v1/completions"
EMBEDDINGS_PATH, MESSAGES_PATH, RESPONSES_PATH = "/v1/embeddings", "/v1/messages", "/v1/responses"
MESSAGES_FIELDS = frozenset({"anthropic_version", "stop_sequences", "system", "thinking"})
EMBEDDINGS_FIELDS = frozenset({"dimensions", "encoding_format"})
NEEDS_STATE_MESSAGE = (
    "Calls that refer to stored responses can only be explained by the proxy that served them: "
    "GET /explain/REQUEST_ID on its admin port."
)


def guess_request_path(body: Json) -> str:
    """Return the path for which a body is most likely meant, by its fields."""
    if "prompt" in body:
        return COMPLETIONS_PATH
    if "messages" in body or "input" not in body:
        tools = body.get("tools")
        tool = tools[0] if isinstance(tools, list) and tools else None
        is_messages = isinstance(tool, dict) and "input_schema" in tool
        return MESSAGES_PATH if is_messages or not MESSAGES_FIELDS.isdisjoint(body) else CHAT_PATH
    value = body["input"]
    is_texts = isinstance(value, list) and not any(isinstance(item, dict) for item in value)
    is_embeddings = is_texts or not EMBEDDINGS_FIELDS.isdisjoint(body)
    return EMBEDDINGS_PATH if is_embeddings else RESPONSES_PATH


def build_sample_call(
    body: Json,
    headers: Mapping[str, str],
    received_at: datetime,
    path: str | None = None,
    *,
    method: str = "POST",
    passthrough: PassthroughPaths | None = None,
) -> Call:
    """Return the call of a request without a credential.

    The default ``path`` is ``guess_request_path(body)``. Raise ``RequestError`` if the request
    would be rejected before any policy decides it.
    """
    headers = {name.lower(): value for name, value in headers.items()}
    context = RequestContext(
        "supposed", "supposed", received_at=received_at, get_passthrough_paths=lambda: passthrough
    )
    return read_sample_call(
        parse_request_head(method, path or guess_request_path(body), headers, context), body
    )


def read_sample_call(head: RequestHead, body: Json, caller: str = "") -> Call:
    """Return the call of a head and a body. Raise ``NotFound`` if it refers to stored state."""
    if head.passthrough is not None:
        from proxy.dialects.passthrough.request import read_passthrough_call  # noqa: PLC0415  # few calls need it

        body = {} if head.method == "GET" else body
        return read_passthrough_call(head, body, len(body), caller)
    if head.endpoint in ABOUT_STATE:
        if head.endpoint != "conversations" or head.get_url_parameter("id") is not None:
            raise NotFound(NEEDS_STATE_MESSAGE)
        call = read_conversation_call(head, body, caller=caller)
        _reject_stored_state(call)
        return call
    if head.endpoint in ENDPOINTS_WITHOUT_BODY:
        return Call(head, {}, scheduling_key=caller)
    call = read_call(head, body, caller=caller)
    if head.endpoint == "responses":
        _reject_stored_state(call)
    return call


def _reject_stored_state(call: Call) -> None:
    """Raise ``NotFound`` if a call refers to stored responses, which a preview does not have."""
    for name in (PREVIOUS_RESPONSE_ID, CONVERSATION):
        if call.body.get(name) is not None:
            raise NotFound(NEEDS_STATE_MESSAGE, param=name)
    items = call.body.get("input")
    if isinstance(items, list) and any(map(is_item_reference, items)):
        raise NotFound(NEEDS_STATE_MESSAGE)


def make_chat_body(deployment: str) -> Json:
    """Return the shortest chat request for a deployment."""
    return {"model": deployment, "messages": [{"role": "user", "content": "Hello"}]}
