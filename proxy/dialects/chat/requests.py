"""Converts chat messages: content parts, legacy completions, and providers that differ from OpenAI.

``proxy.types.providers`` declares how the providers differ. Mistral's reasoning models send content
as a list of parts: ``{"type": "thinking", "thinking": [{"type": "text", "text": ...}]}`` or
``{"type": "text", "text": ...}``. A client of chat gets the list, other API families get its texts.
Unsigned reasoning that a client sends back has no place in other families and is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from proxy.dialects.wire.strict_json import as_object, as_text
from proxy.errors import InvalidField
from proxy.types import Json
from proxy.types.events import Kind, Slot
from proxy.types.providers import MAX_TOKENS, Provider

REASONING_MEMBERS = frozenset(
    {"reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"}
)
"""Members with the reasoning of a message."""
_THINKING_BLOCKS = ("thinking", "redacted_thinking")
_CONTENT_MEMBERS = ("content", "refusal", "tool_calls", "function_call")
_PART_KINDS: dict[str, Kind] = {"thinking": "reasoning", "text": "text", "refusal": "refusal"}
"""Kinds of the texts in a list of content parts, by the type of the part."""
UNKNOWN_REASONING = " "
"""Placeholder for reasoning that the client omitted. Providers that require it accept any."""
SHORT_ID = re.compile("[A-Za-z0-9]{9}")
_REFUSED_MEMBERS = REASONING_MEMBERS | {"annotations", "audio", "function_call", "refusal"}
_TOOL_CALL_MEMBERS = frozenset({"custom", "function", "id", "index", "type"})


def convert_logprobs_to_count(body: Json) -> Json:
    """Return a request with ``logprobs`` as a number of alternatives, as in legacy completions.

    ``true`` without a number becomes 0: the chosen token only.
    """
    logprobs = body.get("logprobs")
    if type(logprobs) is not bool:
        return body
    count = (body.get("top_logprobs") or 0) if logprobs else None
    other_fields = {k: v for k, v in body.items() if k not in ("logprobs", "top_logprobs")}
    return other_fields if count is None else other_fields | {"logprobs": count}


def convert_logprobs_to_chat(body: Json) -> Json:
    """Convert ``logprobs`` to the form of chat: a flag, and the number in ``top_logprobs``."""
    logprobs = body.get("logprobs")
    if type(logprobs) is not int:
        return body
    return body | {"logprobs": True, "top_logprobs": logprobs}


def convert_legacy_to_chat(body: Json) -> Json:
    """Return a legacy request as a chat with one user message. Raises ``InvalidField``."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        problem = "must be one string, because the upstream of this model supports chat only"
        raise InvalidField("prompt", problem)
    message = {"role": "user", "content": prompt}
    other_fields = {k: v for k, v in body.items() if k != "prompt"}
    return convert_logprobs_to_chat({**other_fields, "messages": [message]})


def _require_only_text(message: Json) -> str:
    content = message.get("content") or ""
    if isinstance(content, list) and all(as_object(p).get("type") == "text" for p in content):
        content = "".join(as_text(part.get("text")) for part in content)
    if not isinstance(content, str) or message.get("tool_calls") or message.get("function_call"):
        problem = "must have only text, because the upstream of this model has no chat endpoint"
        raise InvalidField("messages", problem)
    return content


def convert_chat_to_legacy(body: Json) -> Json:
    """Return a chat as a legacy request.

    The prompt has a paragraph ``role: text`` for each message, and ends with ``assistant:``. Raises
    ``InvalidField`` for content that is not text.
    """
    messages = body.get("messages") or ()
    turns = [f"{message['role']}: {_require_only_text(message)}" for message in messages]
    prompt = "\n\n".join([*turns, "assistant:"])
    other_fields = {k: v for k, v in body.items() if k not in ("messages", "max_completion_tokens")}
    if body.get("max_completion_tokens") is not None:
        other_fields["max_tokens"] = body["max_completion_tokens"]
    return convert_logprobs_to_count({**other_fields, "prompt": prompt})


def adapt_chat_to_provider(body: Json, traits: Provider) -> tuple[Json, tuple[str, ...]]:
    """Return a chat in the provider's format, and the names of removed members of messages."""
    chat, dropped = dict(body), set[str]()
    for renamed in traits.renamed:
        name, provider_name = renamed
        value, limit = chat.pop(name, None), chat.get(provider_name)
        if limit is not None and type(limit) is not int:
            raise InvalidField(provider_name, "must be an integer")
        if value is not None and (limit is None or renamed == MAX_TOKENS):
            chat[provider_name] = value if limit is None else min(value, limit)
    messages = body.get("messages")
    if isinstance(messages, list):
        chat["messages"] = [_convert_message_for_provider(m, traits, dropped) for m in messages]
    return chat, tuple(sorted(dropped))


def _convert_message_for_provider(message: Any, traits: Provider, dropped: set[str]) -> Any:
    role = message.get("role") if isinstance(message, dict) else None
    if role == "developer" and traits.fields is not None:
        return {**message, "role": "system"}
    if role == "tool" and traits.has_short_ids:
        return _hash_id_to_nine_characters(message, "tool_call_id")
    if role != "assistant":
        return message
    if traits.thoughts == "refused":
        dropped |= {name for name in _REFUSED_MEMBERS & message.keys() if message[name]}
        message = {name: value for name, value in message.items() if name not in _REFUSED_MEMBERS}
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return message
    if traits.thoughts == "required" and not message.get("reasoning_content"):
        thought = message.get("reasoning")
        message = {**message, "reasoning_content": thought or UNKNOWN_REASONING}
    return {**message, "tool_calls": [_convert_tool_call(call, traits) for call in calls]}


def _convert_tool_call(call: Any, traits: Provider) -> Any:
    if not isinstance(call, dict):
        return call
    if traits.thoughts == "refused" and not traits.signs_calls:
        call = {name: value for name, value in call.items() if name in _TOOL_CALL_MEMBERS}
    return _hash_id_to_nine_characters(call, "id") if traits.has_short_ids else call


def _hash_id_to_nine_characters(value: Json, name: str) -> Json:
    """Return an object with an id of nine letters and digits, derived from its id."""
    id_ = value.get(name)
    if not isinstance(id_, str) or SHORT_ID.fullmatch(id_):
        return value
    short = blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()[:9]
    return {**value, name: short}


def read_part_texts(content: list[Any]) -> tuple[str, str, str]:
    """Return the thoughts, the texts and the refusals in parts, each joined.

    A part of an unknown type counts as its ``text``.
    """
    texts: dict[str, list[str]] = {"thinking": [], "text": [], "refusal": []}
    for part in content:
        kind = as_object(part).get("type")
        if kind == "thinking":
            inner = part.get(kind, part.get("text"))
            texts["thinking"] += map(_read_part_text, inner if isinstance(inner, list) else [inner])
        elif kind == "refusal":
            texts["refusal"].append(_read_part_text(part.get(kind)))
        else:
            texts["text"].append(_read_part_text(part))
    thoughts, text, refusal = map("".join, texts.values())
    return thoughts, text, refusal


def _read_part_text(part: Any) -> str:
    return as_text(part.get("text") if isinstance(part, dict) else part)


def find_part_texts(parts: list[Any]) -> Iterator[tuple[Slot, str, Kind]]:
    """Yield the slot, the text and the kind of each text in a list of content parts."""
    for position, item in enumerate(parts):
        name = as_text(as_object(item).get("type"))
        value = item.get(name) if name in _PART_KINDS else None
        if type(value) is str and value:
            yield (position, name), value, _PART_KINDS[name]
        elif name == "thinking" and type(value) is list:
            for inner_position, inner in enumerate(value):
                if text := as_text(as_object(inner).get("text")):
                    yield (position, name, inner_position, "text"), text, "reasoning"


def move_texts_to_members(message: Json) -> Json:
    """Return a message or delta with texts in place of parts, the same object if it has none."""
    content = message.get("content")
    if content.__class__ is not list:
        return message
    thoughts, text, refusal = read_part_texts(content)
    members: Json = {}
    if thoughts:
        previous = message.get("reasoning_content") or message.get("reasoning")
        members["reasoning_content"] = _append_unless_equal(previous, thoughts)
    if refusal:
        members["refusal"] = _append_unless_equal(message.get("refusal"), refusal)
    return {**message, "content": None if members and not text else text, **members}


def _append_unless_equal(text: Any, addition: str) -> str:
    """Return the joined texts, or one of them if they are equal: some servers send a text twice."""
    return addition if not isinstance(text, str) or text == addition else text + addition


def remove_reasoning(body: Json) -> tuple[Json, tuple[str, ...]]:
    """Return a request without the assistant's reasoning, and the names of removed members.

    Returns the same object if nothing was removed. Messages without other content are removed.
    """
    removed: set[str] = set()
    results = (_remove_message_reasoning(m, removed) for m in body.get("messages") or ())
    messages = [message for message in results if message is not None]
    return ({**body, "messages": messages} if removed else body), tuple(sorted(removed))


def _remove_message_reasoning(message: Any, removed: set[str]) -> Any:
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message
    names = {name for name in REASONING_MEMBERS & message.keys() if message[name]}
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    other_parts = [p for p in parts if as_object(p).get("type") not in _THINKING_BLOCKS]
    has_thoughts = len(other_parts) < len(parts)
    if not (names or has_thoughts):
        return message
    result = {name: value for name, value in message.items() if name not in names}
    if has_thoughts:
        names.add("thinking")
        result["content"] = other_parts or None
    removed |= names
    return result if any(result.get(name) for name in _CONTENT_MEMBERS) else None
