"""Finds the strings in a JSON value that may go on in a later document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from proxy.index import index_of
from proxy.types.events import Slot

_WHOLE: Final = frozenset({"index", "name", "role", "type", "logprobs"})
"""Members that are complete in each document."""


def strings(value: Any) -> Iterator[tuple[Slot, str]]:
    """Yield the path and the text of each string, in document order, without recursion."""
    stack: list[tuple[Slot, Any]] = [((), value)]
    while stack:
        path, each = stack.pop()
        if type(each) is str:
            if each:
                yield path, each
        elif type(each) is dict:
            members = [((*path, name), one) for name, one in each.items() if name not in _WHOLE]
            stack += reversed(members)
        elif type(each) is list:
            stack += reversed([((*path, at), one) for at, one in enumerate(each)])


def numbered(value: Any, path: Slot) -> Slot:
    """Return a path with the numbers of list items instead of their places."""
    steps: list[str | int] = []
    for step in path:
        value = value[step]
        steps.append(index_of(value, step) if type(step) is int else step)
    return tuple(steps)


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
