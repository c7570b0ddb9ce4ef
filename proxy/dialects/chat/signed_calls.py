"""Thought signatures of tool calls, which Gemini requires with each call.

In a chat the signature is a member of the call. Messages and Responses lack such a member, so the
signature becomes part of the call id, which the client sends back with the call and its result.
Guards, rules and other upstreams see the original id.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Mapping
from typing import Any

from proxy.types import Json

MARK = "_signed_"
MAX_SIGNATURE = 64 * 1024  # characters
BESIDE, VENDOR, SIGNATURE = "extra_content", "google", "thought_signature"
UNSIGNED = "skip_thought_signature_validator"
"""Google's word for a call that another model made."""

ID_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "messages": ("id", "tool_use_id"),
    "responses": ("call_id",),
}
"""Members of blocks and items that have the id of a call, by the form of a request."""


def signature_of(call: Json) -> str | None:
    """Return the signature of a tool call in a chat."""
    value: Any = call
    for name in (BESIDE, VENDOR, SIGNATURE):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def shown_id(call: Json) -> Any:
    """Return the id of a call as a client of Messages or Responses gets it."""
    id_, signature = call.get("id"), signature_of(call)
    if not signature or not isinstance(id_, str) or len(signature) > MAX_SIGNATURE:
        return id_
    sealed = urlsafe_b64encode(signature.encode("utf-8", "surrogatepass")).decode()
    return f"{id_}{MARK}{sealed.rstrip('=')}"


def _opened(text: Any) -> tuple[str, str] | None:
    """Return the own id of a call and its signature; None for an id without one."""
    if not isinstance(text, str) or MARK not in text:
        return None
    id_, _, sealed = text.partition(MARK)
    try:
        signature = urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4)).decode()
    except (Error, ValueError):
        return None
    return (id_, signature) if id_ and signature else None


def without_signatures(form: str | None, body: Json) -> tuple[Json, dict[str, str]]:
    """Return a request with the own ids of its calls, and their signatures by id."""
    signatures: dict[str, str] = {}
    if form == "responses" and isinstance(body.get("input"), list):
        items = _own_ids(body["input"], ID_MEMBERS[form], signatures)
        body = {**body, "input": items} if signatures else body
    elif form == "messages":
        messages = [_own_message(message, signatures) for message in body.get("messages") or ()]
        body = {**body, "messages": messages} if signatures else body
    return body, signatures


def _own_message(message: Json, signatures: dict[str, str]) -> Json:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    blocks = _own_ids(content, ID_MEMBERS["messages"], signatures)
    return {**message, "content": blocks} if blocks is not content else message


def _own_ids(items: list[Any], names: tuple[str, ...], signatures: dict[str, str]) -> list[Any]:
    """Return blocks or items with own ids; the very same list if no id has a signature."""
    result = list(items)
    for position, item in enumerate(items):
        for name in names:
            opened = _opened(item.get(name)) if isinstance(item, dict) else None
            if opened is not None:
                signatures[opened[0]] = opened[1]
                result[position] = {**result[position], name: opened[0]}
    return result if any(new is not old for new, old in zip(result, items, strict=True)) else items


def signed(body: Json, signatures: Mapping[str, str]) -> Json:
    """Return a chat whose calls have their signatures, for an upstream that wants them."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    signed_messages = [_signed_message(message, signatures) for message in messages]
    is_same = all(new is old for new, old in zip(signed_messages, messages, strict=True))
    return body if is_same else {**body, "messages": signed_messages}


def _signed_message(message: Any, signatures: Mapping[str, str]) -> Any:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list) or any(map(signature_of, calls)):
        return message
    if not all(isinstance(call, dict) for call in calls):
        return message  # the upstream refuses it
    signed_calls = [_with_signature(call, signatures.get(str(call.get("id")))) for call in calls]
    if signed_calls and not any(map(signature_of, signed_calls)):
        signed_calls[0] = _with_signature(signed_calls[0], UNSIGNED)
    return {**message, "tool_calls": signed_calls}


def _with_signature(call: Json, signature: str | None) -> Json:
    if signature is None:
        return call
    return {**call, BESIDE: {VENDOR: {SIGNATURE: signature}}}
