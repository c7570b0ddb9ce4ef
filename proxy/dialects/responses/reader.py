"""Reader of Responses streams: events of the API become frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.dialects.family import ReadOptions
from proxy.dialects.pieces import dump
from proxy.dialects.responses.numbering import EventNumbers
from proxy.dialects.responses.open_items import OpenItem, OpenItems, OpenText, SameDelta
from proxy.dialects.responses.tables import (
    ADDED,
    ANNOTATED,
    BY_CALL,
    BY_DELTA,
    BY_DONE,
    BY_PART,
    DONE,
    ECHOED,
    ENDS,
    FAMILY,
    OBFUSCATION,
    OF_RESPONSE,
    OUTPUT,
    PART_INDEX,
    SEQUENCE,
    TextType,
    is_silent,
    is_silent_object,
    member,
    string,
)
from proxy.dialects.responses.usage import ending, start_of
from proxy.errors import UpstreamInvalid
from proxy.types import Json
from proxy.types.events import (
    STOP,
    Attach,
    Begin,
    Delta,
    End,
    Event,
    Finish,
    Frame,
    Native,
    Part,
    Start,
    UsageReport,
)

_DELTA = ("delta",)
_ARGUMENTS = "_arguments.delta"
"""Suffix of the type of deltas whose text is JSON."""


class ResponsesReader:
    """Reads one stream. An event that repeats a text yields no second delta.

    A text that no delta had comes in frames without document ahead of the event that has it. In
    documents for guards a repeated text is empty, and what repeats the request is left out: the
    writer fills in both.
    """

    __slots__ = (
        *("_crosses", "_doc", "_inspects", "_items", "_loose", "_model_call", "_numbers", "_out"),
        *("_raw", "_same", "_splits", "_started", "_stopped"),
    )

    def __init__(self, options: ReadOptions) -> None:
        self._inspects = options.inspect
        self._crosses = options.crossing
        self._splits = options.split
        self._model_call = options.model_call
        self._numbers = EventNumbers()
        self._out: list[Event] = []  # of the current document
        self._doc: Json = {}
        self._raw: bytes | None = None
        self._items = OpenItems(self._out, is_strict=self._splits, crosses=self._crosses)
        self._loose: dict[object, Part] = {}  # texts of no item
        self._same: SameDelta | None = None  # the document before
        self._started = self._stopped = False

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        same = self._same
        if same is not None and doc.keys() == same.keys:
            text, sequence = doc["delta"], doc[SEQUENCE]
            is_plain = type(text) is str and type(sequence) is int and not doc.get("logprobs")
            if is_plain and same.where(doc) == same.place:
                self._numbers.sequence = sequence
                if self._inspects and OBFUSCATION in doc:
                    doc = doc.copy()
                    del doc[OBFUSCATION]
                events = (Delta(same.part, text, _DELTA),)
                kept = None if self._inspects else raw
                return (Frame(events, FAMILY, doc, raw=kept, model_call=self._model_call),)
        return self.read_made(doc, raw)

    def end(self, *, done: bool = False) -> Sequence[Frame]:
        if self._stopped:
            return ()
        early = "The upstream ended the stream before the response was complete."
        raise UpstreamInvalid(early).caused("closed")

    def read_made(self, doc: Json, raw: bytes | None = None) -> Sequence[Frame]:
        """Read a document, which has no bytes if it was not received."""
        self._same = None
        kind = doc.get("type")
        if self._stopped or not isinstance(kind, str) or not kind.isprintable():
            return ()
        numbered = self._numbers.feed(doc)
        self._doc, self._raw = doc, None if self._inspects else raw
        if numbered is not None:
            self._doc = numbered
            self._raw = None if self._raw is None else dump(numbered, len(self._raw))
        inner = doc.get("delta")
        if self._splits and isinstance(inner, dict) and len(inner) > 1:
            self._raw = None
            docs = [{**self._doc, "delta": {name: each}} for name, each in inner.items()]
        else:
            docs = [self._doc]
        return [frame for each in docs for frame in self._read_one(kind, each)]

    def _read_one(self, kind: str, doc: Json) -> list[Frame]:
        self._doc = doc
        self._out.clear()
        self._dispatch(kind)
        if self._inspects and OBFUSCATION in self._doc:
            self._doc = {name: each for name, each in self._doc.items() if name != OBFUSCATION}
        if self._crosses:
            self._out[:] = [event for event in self._out if type(event) is not Native]
            if not self._out:
                return []
        elif not self._out:
            self._out.append(Native())
        return self._frames()

    def _dispatch(self, kind: str) -> None:
        doc = self._doc
        is_text = isinstance(doc.get("delta"), str)
        if kind in BY_DELTA and is_text:
            self._text_delta(BY_DELTA[kind])
        elif kind in BY_DONE:
            self._text_done(BY_DONE[kind])
        elif kind in PART_INDEX:
            self._part(kind, member(doc.get("part")))
        elif kind in (ADDED, DONE):
            self._item(kind, member(doc.get("item")))
        elif kind in OF_RESPONSE:
            self._response(kind, member(doc.get("response")))
        elif kind == ANNOTATED:
            self._annotation()
        elif kind.endswith(".delta") and isinstance(doc.get("delta"), str | dict):
            self._other_delta(kind)
        else:
            self._native(self._items.get(doc.get(OUTPUT)))

    def _frames(self) -> list[Frame]:
        """Return the frames of the events of the document."""
        events, started = self._out, self._started
        if not started and any([type(event) is not Native for event in events]):
            self._started = True
            if type(events[0]) is not Start:
                events.insert(0, Start(None, None, None))
        frames: list[Frame] = []
        own: list[Event] = []  # of the frame with the document
        for event in events if self._splits else ():
            kind = type(event)
            is_ahead = kind is Delta and not event.slot  # type: ignore[union-attr]
            if own and type(own[-1]) is End and kind in _AFTER_END:
                frames.append(self._frame_ahead(own))
                own = []
            own.append(event)
            if is_ahead:
                frames.append(self._frame_ahead(own))
                own = []
        own = own if self._splits else events
        frame = Frame(tuple(own), FAMILY, self._doc, raw=self._raw, model_call=self._model_call)
        return [*frames, frame]

    def _frame_ahead(self, events: list[Event]) -> Frame:
        made = [event._replace(slot=()) if type(event) is Begin else event for event in events]
        return Frame(tuple(made), FAMILY, model_call=self._model_call)

    def _native(self, item: OpenItem | None, *named: str) -> None:
        """Add `Native` where the document has members that neither are silent nor `named`, or
        where no event tells the part of the document."""
        part = None if item is None else item.part
        doc = self._doc
        if not self._out or (
            self._inspects
            and not all([name in named or is_silent(name, value) for name, value in doc.items()])
        ):
            self._out.append(Native(part))

    # Texts

    def _text_delta(self, text_type: TextType) -> None:
        doc = self._doc
        at, number = doc[OUTPUT], doc.get(text_type.numbered_by, 0)
        item = self._items.of_text(at, text_type)
        if item is None:
            if self._splits and self._items.is_done(at):
                raise UpstreamInvalid("The upstream continued an output item that had ended.")
            return
        text = item.text(text_type, number)
        delta = text.with_beginning(doc["delta"])
        if delta is not doc["delta"]:
            self._doc, self._raw = {**doc, "delta": delta}, None
        text.has_delta = text.has_delta or bool(delta)
        self._out.append(Delta(text.part, delta, _DELTA))
        if self._splits and doc.get("logprobs"):
            self._out.append(Attach(text.part, "logprobs", doc["logprobs"], slot=("logprobs",)))
        self._native(item, "delta", "logprobs", OBFUSCATION)
        if type(self._out[-1]) is not Native and type(doc.get(SEQUENCE)) is int:
            self._same = SameDelta.of(doc, text.part)

    def _text_done(self, text_type: TextType) -> None:
        doc = self._doc
        at, number = doc[OUTPUT], doc.get(text_type.numbered_by, 0)
        item = self._items.of_text(at, text_type)
        if item is None:
            self._native(None)
            return
        text = item.text(text_type, number)
        self._doc = self._repeated(text, doc)
        self._out.append(Native(text.part))

    def _part(self, kind: str, part: Json) -> None:
        doc = self._doc
        text_type = BY_PART.get(string(part.get("type")))
        item = None
        if text_type is not None:
            item = self._items.of_text(doc[OUTPUT], text_type)
        if item is None or text_type is None:
            self._native(self._items.get(doc[OUTPUT]))
            return
        text = item.text(text_type, doc[PART_INDEX[kind]])
        if kind.endswith(".added"):
            self._doc = {**doc, "part": self._begun(text, part)}
        else:
            self._doc = {**doc, "part": self._repeated(text, part)}
            text.has_ended = True
            self._out.append(End(text.part))
        self._native(item)

    def _begun(self, text: OpenText, value: Json) -> Json:
        """Return a part or an item that begins, without the text that it has already: this comes
        with the first delta."""
        name = text.type.member
        known = string(value.get(name))
        if not known or text.has_delta:
            return value
        if not self._splits:
            text.has_delta = True
            self._out.append(Delta(text.part, known))
            return value
        text.beginning = known
        self._raw = None
        return {**value, name: ""}

    def _repeated(self, text: OpenText, value: Json) -> Json:
        """Return what repeats a text, for guards without it; add a delta if none has had it."""
        name = text.type.member
        known = string(value.get(name))
        if known and not text.has_delta:
            text.has_delta = True
            text.beginning = ""
            self._out.append(Delta(text.part, known))
        if not (self._inspects and text.has_delta):
            return value
        return {**value, name: ""} | ({"logprobs": []} if "logprobs" in value else {})

    # Items

    def _item(self, kind: str, item: Json) -> None:
        at = self._doc[OUTPUT]
        if kind == DONE:
            if self._items.is_done(at):
                self._native(None)
                return
            self._doc = {**self._doc, "item": self._closed(at, item)}
            self._native(None)
            return
        begun = self._items.begin(at, item, is_new=True)
        text_type = BY_CALL.get(string(item.get("type")))
        if text_type is not None:
            item = self._begun(begun.text(text_type, 0), item)
            self._doc = {**self._doc, "item": item}
        rest = {**item, "name": ""} if isinstance(item.get("name"), str) else item
        is_known = text_type is not None and is_silent_object(rest)
        self._native(begun, *(("item",) if is_known else ()))

    def _closed(self, at: int, item: Json) -> Json:
        """End an item. Return it, for guards without the texts that deltas had."""
        known = self._items.get(at) or self._items.begin(at, item)
        made = dict(item)
        for within in ("content", "summary"):
            if isinstance(item.get(within), list):
                parts = enumerate(item[within])
                made[within] = [self._closed_part(known, within, n, part) for n, part in parts]
        text_type = BY_CALL.get(string(item.get("type")))
        if text_type is not None and known.part.kind == text_type.kind:
            made = self._repeated(known.text(text_type, 0), made)
        self._items.end(at, known)
        return made

    def _closed_part(self, item: OpenItem, within: str, number: int, part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        text_type = BY_PART.get(string(part.get("type")))
        if text_type is None or text_type.within != within or item.part.kind == "opaque":
            return part
        text = item.texts.get((text_type.kind, number))
        has_text = bool(string(part.get(text_type.member)))
        if (text is None or not text.has_delta) and has_text:
            text = item.text(text_type, number)
        if text is None:
            return part
        part = self._repeated(text, part)
        item.end_text(text)
        return part

    # The response

    def _response(self, kind: str, response: Json) -> None:
        if not self._started:
            self._started = True
            self._out.append(start_of(response))
        made = response
        if kind in ENDS:
            output = response.get("output")
            items = output if isinstance(output, list) else []
            made = {**response, "output": [self._final(at, each) for at, each in enumerate(items)]}
            self._items.end_all()
            self._out += [*ending(response, has_calls=self._items.has_calls), STOP]
            self._stopped = True
        if self._inspects:
            made = {name: each for name, each in made.items() if name not in ECHOED}
            self._doc = {**self._doc, "response": made}
        silent = is_silent_object(made) and self._doc.keys() <= {"type", "response", SEQUENCE}
        if self._inspects and not silent:
            self._out.insert(len(self._out) - (kind in ENDS), Native(None))

    def _final(self, at: int, item: Any) -> Any:
        """Read an item of the final response, unless events have told all of it."""
        if not isinstance(item, dict):
            if self._splits:
                raise UpstreamInvalid("The upstream sent an output item that is not an object.")
            return item
        if self._items.is_done(at):
            return {} if self._inspects else item
        return self._closed(at, item)

    # Others

    def _annotation(self) -> None:
        doc = self._doc
        item = self._items.get(doc[OUTPUT])
        text = None if item is None else item.texts.get(("text", doc["content_index"]))
        if text is None or text.has_ended or self._crosses:
            self._native(item)
            return
        self._out.append(Attach(text.part, "citation", doc.get("annotation"), slot=("annotation",)))
        self._native(item, "annotation")

    def _other_delta(self, kind: str) -> None:
        """Read a delta of a tool that the provider runs, or of an unknown kind. Its texts are told
        apart by its type, its numbers and their members."""
        doc = self._doc
        if self._crosses:
            return
        item = self._items.get(doc.get(OUTPUT))
        texts = self._loose if item is None else item.others
        numbers = [(name, each) for name, each in doc.items() if name.endswith("_index")]
        numbers = [pair for pair in numbers if type(pair[1]) is int]
        inner = doc["delta"]
        slots = [_DELTA] if isinstance(inner, str) else [("delta", name) for name in inner]
        for slot in slots:
            piece = inner if len(slot) == 1 else inner[slot[1]]
            if isinstance(piece, str):
                key = kind, *numbers, *slot
                text = self._items.other(texts, key, item, is_json=kind.endswith(_ARGUMENTS))
                self._out.append(Delta(text, piece, slot))
        values = inner.values() if isinstance(inner, dict) else ()
        named = "delta" if all([isinstance(each, str) for each in values]) else ""
        self._native(item, OBFUSCATION, named)


_AFTER_END = frozenset({Begin, Delta, End, UsageReport, Finish})
"""Types of the events that never share a frame with an `End` before them."""
