"""Leaves one of several strings in a JSON value, or all but some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.types.events import Slot


def alone(value: Any, path: Slot, text: str) -> Any:
    """Return a value with the string at a path as its only text. Items of lists keep the numbers
    and types by which they are told apart."""
    if not path:
        return text
    step, rest = path[0], path[1:]
    inner = alone(value[step], rest, text)
    if type(step) is int:
        return [inner]
    kept = {name: value[name] for name in ("index", "type") if name in value and name != step}
    return {**kept, step: inner}


def blanked(value: Any, paths: Iterable[Slot]) -> Any:
    """Return a value with empty strings at the paths. Each container on a path is copied once."""
    copies: set[int] = set()
    holder: list[Any] = [value]
    for path in paths:
        node: Any = holder
        for step in (0, *path[:-1]) if path else ():
            child = node[step]
            if id(child) not in copies:
                node[step] = child = child.copy()
                copies.add(id(child))
            node = child
        node[path[-1] if path else 0] = ""
    return holder[0]
