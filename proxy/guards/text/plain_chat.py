"""Reads plain chats and their responses, which nearly all calls have, without the general walk.

The texts are the same as in the walk, which reads any other document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from proxy.fields.field_table import FIELDS
from proxy.guards.text.frame import NUMBERS, is_silent
from proxy.guards.text.opaque import OPAQUE
from proxy.guards.text.walk import (
    KNOWN,
    REQUEST,
    SILENT,
    WORDS,
    Found,
    Text,
    Texts,
    answer_walk,
    request_walk,
)
from proxy.types import Json

MOST = 256  # messages; a chat of more is walked in steps

_QUIET = KNOWN - OPAQUE  # names under which a number is no text
_WORDS = frozenset({"input", "prompt", "suffix", "user"})
_MESSAGE = frozenset({"role", "content"})
_USAGE = {"include_usage": True}
_DATA = "data:"  # begins a text that may be base64

_LEVEL = ("choices",)
_SILENT_CHOICE = frozenset({"index", "finish_reason"})
_MESSAGES = frozenset({"delta", "message"})
_CHOICE = _SILENT_CHOICE | _MESSAGES | {"logprobs", "text"}
_KINDS: Mapping[str, str] = {
    "content": "content",
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
}
_MEMBERS = _KINDS.keys() | {
    "annotations", "audio", "function_call", "refusal", "role", "tool_calls",
}  # fmt: skip


def plain_request(body: Json) -> Texts | None:
    """Return the texts of a chat whose messages are a role and a text, else None."""
    texts: list[Text] = []
    apart = True
    for name, value in body.items():
        if name == "messages":
            roles = _read_messages(value, texts)
            if roles is None:
                return None
            apart = roles
        elif value.__class__ is str and name in _WORDS:
            if value[:5] == _DATA:
                return None
            if value:
                texts.append(Text((name,), value, REQUEST[name], role=FIELDS[name].role))
        elif not (
            name in SILENT
            or (value.__class__ in NUMBERS and name in _QUIET)
            or (name == "stream_options" and value == _USAGE)
        ):
            return None
    return Texts(tuple(texts), apart=apart)


def _read_messages(messages: Any, texts: list[Text]) -> bool | None:
    """Append the texts of messages. Return True if no two of one role follow each other, and None
    for any other messages."""
    if messages.__class__ is not list or len(messages) > MOST:
        return None
    apart, before = True, None
    for place, message in enumerate(messages):
        if message.__class__ is not dict or message.keys() != _MESSAGE:
            return None
        role, text = message["role"], message["content"]
        if role.__class__ is not str or role not in WORDS:
            return None
        if text.__class__ is not str or text[:5] == _DATA:
            return None
        if text:
            if role == before:
                apart = False
            before = role
            texts.append(Text(("messages", place, "content"), text, "content", role=role))
    return apart


def plain_answer(data: Json) -> Texts | None:
    """Return the texts of a response, or of a chunk of one, with one choice of plain texts, else
    None."""
    choices = data.get("choices")
    if choices.__class__ is not list or len(choices) != 1:
        return None
    choice = choices[0]
    if choice.__class__ is not dict or not choice.keys() <= _CHOICE:
        return None
    if not all([name == "choices" or is_silent((), name, value) for name, value in data.items()]):
        return None
    texts: list[Text] = []
    for name, value in choice.items():
        if value and not _read_answer(name, value, texts):
            return None
    return Texts(tuple(texts), apart=True)


def _read_answer(form: str, message: Any, texts: list[Text]) -> bool:
    if form in _SILENT_CHOICE:
        return is_silent(_LEVEL, form, message)
    if form == "text" and message.__class__ is str:
        texts.append(Text(("choices", 0, form), message, "content", role="assistant"))
        return True
    if form not in _MESSAGES or message.__class__ is not dict:
        return False
    for name, value in message.items():
        if value and name in _KINDS:
            if value.__class__ is not str:
                return False
            texts.append(Text(("choices", 0, form, name), value, _KINDS[name], role="assistant"))
        elif (value and (name != "role" or value != "assistant")) or name not in _MEMBERS:
            return False
    return True


PLAIN_READERS: Mapping[Callable[[Json], Iterator[Found]], Callable[[Json], Texts | None]] = {
    request_walk: plain_request,
    answer_walk: plain_answer,
}
"""The reader of plain documents for a walk."""
