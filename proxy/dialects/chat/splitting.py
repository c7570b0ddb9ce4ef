"""Splits a document with several texts into documents with one text each.

Together they mean the same to a client. The first document of a choice keeps all that is beside its
texts, and the first of a tool call all that the call has. The finish reason comes last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.dialects.chat.choices import Choice, Unit, UnitText
from proxy.dialects.chat.one_text import alone, blanked
from proxy.dialects.chat.tables import IDENTITY, ChatForm
from proxy.types import Json
from proxy.types.events import Attach, Begin, Delta, Event, Slot

Split = tuple[tuple[Event, ...], Json]
"""The events of a frame and its document."""


def split(doc: Json, choices: Sequence[Choice], form: ChatForm) -> Iterator[Split]:
    """Yield the texts of the choices, and their ends."""
    head = {name: value for name, value in doc.items() if name not in ("choices", "usage")}
    for choice in choices:
        parts = _DocumentParts(choice, form)
        for events, value in parts.each():
            yield events, {**head, "choices": [value]}
            head = {name: doc[name] for name in IDENTITY if name in doc}


class _DocumentParts:
    """The documents of one choice."""

    def __init__(self, choice: Choice, form: ChatForm) -> None:
        self._choice = choice
        self._form = form
        self._index = {"index": choice.value.get("index", choice.number)}

    def each(self) -> Iterator[Split]:
        choice, form = self._choice, self._form
        if not choice.units:
            yield ((choice.finish,) if choice.finish else ()), choice.value
            return
        bare = self._bare()
        for unit in choice.units:
            others = [text.path for text in unit.texts[1:]]
            for text in unit.texts:
                if text is unit.texts[0]:
                    value, zeroed = blanked(unit.value, others), False
                else:
                    value, zeroed = _alone(unit, text), True
                yield self._placed(bare, unit, text, value, zeroed=zeroed)
                bare = {**self._index, **({form.holder: {}} if form.holder else {"text": ""})}
                bare["finish_reason"] = None
        if choice.finish is not None:
            end = {**bare, "logprobs": None, "finish_reason": choice.value["finish_reason"]}
            yield (choice.finish,), end

    def _bare(self) -> Json:
        """Return the choice without its units and its finish reason."""
        value, holder = self._choice.value, self._form.holder
        names = {unit.name for unit in self._choice.units}
        message = value[holder] if holder else value
        rest = {name: each for name, each in message.items() if name not in names}
        made = {**value, holder: rest} if holder else {"text": "", **rest}
        if made.get("finish_reason"):
            made["finish_reason"] = None
        if made.get("logprobs"):
            made["logprobs"] = None
        return made

    def _placed(self, bare: Json, unit: Unit, text: UnitText, value: Any, *, zeroed: bool) -> Split:
        """Return the events of a text, and the choice that has no other text."""
        holder = self._form.holder
        member = {unit.name: value if unit.place is None else [value]}
        made = {**bare, holder: {**bare[holder], **member}} if holder else {**bare, **member}
        if any(type(event) is Attach for event in text.events):
            made["logprobs"] = self._choice.value["logprobs"]
        start = 2 + bool(holder) + 1  # the place of a tool call in the slot
        return tuple(_moved(event, start, unit, zeroed=zeroed) for event in text.events), made


def _alone(unit: Unit, text: UnitText) -> Any:
    delta = next(event for event in text.events if type(event) is Delta)
    return alone(unit.value, text.path, delta.text)


def _moved(event: Event, start: int, unit: Unit, *, zeroed: bool) -> Event:
    """Return an event with the slot that it has in its own document."""
    if type(event) not in (Attach, Begin, Delta) or not event.slot:  # type: ignore[union-attr]
        return event
    slot: Slot = event.slot  # type: ignore[union-attr]
    steps = [slot[0], 0, *slot[2:]]
    if unit.place is not None and len(steps) > start:
        steps[start] = 0
    if zeroed:
        steps = [0 if type(step) is int else step for step in steps]
    return event._replace(slot=tuple(steps))  # type: ignore[call-arg]
