"""Checks of the blocks in a Messages request.

Members are checked of blocks that guards or a translation read. A block of another type passes: the
upstream knows it, or refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.errors import InvalidField
from proxy.fields.checks import (
    Fields,
    check_member,
    either,
    mapping,
    objects,
    required,
    string,
)
from proxy.types import Json

_CONTENT = required(either(string(), objects()))
_TEXT: Fields = {"text": required(string())}
_SOURCE: Fields = {"source": required(mapping())}

BLOCKS: Mapping[str, Fields] = {
    "text": _TEXT,
    "image": _SOURCE,
    "document": _SOURCE,
    "thinking": {"thinking": required(string()), "signature": string()},
    "redacted_thinking": {"data": required(string())},
    "search_result": {"content": required(objects())},
    "tool_reference": {"tool_name": required(string())},
    "tool_use": {
        "id": required(string()),
        "name": required(string()),
        "input": required(mapping()),
    },
    "tool_result": {
        "tool_use_id": required(string()),
        "content": either(string(), objects()),
    },
}
"""The members of blocks by type."""
NO_MEMBERS: Fields = {}

_TYPE = required(string())


def check_blocks(body: Json) -> None:
    """Raise ``InvalidField`` for a malformed block, and for a tool result without its tool call in
    the last turn of the assistant."""
    used: set[str] = set()
    role = None
    for at, message in enumerate(body.get("messages") or ()):
        place = f"messages.{at}"
        blocks = _checked(message, place)
        if message["role"] == "assistant":
            used = used if role == "assistant" else set()  # turns of one role are one turn
            used |= {str(block["id"]) for block in blocks if block["type"] == "tool_use"}
        else:
            _check_results(blocks, used, place)
        role = message["role"]
    if isinstance(body.get("system"), list):
        _check_all(body["system"], "system")


def _checked(message: Json, place: str) -> Sequence[Json]:
    """Return the blocks of a message, none if it is a text."""
    content: Any = message.get("content")
    if type(content) is str:
        return ()
    check_member("content", content, _CONTENT, place)
    _check_all(content, f"{place}.content")
    blocks: Sequence[Json] = content
    return blocks


def _check_all(blocks: Sequence[Json], place: str) -> None:
    for at, block in enumerate(blocks):
        here = f"{place}.{at}"
        kind: Any = block.get("type")
        if type(kind) is not str:
            check_member("type", kind, _TYPE, here)
        for name, field in BLOCKS.get(kind, NO_MEMBERS).items():
            check_member(name, block.get(name), field, here)
        if kind == "tool_result" and type(block.get("content")) is list:
            _check_all(block["content"], f"{here}.content")


def _check_results(blocks: Sequence[Json], used: set[str], place: str) -> None:
    for at, block in enumerate(blocks):
        if block["type"] == "tool_result" and block["tool_use_id"] not in used:
            problem = "must be the id of a tool_use block in the assistant message before it"
            raise InvalidField(f"{place}.content.{at}.tool_use_id", problem)
