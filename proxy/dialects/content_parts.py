"""The content of a chat's answer where it is a list of parts: models that think answer so at
Mistral, ``[{"type": "thinking", "thinking": [{"type": "text", "text": ...}]}, {"type": "text",
...}]``.

A client of chat gets the list as it is. Other forms have other places for what it says: an answer
that crosses into one of them says it as all other chats do, in texts. What a client sends back of
the thoughts of an answer goes to no other form: none has a place for thoughts that nobody signed.
"""

from __future__ import annotations

from typing import Any

from proxy.runtime.frozen import frozen
from proxy.types import Json

THOUGHTS = frozenset({"reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"})
"""The members in which a chat's message has thoughts beside its content."""
_SAYS = ("content", "refusal", "tool_calls", "function_call")


@frozen
class SpokenParts:
    """What a list of parts says, joined by kind."""

    thoughts: str
    text: str
    refusal: str


def spoken_parts(content: list[Any]) -> SpokenParts:
    """Return what parts say. A part of an unknown type counts as its ``text``; one without a text,
    as a reference to a source, is left out."""
    spoken: dict[str, list[str]] = {"thinking": [], "text": [], "refusal": []}
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "thinking":
            inner = part.get(kind, part.get("text"))
            each = inner if isinstance(inner, list) else [inner]
            spoken["thinking"] += map(_text_of, each)
        elif kind == "refusal":
            spoken["refusal"].append(_text_of(part.get(kind)))
        else:
            spoken["text"].append(_text_of(part))
    thoughts, text, refusal = ("".join(texts) for texts in spoken.values())
    return SpokenParts(thoughts, text, refusal)


def _text_of(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def without_thoughts(body: Json) -> tuple[Json, tuple[str, ...]]:
    """Return a chat whose assistant says no thoughts, and the names under which it said some; the
    same one where it says none. A message that says nothing else is left out."""
    names: set[str] = set()
    messages = [_without_thoughts(message, names) for message in body.get("messages") or ()]
    if not names:
        return body, ()
    kept = [message for message in messages if message is not None]
    return {**body, "messages": kept}, tuple(sorted(names))


def _without_thoughts(message: Any, names: set[str]) -> Any:
    """Return a message without thoughts, None where it says nothing else; note their names."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message
    found = {name for name in THOUGHTS & message.keys() if message[name]}
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    kept = [part for part in parts if not _is_thought(part)]
    if len(kept) < len(parts):
        found.add("thinking")
    if not found:
        return message
    names |= found
    made = {name: value for name, value in message.items() if name not in found}
    if len(kept) < len(parts):
        made["content"] = kept or None
    return made if any(made.get(name) for name in _SAYS) else None


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "redacted_thinking")


def joined_message(message: Json) -> Json:
    """Return a message, or a delta, with texts in place of parts; the same one where it has
    none."""
    content = message.get("content")
    if content.__class__ is not list:
        return message
    spoken = spoken_parts(content)
    beside: Json = {}
    if spoken.thoughts:
        known = message.get("reasoning_content") or message.get("reasoning")
        beside["reasoning_content"] = _with(known, spoken.thoughts)
    if spoken.refusal:
        beside["refusal"] = _with(message.get("refusal"), spoken.refusal)
    return {**message, "content": None if beside and not spoken.text else spoken.text, **beside}


def _with(known: Any, more: str) -> str:
    """Return a text and what parts say of it; some servers send the same in both places."""
    return more if not isinstance(known, str) or known == more else known + more
