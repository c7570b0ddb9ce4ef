"""Events of a recorded stream: reads their documents, changes strings in them, writes them back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.golden.replay import events_of

Path = tuple[str | int, ...]
_DATA = re.compile(rb"^data: (\{.*\})", re.MULTILINE)


@dataclass(frozen=True)
class Event:
    """One event. ``document`` is None for comments and ``[DONE]``."""

    raw: bytes
    document: Any

    @property
    def kind(self) -> str:
        return str(self.document.get("type") or self.document.get("object") or "")

    def slot(self, path: Path) -> str:
        """Return the kind of the event and the path without indexes."""
        names = ["[]" if isinstance(step, int) else step for step in path]
        return f"{self.kind} {'.'.join(names)}"

    def changed(self, path: Path, change: Callable[[Any], Any]) -> Event:
        """Return the event with the value at a path changed."""
        return self.with_document(replaced(self.document, path, change))

    def with_document(self, document: Any) -> Event:
        data = json.dumps(document, separators=(",", ":")).encode()
        return Event(_DATA.sub(lambda _: b"data: " + data, self.raw), document)


def events(raw: bytes) -> list[Event]:
    """Read the events of a stream."""
    return [_event(data) for data in events_of(raw)]


def string_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all strings in a JSON value."""
    if isinstance(value, str):
        yield path
    for step, item in _children(value):
        yield from string_paths(item, (*path, step))


def _children(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def object_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all objects in a JSON value."""
    if isinstance(value, dict):
        yield path
    for step, item in _children(value):
        yield from object_paths(item, (*path, step))


def value_at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def replaced(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """Return a JSON value with the value at a path changed."""
    if not path:
        return change(value)
    step, remainder = path[0], path[1:]
    if isinstance(value, dict):
        return {**value, step: replaced(value[step], remainder, change)}
    items = [*value]
    items[int(step)] = replaced(value[step], remainder, change)
    return items


def _event(raw: bytes) -> Event:
    data = _DATA.search(raw)
    return Event(raw, json.loads(data[1]) if data else None)
