"""Reads chat content that is a list of parts, as Mistral's reasoning models send it.

A part is ``{"type": "thinking", "thinking": [{"type": "text", "text": ...}]}`` or ``{"type":
"text", "text": ...}``. A client of chat gets the list, other API families get its texts. Unsigned
reasoning that a client sends back has no place in other families and is removed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from proxy.types import Json

THOUGHTS = frozenset({"reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"})
"""The members in which a message has reasoning besides its content."""
_CONTENT = ("content", "refusal", "tool_calls", "function_call")


class PartTexts(NamedTuple):
    """The texts of a list of parts, joined by kind."""

    thoughts: str
    text: str
    refusal: str


def texts_of_parts(content: list[Any]) -> PartTexts:
    """Return the texts of parts. A part of an unknown type counts as its ``text``."""
    texts: dict[str, list[str]] = {"thinking": [], "text": [], "refusal": []}
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "thinking":
            inner = part.get(kind, part.get("text"))
            texts["thinking"] += map(_text_of, inner if isinstance(inner, list) else [inner])
        elif kind == "refusal":
            texts["refusal"].append(_text_of(part.get(kind)))
        else:
            texts["text"].append(_text_of(part))
    thoughts, text, refusal = map("".join, texts.values())
    return PartTexts(thoughts, text, refusal)


def _text_of(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def joined_message(message: Json) -> Json:
    """Return a message or delta with texts in place of parts, the same object if it has none."""
    content = message.get("content")
    if content.__class__ is not list:
        return message
    texts = texts_of_parts(content)
    members: Json = {}
    if texts.thoughts:
        thoughts = message.get("reasoning_content") or message.get("reasoning")
        members["reasoning_content"] = _append(thoughts, texts.thoughts)
    if texts.refusal:
        members["refusal"] = _append(message.get("refusal"), texts.refusal)
    return {**message, "content": None if members and not texts.text else texts.text, **members}


def _append(text: Any, addition: str) -> str:
    """Return both texts. Some servers send the same text in both places."""
    return addition if not isinstance(text, str) or text == addition else text + addition


def without_thoughts(body: Json) -> tuple[Json, tuple[str, ...]]:
    """Return a request without the assistant's reasoning, and the names of what was removed.

    The body is the same object if it has none. Messages without other content are removed.
    """
    removed: set[str] = set()
    messages = [_without_thoughts(message, removed) for message in body.get("messages") or ()]
    if not removed:
        return body, ()
    messages = [message for message in messages if message is not None]
    return {**body, "messages": messages}, tuple(sorted(removed))


def _without_thoughts(message: Any, removed: set[str]) -> Any:
    """Return a message without reasoning, None if it has no other content."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message
    names = {name for name in THOUGHTS & message.keys() if message[name]}
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    other_parts = [part for part in parts if not _is_thought(part)]
    has_thoughts = len(other_parts) < len(parts)
    if not (names or has_thoughts):
        return message
    result = {name: value for name, value in message.items() if name not in names}
    if has_thoughts:
        names.add("thinking")
        result["content"] = other_parts or None
    removed |= names
    return result if any(result.get(name) for name in _CONTENT) else None


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "redacted_thinking")
