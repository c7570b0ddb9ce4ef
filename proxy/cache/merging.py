"""A whole answer made of the events of a stream, both in OpenAI's form.

The way back is ``hub.as_stream``. Events without a word of an answer, such as bare usage, add what
they hold beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.types import Json

# Said once, or said again as it was: all other texts come in pieces.
_ONCE = frozenset({"finish_reason", "id", "name", "object", "role", "type"})


def merged(events: Iterable[Json]) -> Json:
    """Give the whole answer. Its number, its time and its model are those of the first event."""
    whole: Json = {}
    choices: dict[int, Json] = {}
    for event in events:
        for name, value in event.items():
            if name == "choices":
                _add_choices(choices, value)
            elif name == "usage":
                whole[name] = value if value is not None else whole.get(name)
            elif whole.get(name) is None:
                whole[name] = value
    chat = whole.get("object") == "chat.completion.chunk"
    if chat:
        whole["object"] = "chat.completion"
    whole["choices"] = [_finished(choices[index], chat=chat) for index in sorted(choices)]
    if whole.get("usage", whole) is None:
        del whole["usage"]
    return whole


def _add_choices(choices: dict[int, Json], events: Any) -> None:
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict):
            index = event.get("index")
            index = index if type(index) is int else 0
            choices[index] = _joined("choice", choices.get(index), event)


def _joined(name: str, old: Any, new: Any) -> Any:
    """Give the value that two pieces of a field make together."""
    if old is None or new is None:
        return old if new is None else new
    if type(old) is not type(new):
        return new
    if isinstance(old, dict):
        fields = {**old, **new}
        return {each: _joined(each, old.get(each), new.get(each)) for each in fields}
    if isinstance(old, list):
        return _joined_lists(old, new)
    if isinstance(old, str):
        return (new or old) if name in _ONCE else old + new
    return new


def _joined_lists(old: list[Any], new: list[Any]) -> list[Any]:
    """Items with an ``index`` (tool calls) are pieces of one another, others follow."""
    joined = list(old)
    for item in new:
        index = item.get("index") if isinstance(item, dict) else None
        at = next((i for i, each in enumerate(joined) if _index(each) == index), None)
        if index is None or at is None:
            joined.append(item)
        else:
            joined[at] = _joined("item", joined[at], item)
    return joined


def _index(item: Any) -> Any:
    return item.get("index") if isinstance(item, dict) else None


def _finished(choice: Json, *, chat: bool) -> Json:
    if not chat:
        return choice
    delta = choice.get("delta") or {}
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
