"""Where ids of containers stand, in which a provider runs code: in tools, in items, and in what a
text cites. The account of an upstream's key has them all, so ids are sealed as those of responses
are, and an id that nobody has sealed is the policy's to refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.types import Json

ID = "container_id"
Change = Callable[[str, str], str]
"""Returns what stands for an id, by the id and its place."""
Within = Callable[[Json, Change, str], Json]


def in_tool(tool: Json, change: Change, at: str = "") -> Json:
    """Return a tool with other ids, the very same where none changes."""
    return _in_environment(_member(tool, "container", change, at), change, at)


def in_item(item: Json, change: Change, at: str = "") -> Json:
    """Return an item with other ids, the very same where none changes."""
    made = _in_environment(_member(item, ID, change, at), change, at)
    return _in_list(made, "content", in_part, change, at)


def in_part(part: Json, change: Change, at: str = "") -> Json:
    """Return a part of an item with other ids, the very same where none changes."""
    return _in_list(part, "annotations", in_annotation, change, at)


def in_annotation(annotation: Json, change: Change, at: str = "") -> Json:
    """Return what a text cites with another id, the very same where none changes."""
    return _member(annotation, ID, change, at)


def in_each(items: list[Any], within: Within, change: Change, at: str = "") -> list[Any]:
    """Return a list with other ids in its objects, the very same where none changes."""
    made = [
        within(item, change, f"{at}.{index}") if isinstance(item, dict) else item
        for index, item in enumerate(items)
    ]
    return made if any(a is not b for a, b in zip(made, items, strict=True)) else items


def beside_items(document: Json, change: Change) -> Json:
    """Return the members of a response, or of an event, that have other ids, but for items."""
    made: Json = {}
    for name, within in BESIDE.items():
        if isinstance(document.get(name), dict):
            made[name] = within(document[name], change, name)
    if isinstance(document.get("tools"), list):
        made["tools"] = in_each(document["tools"], in_tool, change, "tools")
    return {name: value for name, value in made.items() if value is not document[name]}


def _member(within: Json, name: str, change: Change, at: str) -> Json:
    text = within.get(name)
    if not isinstance(text, str) or not text:
        return within
    made = change(text, f"{at}.{name}")
    return within if made is text else {**within, name: made}


def _in_environment(within: Json, change: Change, at: str) -> Json:
    environment = within.get("environment")
    if not isinstance(environment, dict):
        return within
    made = _member(environment, ID, change, f"{at}.environment")
    return within if made is environment else {**within, "environment": made}


def _in_list(within: Json, name: str, each: Within, change: Change, at: str) -> Json:
    items = within.get(name)
    if not isinstance(items, list):
        return within
    made = in_each(items, each, change, f"{at}.{name}")
    return within if made is items else {**within, name: made}


BESIDE: Mapping[str, Within] = {"annotation": in_annotation, "part": in_part}
"""What of an event beside its item may have the id of a container."""
