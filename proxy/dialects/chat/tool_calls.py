"""Identifies the tool call of each fragment in a chat stream, and keeps thought signatures.

Most servers number their calls by ``index``. Some give all calls the same number, and some none, so
ids and names identify calls too.

Gemini requires the thought signature of each call. In a chat the signature is a member of the call.
Messages and Responses lack such a member, so the signature becomes part of the call id, which the
client sends back with the call and its result. Guards, rules and other upstreams see the original
id.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Literal

from proxy.dialects.frames.sequencer import JSON_SPACE, JsonEndDetector
from proxy.dialects.wire.strict_json import as_object, as_text, dump
from proxy.types import Json
from proxy.types.events import get_index

EMPTY_ARGUMENTS = "{}"
"""Placeholder that some servers send as arguments in the first fragment of a call."""
CallType = Literal["function", "custom"]
CALL_TEXT_MEMBERS: Mapping[CallType, Literal["arguments", "input"]] = {
    "function": "arguments",
    "custom": "input",
}
"""The member with the text of a call, which is also its kind, by the type of the call."""
MAX_ID = 256
"""Characters of an id or a name that are kept. A longer one is kept as its hash."""
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_Id = str | int


def get_call_type_and_object(call: Json) -> tuple[CallType, Json]:
    """Return the type of a tool call, and its object with the name and the text; {} without it."""
    for kind in CALL_TEXT_MEMBERS:
        if isinstance(inner := call.get(kind), dict):
            return kind, inner
    return "function", {}


def _get_text_member_and_text(call: Json) -> tuple[str, str]:
    kind, inner = get_call_type_and_object(call)
    return CALL_TEXT_MEMBERS[kind], as_text(inner.get(CALL_TEXT_MEMBERS[kind]))


def add_tool_call_id(call: Json, response_id: object, number: int) -> Json:
    """Return the first fragment of a tool call with an id, generated if the upstream sent none."""
    id_ = call.get("id")
    if id_ is not None and _to_comparable_id(id_) is not None:
        return call if isinstance(id_, str) else {**call, "id": str(id_)}
    prefix = _NOT_IN_IDS.sub("_", response_id)[:64] if isinstance(response_id, str) else ""
    return {**call, "id": f"call_{prefix}_{number}" if prefix else f"call_{number}"}


def serialize_arguments(call: Json) -> Json:
    """Return a fragment whose arguments are JSON text. Some servers send the object itself."""
    arguments = as_object(call.get("function")).get("arguments")
    if type(arguments) is dict:
        return _set_tool_call_text(call, dump(arguments, 0).decode())
    return call


def _set_tool_call_text(call: Json, text: str) -> Json:
    kind, inner = get_call_type_and_object(call)
    return {**call, kind: {**inner, CALL_TEXT_MEMBERS[kind]: text}}


def _to_comparable_id(value: object) -> _Id | None:
    """Return an id or a name for comparison, None for an empty or invalid one."""
    if not isinstance(value, str | int) or value == "":
        return None
    return value if isinstance(value, int) or len(value) <= MAX_ID else hash(value)


def _get_comparable_name(call: Json) -> _Id | None:
    return _to_comparable_id(get_call_type_and_object(call)[1].get("name"))


@dataclass(slots=True)
class _ToolCallState:
    """State of one call.

    ``has_placeholder``: the text so far is ``EMPTY_ARGUMENTS``. ``is_name_repeated``: after the
    call was complete, its name came again without an id, so further text begins another call of
    that name.
    """

    number: int
    id: _Id | None
    name: _Id | None
    end: JsonEndDetector = field(default_factory=JsonEndDetector)
    has_placeholder: bool = False
    is_name_repeated: bool = False


class ToolCallNumbering:
    """Numbers the calls of one choice in the order in which they begin.

    A fragment belongs to the latest call of its index, or to the call of its id. It begins another
    call if it has another id or name. A fragment with a name and a text also begins another call if
    the call is complete or has a fragment in the same chunk.
    """

    def __init__(self) -> None:
        self._latest: dict[int, _ToolCallState] = {}  # latest call, by the upstream's index
        self._by_id: dict[tuple[int | None, _Id], _ToolCallState] = {}
        self._count = 0

    def renumber_fragment(self, fragment: Json, position: int, numbers: Collection[object]) -> Json:
        """Return a fragment with the number of its call as ``index``.

        ``position`` is its place in the chunk, ``numbers`` are the call numbers of earlier
        fragments in the chunk.
        """
        index, id_ = get_index(fragment, position), _to_comparable_id(fragment.get("id"))
        text = _get_text_member_and_text(fragment)[1].strip(JSON_SPACE)
        call, part = self._find_call_to_continue(fragment, index, id_), fragment
        if call is not None:
            call, part = _continue_call(call, fragment, id_, text, call.number in numbers)
        if call is None:
            name = _get_comparable_name(part)
            call = self._latest[index] = _ToolCallState(self._count, id_, name)
            call.has_placeholder = text == EMPTY_ARGUMENTS
            self._count += 1
        elif text:
            call.has_placeholder = False
        if id_ is not None and call.id in (None, id_):
            call.id = id_
            self._by_id[index, id_] = self._by_id[None, id_] = call
        call.end.feed(*_get_text_member_and_text(part))
        is_same = type(fragment.get("index")) is int and call.number == fragment["index"]
        return fragment if is_same and part is fragment else {**part, "index": call.number}

    def _find_call_to_continue(
        self, fragment: Json, index: int, id_: _Id | None
    ) -> _ToolCallState | None:
        latest = self._latest.get(index)
        if id_ is None or (latest is not None and latest.id == id_):
            return latest
        return self._by_id.get((None if fragment.get("index") is None else index, id_), latest)


def _continue_call(
    call: _ToolCallState, fragment: Json, id_: _Id | None, text: str, is_in_chunk: bool
) -> tuple[_ToolCallState | None, Json]:
    """Return the call that a fragment continues (None if it begins another), and the fragment."""
    name = _get_comparable_name(fragment)
    if name is None:
        if not (call.is_name_repeated and text):
            return call, fragment
        with_name = {**fragment, "function": {"name": call.name}}
        return None, _set_tool_call_text(with_name, _get_text_member_and_text(fragment)[1])
    if _begins_another_call(call, id_, name, text, is_in_chunk):
        return None, fragment
    if id_ is None and call.end.is_object_complete and isinstance(name, str):
        call.is_name_repeated = True
    return call, fragment


def _begins_another_call(
    call: _ToolCallState, id_: _Id | None, name: _Id, text: str, is_in_chunk: bool
) -> bool:
    """Return True if a fragment with a name begins another call than the one it may continue."""
    has_same_id = id_ is not None and id_ == call.id
    is_complete = call.end.is_object_complete and not (
        has_same_id and call.has_placeholder and text != EMPTY_ARGUMENTS
    )
    if text and (is_complete or (is_in_chunk and not has_same_id)):
        return True
    if id_ is not None and call.id is not None:
        return not has_same_id
    return call.name is not None and name != call.name


SIGNATURE_MARK = "_signed_"
MAX_SIGNATURE = 64 * 1024  # characters
EXTRA_CONTENT, GOOGLE, THOUGHT_SIGNATURE = "extra_content", "google", "thought_signature"
UNSIGNED_PLACEHOLDER = "skip_thought_signature_validator"
"""Value that Google accepts as the signature of a call that another model made."""

ID_MEMBERS = ("id", "tool_use_id", "call_id")
"""Members of blocks and items that have the id of a call."""
CALL_LISTS: Mapping[str, str] = {"messages": "messages", "responses": "input"}
"""The member of a request that may have ids with signatures, by API family."""


def get_thought_signature(call: Json) -> str | None:
    """Return Gemini's thought signature of a tool call in a chat, None without one."""
    value: Any = call
    for name in (EXTRA_CONTENT, GOOGLE, THOUGHT_SIGNATURE):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def make_client_call_id(id_: str, signature: str | None) -> str:
    """Return the tool call id for a Messages or Responses client, with any thought signature."""
    if not signature or len(signature) > MAX_SIGNATURE:
        return id_
    encoded = urlsafe_b64encode(signature.encode("utf-8", "surrogatepass")).decode()
    return f"{id_}{SIGNATURE_MARK}{encoded.rstrip('=')}"


def _split_signature_from_id(text: Any) -> tuple[str, str] | None:
    if not isinstance(text, str) or SIGNATURE_MARK not in text:
        return None
    id_, _, encoded = text.partition(SIGNATURE_MARK)
    try:
        signature = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (Error, ValueError):
        return None
    return (id_, signature) if id_ and signature else None


def remove_signatures(body: Json, member: str) -> tuple[Json, dict[str, str]]:
    """Return a request whose tool call ids have no signatures, and the signatures by id.

    ``member`` is the name of its list of messages or items.
    """
    signatures: dict[str, str] = {}
    items = [_remove_item_signatures(item, signatures) for item in body[member]]
    return ({**body, member: items} if signatures else body), signatures


def _remove_item_signatures(item: Any, signatures: dict[str, str]) -> Any:
    if not isinstance(item, dict):
        return item
    members: Json = {}
    for name in ID_MEMBERS:
        opened = _split_signature_from_id(item[name]) if name in item else None
        if opened is not None:
            members[name], signatures[opened[0]] = opened[0], opened[1]
    content = item.get("content")
    if isinstance(content, list):
        blocks = [_remove_item_signatures(block, signatures) for block in content]
        members |= {} if all(map(is_, blocks, content)) else {"content": blocks}
    return {**item, **members} if members else item


def add_signatures(body: Json, signatures: Mapping[str, str]) -> Json:
    """Return a chat whose tool calls have their signatures, for an upstream that requires them."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    signed_messages = [_add_message_signatures(message, signatures) for message in messages]
    is_same = all(new is old for new, old in zip(signed_messages, messages, strict=True))
    return body if is_same else {**body, "messages": signed_messages}


def _add_message_signatures(message: Any, signatures: Mapping[str, str]) -> Any:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list) or any(map(get_thought_signature, calls)):
        return message
    if not all(isinstance(call, dict) for call in calls):
        return message  # left as it is, so that the upstream rejects it
    signed = [_add_call_signature(call, signatures.get(str(call.get("id")))) for call in calls]
    if signed and not any(map(get_thought_signature, signed)):
        signed[0] = _add_call_signature(signed[0], UNSIGNED_PLACEHOLDER)
    return {**message, "tool_calls": signed}


def _add_call_signature(call: Json, signature: str | None) -> Json:
    if signature is None:
        return call
    return {**call, EXTRA_CONTENT: {GOOGLE: {THOUGHT_SIGNATURE: signature}}}
