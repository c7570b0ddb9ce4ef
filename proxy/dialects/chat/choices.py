"""Reads the choices of a document: their texts, tool calls and finish reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from proxy.dialects.call_numbers import CallNumbers, named_by_us, written_arguments
from proxy.dialects.chat.tables import (
    FINISHES,
    INPUTS,
    MAX_PARTS,
    SILENT_CALL,
    SILENT_OF_CHOICE,
    THOUGHTS,
    ChatForm,
)
from proxy.dialects.content_parts import joined_message
from proxy.dialects.documents import MOST_VALUES
from proxy.dialects.shapes import fits, one_of
from proxy.dialects.signed_calls import signature_of
from proxy.errors import ResponseTooLarge
from proxy.types import Json
from proxy.types.events import (
    Attach,
    Begin,
    Closing,
    Delta,
    Event,
    Finish,
    Kind,
    Part,
    Slot,
    ToolCall,
)
from proxy.types.index import index_of

_EMPTY = frozenset(
    {"annotations", "audio", "content", "function_call", "reasoning", "reasoning_content"}
    | {"refusal", "text", "tool_calls"}
)
"""Members of a message that say nothing if they are empty."""
_IS_ROLE = one_of("assistant", "")
_OF_PARTS: dict[str, Kind] = {"thinking": "reasoning", "text": "text", "refusal": "refusal"}
"""The kinds of text in a list of content parts, by the type of the part."""


class UnitText(NamedTuple):
    """The events of one text; `path` leads to the text within the value of its unit."""

    path: Slot
    events: tuple[Event, ...]


class Unit(NamedTuple):
    """A member of a message, or one tool call, at `place` in their list. `is_changed`: its value is
    not the one in the document."""

    name: str
    place: int | None
    value: Any
    texts: list[UnitText]
    is_changed: bool = False


class Choice(NamedTuple):
    """One choice of a document. `is_native`: it has members that no event represents."""

    place: int
    number: int
    value: Json
    units: list[Unit]
    finish: Finish | None
    is_native: bool


class ChoiceReader:
    """Reads the choices of one answer. In `inspect` mode it finds members without an event, in
    `crossing` mode each tool call has an id. In both it raises `ResponseTooLarge` for too many
    parts. `whole`: each object in a list of tool calls is a call of its own.
    """

    __slots__ = (
        *("_counts", "_crossing", "_inspect", "_max_parts", "_numbers", "_parts", "_split"),
        *("_whole", "finished", "form"),
    )

    def __init__(
        self, form: ChatForm, *, inspect: bool, crossing: bool, whole: bool = False
    ) -> None:
        self.form = form
        self._inspect = inspect
        self._crossing = crossing
        self._whole = whole
        self._split = inspect or crossing
        self._max_parts = MOST_VALUES if whole else MAX_PARTS  # a document bounds its own
        self._parts: dict[tuple[int, object], Part] = {}
        self._counts: dict[int, int] = {}  # of parts, by choice
        self._numbers: dict[int, CallNumbers] = {}
        self.finished: set[int] = set()

    @property
    def begun(self) -> set[int]:
        """The numbers of the choices that have parts."""
        return {*self._counts}

    def read(self, value: Json, place: int, answer: object) -> Choice:
        """Read one choice. `answer` is the id of the answer."""
        number = index_of(value, place)
        holder = value.get(self.form.holder) if self.form.holder else value
        if number in self.finished:
            return Choice(
                place=place,
                number=number,
                value=value,
                units=[],
                finish=None,
                is_native=self._inspect and (bool(holder) or not self._is_silent(value, holder)),
            )
        is_native = self._inspect and not self._is_silent(value, holder)
        units: list[Unit] = []
        if type(holder) is dict:
            parts = holder.get("content")
            message = (
                joined_message(holder) if type(parts) is list and not self._inspect else holder
            )
            units += self._texts(message, number, value, place)
            if message is not holder:
                units = [unit._replace(is_changed=True) for unit in units]
            elif type(parts) is list:
                units += self._content_parts(parts, number, place)
            if "tool_calls" in holder or "function_call" in holder:
                units += self._calls(holder, number, place, answer)
        return Choice(
            place=place,
            number=number,
            value=value,
            units=units,
            finish=self._finish(value, number),
            is_native=is_native,
        )

    def _base(self, place: int) -> Slot:
        return ("choices", place, self.form.holder) if self.form.holder else ("choices", place)

    def _texts(self, message: Json, number: int, value: Json, place: int) -> Iterator[Unit]:
        """Yield the texts of a message in the order of a chat."""
        for name, kind in self.form.texts.items():
            text = message.get(name)
            if type(text) is not str or not text or _is_repeated(name, message):
                continue
            part, begin = self._part(number, kind, kind)
            if part is None:
                continue
            events: list[Event] = [*begin, Delta(part, text, (*self._base(place), name))]
            if self._split and kind == "text" and value.get("logprobs"):
                slot: Slot = ("choices", place, "logprobs")
                events.append(Attach(part, "logprobs", value=value["logprobs"], slot=slot))
            yield Unit(name, None, text, texts=[UnitText((), tuple(events))])

    def _calls(self, message: Json, number: int, place: int, answer: object) -> Iterator[Unit]:
        calls, known = message.get("tool_calls"), message.get("function_call")
        seen: set[object] = set()
        for at, call in enumerate(calls if type(calls) is list else ()):
            if type(call) is dict:
                unit = self._call(call, (number, place, at), seen, answer)
                if unit is not None:
                    yield unit
        if type(known) is dict:
            yield self._old_call(known, number, place, answer)

    def _call(
        self, call: Json, at: tuple[int, int, int], seen: set[object], answer: object
    ) -> Unit | None:
        """Read a part of a tool call. `at` is the number of the choice, its place, and the place of
        the call; `seen` are the indexes of the calls before it in the same document."""
        number, place, order = at
        made = call if self._whole else self._numbered(call, number, order, seen)
        if made is None:
            return None
        index = order if self._whole else made["index"]
        seen.add(index)
        written = written_arguments(made)
        is_new = (number, index) not in self._parts
        if is_new and self._crossing:
            written = named_by_us(written, answer, index)
        kind = next((kind for kind in INPUTS if type(written.get(kind)) is dict), "function")
        function = written.get(kind)
        inner = function if type(function) is dict else {}
        member, of_text = INPUTS[kind]
        base: Slot = (*self._base(place), "tool_calls", order)
        begin: tuple[Event, ...] = ()
        name = inner.get("name")
        if is_new:
            tool = ToolCall(str(written.get("id") or ""), name if type(name) is str else "", kind)  # type: ignore[arg-type]
            part, begin = self._part(
                number, index, of_text, tool=tool, slot=(*base, kind, "name"), closing="json"
            )
            begin += self._signature(part, call)
        else:
            part = self._parts[number, index]
        if part is None:
            return None
        text = inner.get(member)
        events = [Delta(part, text, (*base, kind, member))] if text and type(text) is str else []
        path: Slot = (kind, member) if events else ()
        changed = made is not call if self._inspect else written is not call
        texts = [UnitText(path, (*begin, *events))]
        return Unit("tool_calls", order, made, texts=texts, is_changed=changed)

    def _numbered(self, call: Json, number: int, order: int, seen: set[object]) -> Json | None:
        """Return a part of a call with the index of its call. None if there are too many."""
        numbers = self._numbers.get(number)
        if numbers is None:
            if len(self._numbers) >= self._max_parts and not self._split:
                return None
            numbers = self._numbers[number] = CallNumbers(MAX_PARTS)
        try:
            return numbers.renumbered(call, order, seen)
        except ResponseTooLarge:
            if self._split:
                raise
            return None

    def _signature(self, part: Part | None, call: Json) -> tuple[Event, ...]:
        """Return the thought signature of a call that crosses."""
        signature = signature_of(call) if self._crossing else None
        return () if part is None or not signature else (Attach(part, "signature", signature),)

    def _old_call(self, call: Json, number: int, place: int, answer: object) -> Unit:
        """Read a part of a deprecated `function_call`."""
        written = written_arguments({"function": call})["function"]
        name, text = call.get("name"), written.get("arguments")
        base: Slot = (*self._base(place), "function_call")
        given = named_by_us({}, answer, 0)["id"] if self._crossing else ""
        tool = ToolCall(given, name if type(name) is str else "")
        part, events = self._part(
            number, "function_call", "arguments", tool=tool, slot=(*base, "name"), closing="json"
        )
        path: Slot = ()
        if part is not None and text and type(text) is str:
            path = ("arguments",)
            events = (*events, Delta(part, text, (*base, *path)))
        changed = not self._inspect and written is not call
        texts = [UnitText(path, events)]
        return Unit("function_call", None, call, texts=texts, is_changed=changed)

    def _content_parts(self, parts: list[Any], number: int, place: int) -> Iterator[Unit]:
        """Yield a content that is a list of parts, with the texts of known parts."""
        texts: list[UnitText] = []
        for path, text, kind in _texts_of_parts(parts):
            part, begin = self._part(number, kind, kind)
            if part is not None:
                delta = Delta(part, text, (*self._base(place), "content", *path))
                texts.append(UnitText(path, (*begin, delta)))
        if texts:
            yield Unit("content", None, parts, texts=texts)

    def _is_silent(self, value: Json, holder: Any) -> bool:
        """Return True if events represent all that a choice has."""
        if self.form.holder:
            rest = {name: each for name, each in value.items() if name != self.form.holder}
            if type(holder) is not dict:
                return holder is None and fits(rest, SILENT_OF_CHOICE)
        else:
            rest = {name: value[name] for name in SILENT_OF_CHOICE if name in value}
        text = holder.get("content", holder.get("text"))
        if text and type(text) is str:  # which has an event for them
            rest.pop("logprobs", None)
        if not fits(rest, SILENT_OF_CHOICE):
            return False
        return all([self._is_silent_member(name, each, holder) for name, each in holder.items()])

    def _is_silent_member(self, name: str, value: Any, holder: Json) -> bool:
        if name in self.form.texts:
            if _is_repeated(name, holder):
                return False
            return value is None or type(value) is str
        if name == "role":
            return _IS_ROLE(value)
        if name == "tool_calls" and type(value) is list:
            return all([fits(call, SILENT_CALL) for call in value])
        if name == "function_call" and type(value) is dict:
            return fits({"function": value}, SILENT_CALL)
        if not value:
            return name in _EMPTY
        return not self.form.holder and name in SILENT_OF_CHOICE

    def _part(
        self,
        number: int,
        key: object,
        kind: Kind,
        *,
        tool: ToolCall | None = None,
        slot: Slot = (),
        closing: Closing = "implicit",
    ) -> tuple[Part | None, tuple[Event, ...]]:
        """Return a part and, if it is new, the event that begins it. None if there are too many."""
        part = self._parts.get((number, key))
        if part is not None:
            return part, ()
        if len(self._parts) >= self._max_parts:
            if self._split:
                raise ResponseTooLarge("The upstream sent too many parts.")
            return None, ()
        position = self._counts.get(number, 0)
        self._counts[number] = position + 1
        part = Part(kind, position, choice=number, closing=closing)
        self._parts[number, key] = part
        return part, (Begin(part, tool, slot if tool is not None and tool.name else ()),)

    def _finish(self, value: Json, number: int) -> Finish | None:
        reason = value.get("finish_reason")
        if not reason or len(self.finished) >= self._max_parts:  # some servers send an empty one
            return None
        self.finished.add(number)
        native = str(reason)
        return Finish(number, FINISHES.get(native, "other"), native)


def _is_repeated(name: str, message: Json) -> bool:
    """Return True for reasoning that the message has under another name too."""
    return name == THOUGHTS[1] and bool(message.get(THOUGHTS[0]))


def _texts_of_parts(parts: list[Any]) -> Iterator[tuple[Slot, str, Kind]]:
    """Yield the path, the text and the kind of each text in a list of content parts."""
    for at, item in enumerate(parts):
        name = item.get("type") if type(item) is dict else None
        kind = _OF_PARTS.get(name) if type(name) is str else None
        value = item[name] if kind is not None and name in item else None
        if kind is not None and type(value) is str and value:
            yield (at, str(name)), value, kind
        elif name == "thinking" and type(value) is list:
            for within, each in enumerate(value):
                text = each.get("text") if type(each) is dict else None
                if type(text) is str and text:
                    yield (at, "thinking", within, "text"), text, "reasoning"
