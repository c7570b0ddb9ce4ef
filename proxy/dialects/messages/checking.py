"""Checks the blocks of a Messages request.

Only blocks that guards or a conversion read are checked. The upstream checks other types.
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
"""Members of blocks by type."""

_TYPE = required(string())


def check_blocks(body: Json) -> None:
    """Raise ``InvalidField`` for a malformed block, and for a tool result without its tool call in
    the last turn of the assistant."""
    call_ids: set[str] = set()
    role = None
    for index, message in enumerate(body.get("messages") or ()):
        place = f"messages.{index}.content"
        blocks: Any = message.get("content")
        if type(blocks) is str:
            blocks = ()
        else:
            check_member("content", blocks, _CONTENT, f"messages.{index}")
            _check_all(blocks, place)
        if message["role"] == "assistant":
            call_ids = call_ids if role == "assistant" else set()  # messages of one turn
            call_ids |= {str(block["id"]) for block in blocks if block["type"] == "tool_use"}
        else:
            _check_results(blocks, call_ids, place)
        role = message["role"]
    if isinstance(body.get("system"), list):
        _check_all(body["system"], "system")


def _check_all(blocks: Sequence[Json], place: str) -> None:
    for index, block in enumerate(blocks):
        block_place = f"{place}.{index}"
        kind: Any = block.get("type")
        if type(kind) is not str:
            check_member("type", kind, _TYPE, block_place)
        for name, field in BLOCKS.get(kind, {}).items():
            check_member(name, block.get(name), field, block_place)
        if kind == "tool_result" and type(block.get("content")) is list:
            _check_all(block["content"], f"{block_place}.content")


def _check_results(blocks: Sequence[Json], call_ids: set[str], place: str) -> None:
    for index, block in enumerate(blocks):
        if block["type"] == "tool_result" and block["tool_use_id"] not in call_ids:
            problem = "must be the id of a tool_use block in the assistant message before it"
            raise InvalidField(f"{place}.{index}.tool_use_id", problem)
