"""A call that nobody has made, for asking what would become of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from proxy.dialects import BODILESS, Received, parse_head, read_call
from proxy.dialects.responses.words import CONVERSATION, PREVIOUS
from proxy.errors import NotFound
from proxy.types import ABOUT_STATE, Call, Json, RequestHead

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedPaths

CHAT, LEGACY = "/v1/chat/completions", "/v1/completions"
EMBEDDINGS, MESSAGES, RESPONSES = "/v1/embeddings", "/v1/messages", "/v1/responses"
OF_MESSAGES = frozenset({"anthropic_version", "stop_sequences", "system", "thinking"})
OF_EMBEDDINGS = frozenset({"dimensions", "encoding_format"})
SEALED = (
    "Calls that refer to stored responses can only be explained by the proxy that served them: "
    "GET /explain/REQUEST_ID on its admin port."
)


def path_of(body: Json) -> str:
    """Return the path that a body is most likely for, by what it alone has."""
    if "prompt" in body:
        return LEGACY
    if "messages" in body or "input" not in body:
        tools = body.get("tools")
        first = tools[0] if isinstance(tools, list) and tools else None
        of_messages = isinstance(first, dict) and "input_schema" in first
        return MESSAGES if of_messages or not OF_MESSAGES.isdisjoint(body) else CHAT
    given = body["input"]
    is_list = isinstance(given, list) and not any(isinstance(item, dict) for item in given)
    return EMBEDDINGS if is_list or not OF_EMBEDDINGS.isdisjoint(body) else RESPONSES


def suppose(
    body: Json,
    headers: Mapping[str, str],
    at: datetime,
    path: str | None = None,
    *,
    method: str = "POST",
    passed: PassedPaths | None = None,
) -> Call:
    """Return the call that a request would be, without a credential.

    Without a ``path`` it is that which ``path_of`` takes the body for;
    ``passed`` are the paths that policy has passed on. Raise ``Refused`` for a request that no
    policy would ever see.
    """
    path = path or path_of(body)
    named = {name.lower(): value for name, value in headers.items()}
    received = Received("supposed", "supposed", at=at, passed=lambda: passed)
    return read_supposed(parse_head(method, path, named, received), body)


def read_supposed(head: RequestHead, body: Json, caller: str = "") -> Call:
    """Return the call of a head and a body. Raise ``NotFound`` for one about what a provider
    keeps, or that leans on it."""
    if head.passed is not None:
        from proxy.dialects.passed import read_passed  # noqa: PLC0415  # few calls are such

        body = {} if head.method == "GET" else body
        return read_passed(head, body, len(body), caller)
    if head.endpoint in ABOUT_STATE:
        return _read_conversation(head, body, caller)
    if head.endpoint in BODILESS:
        return Call(head, {}, caller=caller)
    call = read_call(head, body, caller=caller)
    if head.endpoint == "responses":
        _check_ids(call)
    return call


def _read_conversation(head: RequestHead, body: Json, caller: str) -> Call:
    """Return the call that makes a conversation: it alone names nothing that is kept already."""
    if head.endpoint != "conversations" or head.parameter("id") is not None:
        raise NotFound(SEALED)
    from proxy.dialects.responses.conversations import conversation_call  # noqa: PLC0415  # as above

    call = conversation_call(head, body, caller=caller)
    _check_ids(call)
    return call


def _check_ids(call: Call) -> None:
    """Raise ``NotFound`` for a call that leans on what a provider keeps."""
    from proxy.dialects.responses.request import is_reference  # noqa: PLC0415  # as above

    for name in (PREVIOUS, CONVERSATION):
        if call.body.get(name) is not None:
            raise NotFound(SEALED, param=name)
    items = call.body.get("input")
    if isinstance(items, list) and any(map(is_reference, items)):
        raise NotFound(SEALED)


def example(deployment: str) -> Json:
    """Return the shortest chat that a deployment can be asked for."""
    return {"model": deployment, "messages": [{"role": "user", "content": "Hello"}]}
