"""Merges the chunks of a stream into a whole answer, and cuts a whole answer into chunks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from proxy.dialects.call_numbers import CallNumbers
from proxy.errors import UpstreamInvalid
from proxy.types import Json
from proxy.types.index import index_of

# Said once, or said again as it was: all other texts come in pieces.
_ONCE = frozenset({"finish_reason", "id", "name", "object", "role", "type"})
_PARTS = frozenset({"content", "thinking"})  # lists of parts, or a text
_CUT_PARTS = {"text": {"type", "text"}, "thinking": {"type", "thinking", "closed"}}
"""The types of parts that are cut into several, with all members that such a one has."""


def merged(events: Iterable[Json]) -> Json:
    """Return the whole answer. Its id, its time and its model are those of the first event."""
    whole: Json = {}
    choices: dict[int, Any] = {}
    numbers: dict[int, CallNumbers] = {}
    for event in events:
        for name, value in event.items():
            if name == "choices":
                _add_choices(choices, value, numbers)
            elif name == "usage":
                whole[name] = value if value is not None else whole.get(name)
            elif whole.get(name) is None:
                whole[name] = value
    chat = whole.get("object") == "chat.completion.chunk"
    if chat:
        whole["object"] = "chat.completion"
    grown = (_ended(choices[index]) for index in sorted(choices))
    whole["choices"] = [_finished(choice, chat=chat) for choice in grown]
    if whole.get("usage", whole) is None:
        del whole["usage"]
    return whole


def _add_choices(choices: dict[int, Any], events: Any, numbers: dict[int, CallNumbers]) -> None:
    for at, event in enumerate(events if isinstance(events, list) else ()):
        if isinstance(event, dict):
            calls = numbers.setdefault(index_of(event, at), CallNumbers(sys.maxsize))
            index = event.get("index")
            index = index if type(index) is int else 0
            choices[index] = _grown("choice", choices.get(index), _numbered(event, calls))


def _numbered(choice: Json, numbers: CallNumbers) -> Json:
    """Return a choice whose parts of tool calls have the numbers of their calls."""
    delta = choice.get("delta")
    calls = delta.get("tool_calls") if isinstance(delta, dict) else None
    if not isinstance(calls, list):
        return choice
    made: list[Any] = []
    before: set[object] = set()
    for place, call in enumerate(calls):
        part = numbers.renumbered(call, place, before) if isinstance(call, dict) else call
        made.append(part)
        before.add(part["index"] if isinstance(part, dict) else None)
    return {**choice, "delta": {**(delta or {}), "tool_calls": made}}


class _Text:
    """A text that comes in pieces: it is joined once, however many there are."""

    __slots__ = ("pieces",)

    def __init__(self, *pieces: str) -> None:
        self.pieces = [*pieces]


class _Items:
    """A list that comes in pieces. Items with an ``index`` (tool calls) are pieces of one another,
    and so are parts of one type that follow each other; others follow."""

    __slots__ = ("_places", "items")

    def __init__(self, values: list[Any]) -> None:
        self.items = [*values]
        self._places: dict[Any, int] = {}
        for place, value in enumerate(values):
            self._places.setdefault(_index(value), place)

    def add(self, value: Any) -> None:
        index = _index(value)
        place = None if index is None else self._places.get(index)
        if index is None and self.items and _is_next_piece(self.items[-1], value):
            self.items[-1] = _grown("part", self.items[-1], value)
        elif place is None:
            self._places.setdefault(index, len(self.items))
            self.items.append(value)
        else:
            self.items[place] = _grown("item", self.items[place], value)


class _Fields(dict[str, Any]):
    """An object that comes in pieces."""


def _grown(name: str, old: Any, new: Any) -> Any:
    """Return the value that what there is of a field and its next piece make together. A first
    piece stays as it is, however deep, and is never changed."""
    if old is None or new is None:
        return old if new is None else new
    if isinstance(old, dict) and isinstance(new, dict):
        fields = old if isinstance(old, _Fields) else _Fields(old)
        for key, value in new.items():
            fields[key] = _grown(key, fields.get(key), value)
        return fields
    if isinstance(old, list | _Items) and isinstance(new, list):
        items = old if isinstance(old, _Items) else _Items(old)
        for value in new:
            items.add(value)
        return items
    if isinstance(old, str | _Text) and isinstance(new, str):
        return _longer(name, old, new)
    if name in _PARTS and _is_spoken(old) and _is_spoken(new):
        return _grown(name, _as_parts(old), _as_parts(new)) if new else old
    return old if _is_text(old) and name not in _ONCE else new


def _is_text(value: Any) -> bool:
    return isinstance(value, str | _Text)


def _is_spoken(value: Any) -> bool:
    """True for a text or a list, also for one that has grown."""
    return _is_text(value) or isinstance(value, list | _Items)


def _as_parts(value: Any) -> Any:
    """Return a text as the list of its part, none for an empty one; a list as it is."""
    if isinstance(value, list | _Items):
        return value
    text = "".join(value.pieces) if isinstance(value, _Text) else value
    return [{"type": "text", "text": text}] if text else []


def _is_next_piece(last: Any, part: Any) -> bool:
    """True if a part of a text or of thoughts is the next piece of the one before it."""
    if not (isinstance(last, dict) and isinstance(part, dict)):
        return False
    kind = part.get("type")
    members = _CUT_PARTS.get(kind) if isinstance(kind, str) else None
    if members is None or last.get("type") != kind:
        return False
    if not all(_is_text(each.get(kind)) or kind in _PARTS for each in (last, part)):
        return False
    return last.keys() <= members and part.keys() <= members


def _longer(name: str, old: str | _Text, new: str) -> str | _Text:
    if name in _ONCE:
        return new or old
    if isinstance(old, str):
        return _Text(old, new)
    old.pieces.append(new)
    return old


def _ended(value: Any) -> Any:
    """Return what has grown as plain JSON."""
    if isinstance(value, _Fields):
        return {name: _ended(key) for name, key in value.items()}
    if isinstance(value, _Items):
        return [_ended(key) for key in value.items]
    return "".join(value.pieces) if isinstance(value, _Text) else value


def _index(item: Any) -> Any:
    """Return by what an item is told from others; None where that is nothing."""
    index = item.get("index") if isinstance(item, dict) else None
    return None if isinstance(index, list | dict) else index


def _finished(choice: Json, *, chat: bool) -> Json:
    if not chat:
        return choice
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    message: Json = {"role": "assistant", "content": None, **delta}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [_without_index(call) for call in calls]
        message["content"] = message["content"] or None
    rest = {name: value for name, value in choice.items() if name != "delta"}
    return {"index": rest.pop("index", 0), "message": message, **rest}


def _without_index(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    return {name: value for name, value in call.items() if name != "index"}


def as_stream(data: Json) -> list[Json]:
    """Return the chunks of a whole answer, for a client that asked for a stream."""
    whole_chat = data.get("object") == "chat.completion"
    choices = [_delta(choice) if whole_chat else choice for choice in choices_of(data)]
    chat = whole_chat or data.get("object") == "chat.completion.chunk"
    kind = "chat.completion.chunk" if chat else "text_completion"
    head = {k: v for k, v in data.items() if k not in ("choices", "usage", "object")}
    events: list[Json] = [{**head, "object": kind, "choices": choices}]
    if data.get("usage") is not None:
        events.append({**head, "object": kind, "choices": [], "usage": data["usage"]})
    return events


def _delta(choice: Json) -> Json:
    message = message_of(choice)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        numbered = [
            {**call, "index": at} for at, call in enumerate(calls) if isinstance(call, dict)
        ]
        message = message | {"tool_calls": numbered}
    rest = {k: v for k, v in choice.items() if k != "message"}
    return {**rest, "delta": message}


def choices_of(data: Json) -> list[Json]:
    choices = data.get("choices")
    return [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []


def message_of(choice: Json) -> Json:
    """Return the message or the delta of a choice. Raises ``UpstreamInvalid``."""
    message = choice.get("message") or choice.get("delta") or {}
    if not isinstance(message, dict):
        raise UpstreamInvalid("The upstream sent a choice whose message is not an object.")
    return message
