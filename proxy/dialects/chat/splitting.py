"""Splits a document with several texts into documents with one text each.

A client that merges the documents gets the original. The first document of a choice keeps the
members without a text, and the first one of a tool call its id and name. The last one has the
finish reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from proxy.dialects.chat.choices import (
    CHOICES,
    IDENTITY_MEMBERS,
    Choice,
    MessageUnit,
    TextLayout,
)
from proxy.types import Json
from proxy.types.events import Attach, Delta, Event, PartStart, Slot

Split = tuple[tuple[Event, ...], Json]
"""The events of a frame and its document."""


def split_document(doc: Json, choices: Sequence[Choice], layout: TextLayout) -> Iterator[Split]:
    """Yield a document for each text of the choices, and one for each finish reason."""
    head = {name: value for name, value in doc.items() if name not in (CHOICES, "usage")}
    for choice in choices:
        for events, value in _split_choice(choice, layout.holder):
            yield events, {**head, CHOICES: [value]}
            head = {name: doc[name] for name in IDENTITY_MEMBERS if name in doc}


def _split_choice(choice: Choice, holder: str) -> Iterator[Split]:
    value = choice.value
    if not choice.units:
        yield ((choice.finish,) if choice.finish else ()), value
        return
    message = value[holder] if holder else value
    names = {unit.name for unit in choice.units}
    other_members = {name: member for name, member in message.items() if name not in names}
    base: Json = {**value, holder: other_members} if holder else {"text": "", **other_members}
    base |= {name: None for name in ("finish_reason", "logprobs") if base.get(name)}
    minimal: Json = {"index": value.get("index", choice.number)}
    minimal[holder or "text"] = {} if holder else ""
    minimal["finish_reason"] = None
    for unit in choice.units:
        # Steps from the root to the unit's value.
        depth = (4 if holder else 3) + (unit.position is not None)
        paths = [_find_delta(events).slot[depth:] for events in unit.texts[1:]]
        for number, events in enumerate(unit.texts):
            if number == 0:
                content = blank_texts(unit.value, paths)
            else:
                path, text = paths[number - 1], _find_delta(events).text
                content = copy_with_only_text(unit.value, path, text)
            member = {unit.name: content if unit.position is None else [content]}
            split_value = base | ({holder: {**base[holder], **member}} if holder else member)
            if any(type(event) is Attach for event in events):
                split_value["logprobs"] = value["logprobs"]
            relocated = (_relocate_event(event, unit, depth, number) for event in events)
            yield tuple(relocated), split_value
            base = minimal
    if choice.finish is not None:
        end = {**base, "logprobs": None, "finish_reason": value["finish_reason"]}
        yield (choice.finish,), end


def _find_delta(events: tuple[Event, ...]) -> Delta:
    return next(event for event in events if type(event) is Delta)


def _relocate_event(event: Event, unit: MessageUnit, depth: int, number: int) -> Event:
    """Return an event with its slot in the split document, which has text ``number`` of a unit."""
    if type(event) not in (Attach, PartStart, Delta) or not event.slot:  # type: ignore[union-attr]
        return event
    slot: Slot = event.slot  # type: ignore[union-attr]
    steps = [slot[0], 0, *slot[2:]]
    if unit.position is not None and len(steps) >= depth:
        steps[depth - 1] = 0
    if number:
        steps = [0 if type(step) is int else step for step in steps]
    return event._replace(slot=tuple(steps))  # type: ignore[call-arg]


def copy_with_only_text(value: Any, path: Slot, text: str) -> Any:
    """Return a value whose only text is ``text``, at a path.

    Items of lists keep their number and type.
    """
    if not path:
        return text
    step, rest = path[0], path[1:]
    inner = copy_with_only_text(value[step], rest, text)
    if type(step) is int:
        return [inner]
    return {name: value[name] for name in ("index", "type") if name in value} | {step: inner}


def blank_texts(value: Any, paths: Iterable[Slot]) -> Any:
    """Return a value with empty strings at the paths. Copies each container on a path once."""
    copies: set[int] = set()
    root: list[Any] = [value]
    for path in paths:
        node: Any = root
        for step in (0, *path[:-1]) if path else ():
            child = node[step]
            if id(child) not in copies:
                node[step] = child = child.copy()
                copies.add(id(child))
            node = child
        node[path[-1] if path else 0] = ""
    return root[0]
