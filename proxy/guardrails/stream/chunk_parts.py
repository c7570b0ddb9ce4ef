"""A chunk of a stream taken apart: its texts, what goes on from chunk to chunk and where, which
choices it ends; and chunks that hold a part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.guardrails.text.frame import Level, is_silent
from proxy.guardrails.text.payloads import Payload
from proxy.guardrails.text.replace import replaced
from proxy.guardrails.text.text_walker import answer_texts
from proxy.guardrails.text.usual import usual_answer
from proxy.guardrails.text.walk import MemberName, Path, Text, parts_of
from proxy.index import index_of
from proxy.types import Json

AT_ONCE = frozenset({"index", "name", "role", "type", "logprobs"})  # never cut: looked at as whole

_CONTENT: Path = ("delta", "content")
_CHOICE_DELTA: Level = ("choices", "delta")
_BLOCK: Path = ("delta", "block")  # what is beside a text of Messages
_WHOLE: tuple[Path, ...] = (("start",), ("event",), ("end",), ("message",))
_TYPE: Path = ("delta", "type")
_DELTA: Path = (*_BLOCK, "delta")  # a delta that chat has no place for, as it came
_CITATION: Path = ("delta", "citation")
_ENDS = frozenset({"index", "finish_reason"})  # what the end of a choice has, whatever is in it
_NUMBERED = ("index", "id", "type")  # what tells an item of a list from others
_PLACE = ("index", "at", "summary")  # members of ``block`` by which a writer places a text
_IDENTITY = ("id", "object", "created", "model", "system_fingerprint")

TextPlace = tuple[int, Path]  # a choice's index, and where in the choice its text goes on
PlacedText = tuple[TextPlace, Text]


def texts_of(data: Json) -> Sequence[Text]:
    usual = usual_answer(data)
    return answer_texts(data, cut=True).texts if usual is None else usual.texts


def _choices(data: Json) -> list[tuple[int, Json]]:
    """Return the choices with their indexes."""
    choices = data.get("choices")
    if not isinstance(choices, list):
        return []
    return [
        (index_of(choice, place), choice)
        for place, choice in enumerate(choices)
        if isinstance(choice, dict)
    ]


def finished(data: Json) -> set[int]:
    choices = data.get("choices")
    if not isinstance(choices, list):
        return set()
    return {
        index_of(choice, place)
        for place, choice in enumerate(choices)
        if isinstance(choice, dict) and choice.get("finish_reason")
    }


def begins_anew(data: Json) -> bool:
    """True if what a choice says goes on in another block or item, after or with this chunk: a
    client of Messages or Responses reads each by itself, one after the other."""
    choices = data.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        block = delta.get("block") if isinstance(delta, dict) else None
        if isinstance(block, dict) and ("start" in block or "stop" in block):
            return True
    return False


def going_on(data: Json, text: Text) -> TextPlace | None:
    """Return the place whose text this is a part of; None for a text that is never cut."""
    path = text.path
    if (
        path[0] != "choices"
        or len(path) < 3
        or isinstance(path[-1], MemberName)
        or path[-1] in AT_ONCE
    ):
        return None
    if path[2] in _ENDS or is_whole(path):
        return None
    return text_place(data, path)


def is_whole(path: Path) -> bool:
    """True if a text is whole in its chunk, and no other chunk has more of it, or another value of
    it: it is of what begins or ends a message of Messages, or begins a block, of a citation, of an
    event that is no delta, or says what an event brings."""
    if path[2:4] != _BLOCK:
        return False
    return path[4:5] in _WHOLE or path[4:] == _TYPE or path[4:6] == _CITATION


def text_place(data: Json, path: Path) -> TextPlace:
    place = path[1]
    if path[2:] == _CONTENT and isinstance(place, int):  # as nearly always
        return index_of(data["choices"][place], place), _CONTENT
    choice, steps = _numbered(data, path)
    within = steps[: parts_of(steps)]
    if steps[:3] != _DELTA:
        return choice, within
    delta = data["choices"][place]["delta"]["block"]["delta"]
    return choice, (*_DELTA, *_names_of_delta(delta), *within[3:])


def _names_of_delta(delta: Any) -> Iterator[str | int]:
    """Return by what a client tells the text of a delta from those of others that take turns with
    it: its type, and the number of its part."""
    for name, value in delta.items() if isinstance(delta, dict) else ():
        if isinstance(value, str | int) and (name == "type" or _is_number(name)):
            yield value


def _is_number(name: str) -> bool:
    """True if a member of a delta says of which part or item it is."""
    return name.endswith("_index")


def place_of(data: Json, path: Path) -> Path | TextPlace:
    """Return where a text is that does not go on, whatever chunk it is in."""
    within = path[0] == "choices" and len(path) > 2 and not isinstance(path[-1], MemberName)
    return text_place(data, path) if within else path


def part_of(data: Json, path: Path) -> int | None:
    """Return the number of the part that a path leads to: 0 for one without a number, and for a
    text that is not in parts but may be; None for any other text."""
    steps = parts_of(path)
    if steps is None:
        return None
    if steps == len(path):
        return 0
    value: Any = data
    for step in path[: steps + 1]:
        value = value[step]
    return index_of(value, 0)


def _numbered(data: Json, path: Path) -> TextPlace:
    """Return a path with the numbers of items in the place of where they stand."""
    value: Any = data
    steps: list[str | int | MemberName | Payload] = []
    for step in path:
        value = value[step]
        steps.append(index_of(value, step) if isinstance(step, int) else step)
    choice = steps[1]
    return (choice if isinstance(choice, int) else hash(choice)), tuple(steps[2:])


def put(data: Json, path: Path, text: str) -> Json:
    root = node = dict(data)
    for step in path[:-1]:
        node[step] = node[step].copy()  # type: ignore[index]
        node = node[step]  # type: ignore[index]
    node[path[-1]] = text  # type: ignore[index]
    return root


def only(data: Json, path: Path, text: str, *beside: str) -> tuple[Json, Path]:
    """Return a chunk with one text alone, and its path there; ``beside`` are members of the choice
    that stay."""
    values: list[Any] = [data]
    for step in path[:-1]:
        values.append(values[-1][step])
    made: Any = text
    new: list[str | int | MemberName | Payload] = []
    for depth in range(len(path) - 1, 0, -1):
        step, above = path[depth], values[depth]
        if isinstance(step, int):
            made = [made]
            new.append(0)
            continue
        level = tuple(each for each in path[:depth] if isinstance(each, str))
        names = _NUMBERED if path[2:depth] != _DELTA else (*_NUMBERED, *filter(_is_number, above))
        kept = {name: above[name] for name in names if _is_kept(name, above, level)}
        if level == _CHOICE_DELTA and step != "block" and isinstance(above.get("block"), dict):
            block = above["block"]
            kept["block"] = {name: block[name] for name in _PLACE if name in block}
        made = {**kept, **(_without_words(above) if depth == 2 else {}), step: made}
        if depth == 2:
            made |= {name: above[name] for name in beside if name in above}
            made["finish_reason"] = None
        new.append(step)
    head = {name: data[name] for name in _IDENTITY if name in data}
    return {**head, "choices": made}, ("choices", *reversed(new))


def _without_words(choice: Json) -> Json:
    """Return what a choice says nothing by: clients look into the delta, or the text, of each."""
    if "delta" in choice:
        return {"delta": {}}
    return {"text": ""} if "text" in choice else {}


def _is_kept(name: str, item: Json, level: Level) -> bool:
    """True if what an item has under a name says which item it is, and is no text that goes on: an
    id is one but where it is never looked at."""
    value = item.get(name)
    if name == "id":
        return "index" not in item and value is not None and is_silent(level, name, value)
    return isinstance(value, str | int | float)


def frame(data: Json, going: Sequence[tuple[TextPlace, Text]], finished: set[int]) -> Json:
    """Return a chunk without the texts that go on, and without the ends of their choices."""
    bare = replaced(data, {text.path: "" for _, text in going})
    if not finished:
        return bare
    choices = [
        {**choice, "finish_reason": None} if index in finished else choice
        for index, choice in _choices(bare)
    ]
    return {**{name: each for name, each in bare.items() if name != "usage"}, "choices": choices}


def tail(data: Json, finished: set[int]) -> Json:
    """Return a chunk with the ends of choices and the usage."""
    head = {name: data[name] for name in (*_IDENTITY, "usage") if name in data}
    choices = [
        {
            "index": index if choice.get("index") is None else choice["index"],
            **(_without_words(choice) or {"text": ""}),
            "logprobs": None,
            "finish_reason": choice["finish_reason"],
        }
        for index, choice in _choices(data)
        if index in finished and choice.get("finish_reason")
    ]
    return {**head, "choices": choices}
