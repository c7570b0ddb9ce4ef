"""Reads chat completions and legacy completions, streamed or whole, into frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from proxy.dialects.call_numbers import EMPTY, SPACE
from proxy.dialects.chat.choices import Choice, ChoiceReader, Unit
from proxy.dialects.chat.merging import as_stream
from proxy.dialects.chat.same_shape import SameShape, is_shape
from proxy.dialects.chat.splitting import split
from proxy.dialects.chat.tables import CHAT, IDENTITY, PADDING, SILENT_MEMBERS, ChatForm
from proxy.dialects.family import ReadOptions
from proxy.dialects.findings import DETECTIONS, HOOKS
from proxy.dialects.shapes import fits
from proxy.errors import UpstreamInvalid
from proxy.money.usage import read_usage
from proxy.types import Json
from proxy.types.events import (
    STOP,
    Begin,
    Delta,
    Event,
    Extension,
    Finish,
    Frame,
    Native,
    Part,
    Start,
    UsageReport,
)
from proxy.types.index import index_of

_new: Final = tuple.__new__
"""Makes a named tuple of all of its fields, in a third of the time that its class takes."""


class ChatReader:
    """Reads the documents of one answer. `form` is where they have their texts.

    For a client of another family, arguments ``{}`` at the beginning of a tool call are held back:
    some servers send them in the place of the real ones, which follow.
    """

    __slots__ = (
        *("_choices", "_crossing", "_family", "_form", "_held", "_inspect", "_is_started"),
        *("_model_call", "_only", "_options", "_shape", "_split"),
    )

    def __init__(self, options: ReadOptions, form: ChatForm = CHAT) -> None:
        self._options = options
        self._form = form
        self._family = form.family
        self._model_call = options.model_call
        self._crossing = options.crossing
        self._split = options.split
        self._inspect = options.inspect and not options.crossing
        self._choices = ChoiceReader(
            form,
            inspect=self._inspect,
            crossing=options.crossing,
            whole=options.whole and not options.stream,
        )
        self._is_started = False
        self._only: int | None = None  # the choice that a client of another family gets
        self._shape: SameShape | None = None
        self._held: dict[Part, str] = {}  # placeholders of arguments

    def read(self, doc: Json, raw: bytes | None) -> Sequence[Frame]:
        if self._split and PADDING in doc:
            doc, raw = {name: each for name, each in doc.items() if name != PADDING}, None
        shape = self._shape
        if shape is not None:
            delta = shape.delta(doc)
            if delta is not None:
                values = (delta,), self._family, doc, raw, self._model_call, 0, False, None
                return (_new(Frame, values),)
        if self._options.finishes:
            doc, raw = _reworded(doc, raw, dict(self._options.finishes))
        return self._whole(doc, raw) if self._options.whole else self._read(doc, raw)

    def end(self, *, done: bool = False) -> Sequence[Frame]:
        """Return the frames at the end of a stream, `done` with ``[DONE]``."""
        finished = self._choices.finished
        if not done and not finished:
            early = "The upstream ended the stream before the response was complete."
            raise UpstreamInvalid(early).caused("closed")
        frames = [*map(self._frame, self._taken_held())]
        missing = sorted(self._choices.begun - finished) or ([] if finished else [0])
        events = [Finish(number, "stop") for number in missing if self._is_started]
        return [*frames, self._frame((*events, STOP))]

    def _frame(
        self, events: tuple[Event, ...], doc: Json | None = None, raw: bytes | None = None
    ) -> Frame:
        return Frame(
            events=events, family=self._family, doc=doc, raw=raw, model_call=self._model_call
        )

    def _read(self, doc: Json, raw: bytes | None) -> list[Frame]:
        """Return the frames of a document of a stream."""
        self._shape = None
        before = self._start(doc)
        choices = self._choices_of(doc)
        after = self._beside(doc)
        if self._inspect and self._has_other_members(doc, choices):
            after.append(Native())
        if self._crossing:
            frames = self._separate(doc, raw, before, choices, after)
        elif self._inspect and _needs_split(choices):
            frames = self._parted(doc, before, choices, after)
        else:
            events = (*before, *_events_of(choices), *after)
            frames = [self._frame(events, doc, raw)]
        self._note_shape(doc, choices, after)
        return frames

    def _has_other_members(self, doc: Json, choices: list[Choice]) -> bool:
        """Return True if a document has values that no event of its choices represents."""
        if any(choice.is_native for choice in choices) or not fits(doc, SILENT_MEMBERS):
            return True
        return any(type(each) is not dict for each in doc.get("choices") or ())

    def _choices_of(self, doc: Json) -> list[Choice]:
        listed = doc.get("choices")
        if type(listed) is not list:
            return []
        answer = doc.get("id")
        found: list[Choice] = []
        for place, value in enumerate(listed):
            if type(value) is not dict:
                continue
            if self._crossing:  # other families have one choice
                number = index_of(value, place)
                self._only = number if self._only is None else self._only
                if number != self._only:
                    continue
            found.append(self._choices.read(value, place, answer))
        return found

    def _start(self, doc: Json) -> list[Event]:
        """Return the event of the first document that names the answer or has a choice."""
        id_, model, created = doc.get("id"), doc.get("model"), doc.get("created")
        if self._is_started or not (id_ or doc.get("choices") or doc.get("usage") is not None):
            return []
        self._is_started = True
        return [
            Start(
                id_ if type(id_) is str else None,
                model if type(model) is str else None,
                created if type(created) is int else None,
            )
        ]

    def _beside(self, doc: Json) -> list[Event]:
        """Return what a document has beside its choices."""
        events: list[Event] = []
        usage = doc.get("usage")
        if usage is not None:
            native = usage if type(usage) is dict else {}
            events.append(UsageReport(read_usage(usage), native))
        events += [Extension(name, doc[name]) for name in (DETECTIONS, HOOKS) if name in doc]
        return events

    def _separate(
        self,
        doc: Json,
        raw: bytes | None,
        before: list[Event],
        choices: list[Choice],
        after: list[Event],
    ) -> list[Frame]:
        """Return the frames for another family: one for each text, and one for the end. Only the
        frame of a document with a single text has that document."""
        units = [unit for choice in choices for unit in choice.units]
        finishes = [choice.finish for choice in choices if choice.finish is not None]
        if len(units) == 1 and not (finishes or units[0].is_changed or self._held):
            unit = units[0]
            if not _is_placeholder(unit):
                return [self._frame((*before, *unit.texts[0].events, *after), doc, raw)]
        frames: list[Frame] = []
        for unit in units:
            if unit.name != "tool_calls":
                frames += map(self._frame, self._taken_held())
            events = (*before, *self._of_call(unit))
            before = []
            if events:
                frames.append(self._frame(events))
        if finishes:
            frames += map(self._frame, self._taken_held())
        last = (*before, *finishes, *after)
        if last or not frames:
            frames.append(self._frame(last, doc if not units else None))
        return frames

    def _of_call(self, unit: Unit) -> tuple[Event, ...]:
        """Return the events of a unit without a placeholder."""
        events = unit.texts[0].events
        if unit.name != "tool_calls":
            return events
        *others, last = events if events else (None,)
        if type(last) is not Delta:
            return events
        if _is_placeholder(unit):
            self._held[last.part] = last.text
            return tuple(each for each in others if each is not None)
        held = self._held.pop(last.part, "") if last.text.strip(SPACE) else ""
        if held and not last.text.lstrip(SPACE).startswith("{"):
            last = last._replace(text=held + last.text)
        return (*(each for each in others if each is not None), last)

    def _taken_held(self) -> list[tuple[Event, ...]]:
        held, self._held = self._held, {}
        return [(Delta(part, text),) for part, text in held.items()]

    def _parted(
        self, doc: Json, before: list[Event], choices: list[Choice], after: list[Event]
    ) -> list[Frame]:
        """Return frames with one text each, and a document for each."""
        parts = [*split(doc, choices, self._form)]
        frames: list[Frame] = []
        natives = tuple(event for event in after if type(event) is Native)
        others = tuple(event for event in after if type(event) is not Native)
        for events, part in parts:
            frames.append(self._frame((*before, *events, *natives), part))
            before = []
        if others:
            frames.append(self._end_of(doc, others, natives, frames))
        return frames

    def _end_of(
        self,
        doc: Json,
        events: tuple[Event, ...],
        natives: tuple[Native, ...],
        frames: list[Frame],
    ) -> Frame:
        """Return the frame with the usage: the last one if that ends a choice."""
        usage = {"usage": doc["usage"]} if "usage" in doc else {}
        last = frames[-1]
        if any(type(event) is Finish for event in last.events):
            frames.pop()
            return self._frame((*last.events, *events), {**(last.doc or {}), **usage})
        head = {name: doc[name] for name in IDENTITY if name in doc}
        return self._frame((*events, *natives), {**head, "choices": [], **usage})

    def _note_shape(self, doc: Json, choices: list[Choice], after: list[Event]) -> None:
        """Keep the shape of a document that is one delta, for the next one."""
        if after or len(choices) != 1 or len(doc["choices"]) != 1:
            return
        [choice] = choices
        if len(choice.units) != 1 or choice.finish is not None or choice.value.get("logprobs"):
            return
        [unit] = choice.units
        delta = unit.texts[0].events[-1] if unit.texts[0].events else None
        if type(delta) is Delta and is_shape(delta.slot, self._form) and not unit.is_changed:
            if self._held and self._crossing:
                return
            self._shape = SameShape(doc, self._form, delta, exact=self._split)

    def _whole(self, doc: Json, raw: bytes | None) -> list[Frame]:
        """Return the frame of a whole answer, or the frames of a stream that says the same."""
        if self._options.stream:
            frames = [frame for part in as_stream(doc) for frame in self._read(part, None)]
            return [*frames, *self.end(done=True)]
        before = self._start(doc)
        choices = self._choices_of(doc)
        events = (*before, *_events_of(choices), *self._beside(doc), STOP)
        missing = [choice.number for choice in choices if choice.finish is None]
        if missing:
            ends = tuple(Finish(number, "stop") for number in missing)
            events = (*events[:-1], *ends, STOP)
        return [self._frame(events, doc, raw)]


def _events_of(choices: list[Choice]) -> Iterator[Event]:
    for choice in choices:
        for unit in choice.units:
            for text in unit.texts:
                yield from text.events
        if choice.finish is not None:
            yield choice.finish


def _needs_split(choices: list[Choice]) -> bool:
    """Return True for several texts, a text beside an end, or a tool call with another number."""
    texts = sum(len(unit.texts) for choice in choices for unit in choice.units)
    ends = sum(choice.finish is not None for choice in choices)
    if texts > 1 or ends > 1 or (texts and ends):
        return True
    return any(unit.is_changed for choice in choices for unit in choice.units)


def _is_placeholder(unit: Unit) -> bool:
    """Return True for the beginning of a tool call with an empty object as its arguments."""
    events = unit.texts[0].events
    if unit.name != "tool_calls" or len(events) != 2 or type(events[0]) is not Begin:
        return False
    delta = events[1]
    return type(delta) is Delta and delta.text.strip(SPACE) == EMPTY


def _reworded(doc: Json, raw: bytes | None, words: dict[str, str]) -> tuple[Json, bytes | None]:
    """Return a document with the finish reasons of a chat."""
    listed = doc.get("choices")
    choices: list[Any] = []
    for choice in listed if type(listed) is list else ():
        reason = choice.get("finish_reason") if type(choice) is dict else None
        known = words.get(reason.lower()) if type(reason) is str else None
        choices.append(choice if known is None else {**choice, "finish_reason": known})
    same = all(new is old for new, old in zip(choices, listed or (), strict=False))
    return (doc, raw) if same else ({**doc, "choices": choices}, None)
