"""Words and calls of tools that differ between a chat and Messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from proxy.dialects.documents import MOST_SHALLOW, deeper
from proxy.types import Json

CHOICES: Mapping[str, str] = {"auto": "auto", "required": "any", "none": "none"}
"""Words for the choice of a tool in a chat, and in Messages."""
TIERS: Mapping[str, str] = {"auto": "auto", "default": "standard_only"}
"""Service tiers of a chat, and of Messages."""
Unreadable = Callable[[Any], Json]
"""Returns what arguments are that are no JSON object, or one that is too deep, or raises."""


def tool_use(call: Json, unreadable: Unreadable) -> Json:
    """Return a call as a block. Raise what ``unreadable`` raises."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    return {
        "type": "tool_use",
        "id": call.get("id"),
        "name": function.get("name"),
        "input": _input(function.get("arguments"), unreadable),
    }


def tool_call(block: Json) -> Json:
    """Return a block as a call."""
    written = orjson.dumps(block.get("input") or {}).decode()
    function = {"name": block.get("name"), "arguments": written}
    return {"id": block.get("id"), "type": "function", "function": function}


def _input(arguments: Any, unreadable: Unreadable) -> Json:
    """Return arguments as they are read. The reader knows more levels than the writer."""
    try:
        read = orjson.loads(arguments or "{}")
        if arguments and arguments.count("[") + arguments.count("{") > MOST_SHALLOW:
            orjson.dumps(deeper(read))
    except (orjson.JSONDecodeError, TypeError):
        return unreadable(arguments)
    return read if isinstance(read, dict) else unreadable(read)
