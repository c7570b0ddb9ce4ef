"""Texts of a frame: those of its deltas, and those of its document that no delta carries.

The path of a text starts with a member of the document, or with the number of an event where only
the event has the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final, NamedTuple

from proxy.dialects.shapes import is_name
from proxy.guards.text.native import logprobs_text, native_walk, value_walk
from proxy.guards.text.walk import Found, MemberName, Opaque, Path, Text, parts_of
from proxy.types import Json
from proxy.types.events import Attach, Begin, Delta, Extension, Frame, Kind, Native, Part, Start
from proxy.types.index import index_of

KIND_OF: Final[Mapping[Kind, str]] = {
    "text": "content",
    "reasoning": "reasoning",
    "summary": "reasoning",
    "refusal": "refusal",
    "arguments": "arguments",
    "input": "arguments",
    "server_arguments": "arguments",
    "code": "content",
    "audio": "content",
    "item": "content",
    "opaque": "content",
}
"""The kind of text that a rule can be narrowed to, by the kind of a part."""
JSON_KINDS: Final[frozenset[Kind]] = frozenset({"arguments", "server_arguments"})
"""The kinds of parts whose text is JSON."""
CHAT: Final = frozenset({"chat", "completions"})
_ARGUMENTS = frozenset({"arguments", "partial_json"})
_UNDIVIDED = frozenset({"index", "name", "role", "type", "logprobs"})
_ENDS = frozenset({"index", "finish_reason"})

Place = tuple[int, tuple[object, ...]]
"""A place where texts of several documents form one text: a choice, and steps within it."""


def is_json(place: Part | Place) -> bool:
    """Return True if the texts of a place form JSON."""
    if isinstance(place, Part):
        return place.kind in JSON_KINDS
    return place[1][-1] in _ARGUMENTS


def choice_of(place: Part | Place) -> int:
    """Return the index of the choice of a place."""
    return place.choice if isinstance(place, Part) else place[0]


class FrameText(NamedTuple):
    """A text of a frame that later frames carry on at the same place. `event` is the number of its
    delta, -1 if only the document has it."""

    text: Text
    place: Part | Place
    event: int = -1


def delta_texts(frame: Frame) -> list[FrameText]:
    """Return the texts of the deltas of a frame."""
    return [
        FrameText(
            Text(event.slot, event.text, KIND_OF[event.part.kind], role="assistant"),
            event.part,
            number,
        )
        for number, event in enumerate(frame.events)
        if isinstance(event, Delta)
    ]


def other_texts(frame: Frame) -> Iterator[Found]:
    """Walk over all other texts of a frame."""
    doc, natives = frame.doc, [each for each in frame.events if isinstance(each, Native)]
    is_walked = doc is not None and bool(natives)
    if doc is not None and natives:
        known: set[Path] = {slot for native in natives for slot in native.repeats}
        known |= {event.slot for event in frame.events if isinstance(event, Delta) and event.slot}
        for found in native_walk(doc, frame.family, cut=True):
            if not (isinstance(found, Text | Opaque) and _is_within(found.path, known)):
                yield found
    for number, event in enumerate(frame.events):
        if isinstance(event, Start | Begin | Attach | Extension):
            path = path_of(frame, number)
            if path == (number,) or not is_walked:
                yield from _event_texts(frame, path, event)
        if isinstance(event, Begin) and event.call is not None and not is_walked:
            yield from _odd_names((number,), id=event.call.id)


def path_of(frame: Frame, number: int) -> Path:
    """Return the path of the value of an event, which starts with `number` if the document does
    not have the value."""
    event, doc = frame.events[number], frame.doc or {}
    if isinstance(event, Begin | Attach) and event.slot and frame.doc is not None:
        return event.slot
    if isinstance(event, Start):
        return _start_path(doc, event, number)
    if isinstance(event, Extension):
        if doc.get(event.name) is event.value:
            return (event.name,)
        choices = doc.get("choices")
        for place, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict) and choice.get(event.name) is event.value:
                return "choices", place, event.name
    return (number,)


def place_of(frame: Frame, path: Path) -> Place | None:
    """Return the place of a text in a document, None if no other document may carry the text on."""
    doc = frame.doc or {}
    if isinstance(path[-1], MemberName) or path[-1] in _UNDIVIDED or is_of_event(frame, path):
        return None
    if frame.family in CHAT:
        if path[0] != "choices" or len(path) < 3 or path[2] in _ENDS:
            return None
        return numbered(doc, path)
    return (0, (doc.get("type"), *_numbers(doc), *path)) if path[0] == "delta" else None


def unknown_place(frame: Frame, path: Path) -> Place | None:
    """Return the place of a text in a document of which no event is known, None for others. Text
    of a delta is at the place that `place_of` gives."""
    doc = frame.doc or {}
    if frame.family in CHAT or isinstance(path[-1], MemberName) or path[-1] in _UNDIVIDED:
        return None
    is_unknown = all([type(event) is Native for event in frame.events])
    return (0, (doc.get("type"), *path)) if is_unknown else None


def is_of_event(frame: Frame, path: Path) -> bool:
    """Return True if a text is part of the value of an event."""
    for number, event in enumerate(frame.events):
        if isinstance(event, Begin | Attach | Extension):
            of = path_of(frame, number)
            if path[: len(of)] == of:
                return True
    return isinstance(path[0], int)


def numbered(doc: Json, path: Path) -> Place:
    """Return a path in a choice with the index of each item instead of its position. The parts of
    a message share one place."""
    value: Any = doc
    steps: list[Any] = []
    for step in path:
        value = value[step]
        steps.append(index_of(value, step) if isinstance(step, int) else step)
    within = tuple(steps[2:])
    return (steps[1] if isinstance(steps[1], int) else -1), within[: parts_of(within)]


def _start_path(doc: Json, start: Start, number: int) -> Path:
    for path in ((), ("message",), ("response",)):
        holder = doc.get(path[0]) if path else doc
        if isinstance(holder, dict) and "model" in holder and holder["model"] is start.model:
            return path
    return (number,)


def _odd_names(path: Path, **names: str | None) -> Iterator[Text]:
    """Yield the identifiers that have the form of a text."""
    for name, value in names.items():
        if value and not is_name(value):
            yield Text((*path, name), value, "other", role="assistant")


def _event_texts(
    frame: Frame, path: Path, event: Start | Begin | Attach | Extension
) -> Iterator[Found]:
    if isinstance(event, Start):
        yield from _odd_names(path, id=event.id, model=event.model)
    elif isinstance(event, Begin):
        if event.call is not None and event.call.name:
            at = (*path, "name") if isinstance(path[-1], int) else path
            yield Text(at, event.call.name, "tool", role="assistant")
    elif isinstance(event, Extension):
        yield from value_walk(path, event.value, "other" if event.choice is None else "content")
    elif event.name == "logprobs":
        shown = "".join(each.text for each in frame.events if isinstance(each, Delta))
        yield logprobs_text(path, event.value, shown)
    else:
        if event.name == "audio":
            yield Opaque(path, "audio")
        yield from value_walk(path, event.value, "content")


def _is_within(path: Path, known: Set[Path]) -> bool:
    """Return True for a known text and for a segment of known arguments."""
    return path in known or (isinstance(path[-1], int) and path[:-1] in known)


def _numbers(doc: Json) -> Iterator[object]:
    """Yield the members that tell the text of a delta from those of others that take turns."""
    delta = doc.get("delta")
    for value in (doc, delta if isinstance(delta, dict) else {}):
        for name, each in value.items():
            if isinstance(each, str | int) and (
                name == "index" or name.endswith("_index") or (name == "type" and value is delta)
            ):
                yield each
