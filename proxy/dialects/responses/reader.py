"""Reads the events of a Responses stream into frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from proxy.dialects.family import ReadOptions, make_incomplete_stream_error
from proxy.dialects.responses import schema
from proxy.dialects.responses.items import EventNumbering, ItemIdMap, OpenItem, OpenItems, OpenText
from proxy.dialects.responses.schema import TextType, is_textless_object
from proxy.dialects.wire.strict_json import as_object, as_text, dump
from proxy.errors import UpstreamInvalid
from proxy.types import Json
from proxy.types.events import (
    RESPONSE_END,
    Attach,
    Delta,
    Event,
    Finish,
    Frame,
    Part,
    PartEnd,
    PartStart,
    ResponseStart,
    Slot,
    Unmapped,
    UsageReport,
)

_DELTA = ("delta",)
_LOCATION = (schema.OUTPUT_INDEX, schema.ITEM_ID, "content_index", "summary_index")
_OWN_FRAME = frozenset({PartStart, Delta, PartEnd, UsageReport, Finish})
"""Events that never share a frame with an ``PartEnd`` before them."""


class _DeltaShape(NamedTuple):
    """Shape of a delta event. Events of this shape differ only in text and sequence number."""

    keys: Any
    locate: Callable[[Json], tuple[object, ...]]
    location: tuple[object, ...]
    part: Part

    def matches(self, doc: Json, *, exact: bool) -> bool:
        """Return True for an event of the same text. ``exact`` also compares types of indexes."""
        location = self.locate(doc)
        return location == self.location and not (
            exact and [*map(type, location)] != [*map(type, self.location)]
        )


class ResponsesReader:
    """Reads one stream. An event that repeats a text yields no second delta.

    If an event has a text that no delta had, frames with that text precede the event. In documents
    for guards, repeated texts are empty, and members that repeat the request are missing. The
    writer restores both.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._inspects = options.inspect
        self._is_translated = options.is_translated
        self._splits = options.inspect or options.is_translated
        self._model_call = options.model_call
        self._numbers = EventNumbering()
        self._events: list[Event] = []  # events of the current document
        self._doc: Json = {}
        self._raw: bytes | None = None
        self._items = OpenItems(self._events, options)
        self._other_parts: dict[object, Part] = {}  # parts that belong to no item
        self._ids = ItemIdMap()
        self._shape: _DeltaShape | None = None  # shape of the previous document
        self._has_started = self._has_stopped = False

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        if self._inspects and schema.OBFUSCATION in doc:
            doc = {name: value for name, value in doc.items() if name != schema.OBFUSCATION}
        shape = self._shape
        if shape is not None and doc.keys() == shape.keys:
            text, sequence = doc["delta"], doc[schema.SEQUENCE_NUMBER]
            is_plain = type(text) is str and type(sequence) is int and not doc.get("logprobs")
            if is_plain and shape.matches(doc, exact=self._inspects):
                self._numbers.sequence = sequence
                self._raw = None if self._inspects else raw
                return (self._make_frame((Delta(shape.part, text, _DELTA),), doc),)
        return self.read_event(doc, raw)

    def end(self, *, has_done_marker: bool = False) -> Sequence[Frame]:
        if self._has_stopped:
            return ()
        raise make_incomplete_stream_error()

    def read_event(self, doc: Json, raw: bytes | None = None) -> Sequence[Frame]:
        """Read an event. ``raw`` is None for an event that the proxy created."""
        self._shape = None
        kind = doc.get("type")
        if self._has_stopped or not isinstance(kind, str) or not kind.isprintable():
            return ()
        self._raw = None if self._inspects else raw
        numbered = self._numbers.add_missing_numbers(doc)
        if numbered is not None:
            doc = numbered
            self._raw = None if self._raw is None else dump(doc, len(self._raw))
        if self._inspects:
            doc = self._ids.keep_first_id(doc)
        delta = doc.get("delta")
        if not (self._splits and isinstance(delta, dict) and len(delta) > 1):
            return self._read_one_event(kind, doc)
        self._raw = None
        docs = [{**doc, "delta": {name: value}} for name, value in delta.items()]
        return [frame for part_doc in docs for frame in self._read_one_event(kind, part_doc)]

    def _read_one_event(self, kind: str, doc: Json) -> list[Frame]:
        self._doc = doc
        self._events.clear()
        self._dispatch_event(kind)
        if self._is_translated:
            self._events[:] = [event for event in self._events if type(event) is not Unmapped]
        elif not self._events:
            self._events.append(Unmapped())
        return self._make_frames() if self._events else []

    def _dispatch_event(self, kind: str) -> None:
        doc = self._doc
        if kind in schema.TEXT_BY_DELTA and isinstance(doc.get("delta"), str):
            self._read_text_delta(schema.TEXT_BY_DELTA[kind])
        elif kind in schema.TEXT_BY_DONE:
            self._read_text_done(schema.TEXT_BY_DONE[kind])
        elif kind in schema.PART_INDEX:
            self._read_content_part(kind, as_object(doc.get("part")))
        elif kind == schema.ITEM_ADDED:
            self._read_item_added(as_object(doc.get("item")))
        elif kind == schema.ITEM_DONE:
            self._read_item_done(as_object(doc.get("item")))
        elif kind in schema.RESPONSE_EVENTS:
            self._read_response_event(kind, as_object(doc.get("response")))
        elif kind == schema.ANNOTATION_ADDED:
            self._read_annotation()
        else:
            self._read_other_event(kind)

    def _make_frames(self) -> list[Frame]:
        """Return the frames of the events of the document. Only the last one has the document."""
        events = self._events
        if not self._has_started and any([type(event) is not Unmapped for event in events]):
            self._has_started = True
            if type(events[0]) is not ResponseStart:
                events.insert(0, ResponseStart(None, None, None))
        frames: list[Frame] = []
        frame_events: list[Event] = []
        for event in events if self._splits else ():
            if frame_events and type(frame_events[-1]) is PartEnd and type(event) in _OWN_FRAME:
                frames.append(self._make_frame_before_document(frame_events))
                frame_events = []
            frame_events.append(event)
            if type(event) is Delta and not event.slot:
                frames.append(self._make_frame_before_document(frame_events))
                frame_events = []
        final_events = tuple(frame_events if self._splits else events)
        return [*frames, self._make_frame(final_events, self._doc)]

    def _make_frame(self, events: tuple[Event, ...], doc: Json) -> Frame:
        return Frame(events, schema.FAMILY, doc, raw=self._raw, model_call=self._model_call)

    def _make_frame_before_document(self, events: list[Event]) -> Frame:
        bare = [event._replace(slot=()) if type(event) is PartStart else event for event in events]
        return Frame(tuple(bare), schema.FAMILY, model_call=self._model_call)

    def _add_unmapped_unless_covered(self, item: OpenItem | None, *covered_members: str) -> None:
        """Add ``Unmapped`` for text outside of ``covered_members``, or if there is no event."""
        is_silent_doc = not self._inspects or is_textless_object(
            {name: value for name, value in self._doc.items() if name not in covered_members}
        )
        if not (self._events and is_silent_doc):
            self._events.append(Unmapped(None if item is None else item.part))

    # Texts

    def _read_text_delta(self, text_type: TextType) -> None:
        doc = self._doc
        index = doc[schema.OUTPUT_INDEX]
        item = self._items.open_item_for_text(index, text_type)
        if item is None:
            if self._splits and self._items.has_item_ended(index):
                raise UpstreamInvalid("The upstream continued an output item that had ended.")
            return
        text = item.open_text(text_type, doc.get(text_type.index_member, 0))
        delta = text.prepend_unrepeated_beginning(doc["delta"])
        if delta is not doc["delta"]:
            self._doc, self._raw = {**doc, "delta": delta}, None
        text.has_delta = text.has_delta or bool(delta)
        self._events.append(Delta(text.part, delta, _DELTA))
        if self._splits and doc.get("logprobs"):
            self._events.append(Attach(text.part, "logprobs", doc["logprobs"], slot=("logprobs",)))
        self._add_unmapped_unless_covered(item, "delta", "logprobs")
        is_plain = text.has_delta and type(self._events[-1]) is not Unmapped
        if is_plain and type(doc.get(schema.SEQUENCE_NUMBER)) is int:
            locate = itemgetter("type", *[name for name in _LOCATION if name in doc])
            keys, place = doc.keys(), locate(doc)
            self._shape = _DeltaShape(keys=keys, locate=locate, location=place, part=text.part)

    def _read_text_done(self, text_type: TextType) -> None:
        doc = self._doc
        item = self._items.open_item_for_text(doc[schema.OUTPUT_INDEX], text_type)
        if item is None:
            self._add_unmapped_unless_covered(None)
            return
        text = item.open_text(text_type, doc.get(text_type.index_member, 0))
        self._doc = self._read_and_blank_text(text, doc)
        self._events.append(Unmapped(text.part))

    def _read_content_part(self, kind: str, part: Json) -> None:
        doc = self._doc
        text_type = schema.TEXT_BY_PART.get(as_text(part.get("type")))
        index = doc[schema.OUTPUT_INDEX]
        item = None
        if text_type is not None:
            item = self._items.open_item_for_text(index, text_type)
        if item is None or text_type is None:
            self._add_unmapped_unless_covered(self._items.get_open_item(index))
            return
        text = item.open_text(text_type, doc[schema.PART_INDEX[kind]])
        if kind.endswith(".added"):
            self._doc = {**doc, "part": self._extract_beginning_text(text, part)}
        else:
            self._doc = {**doc, "part": self._read_and_blank_text(text, part)}
            text.has_ended = True
            self._events.append(PartEnd(text.part))
        self._add_unmapped_unless_covered(item)

    def _extract_beginning_text(self, text: OpenText, value: Json) -> Json:
        """Add the text of a new part or item as a delta, or move the text to the next delta."""
        name = text.type.member
        beginning = as_text(value.get(name))
        if not beginning or text.has_delta:
            return value
        if not self._splits:
            text.has_delta = True
            self._events.append(Delta(text.part, beginning))
            return value
        text.beginning = beginning
        self._raw = None
        return {**value, name: ""}

    def _read_and_blank_text(self, text: OpenText, value: Json) -> Json:
        """Add a delta if the text had none. Remove the text if guards inspect the value."""
        name = text.type.member
        repeated = as_text(value.get(name))
        if repeated and not text.has_delta:
            text.has_delta = True
            text.beginning = ""
            self._events.append(Delta(text.part, repeated))
        if not (self._inspects and text.has_delta):
            return value
        return {**value, name: ""} | ({"logprobs": []} if "logprobs" in value else {})

    # Items

    def _read_item_added(self, item: Json) -> None:
        open_item = self._items.begin_item(self._doc[schema.OUTPUT_INDEX], item, is_added=True)
        text_type = schema.TEXT_BY_CALL.get(as_text(item.get("type")))
        if text_type is not None:
            item = self._extract_beginning_text(open_item.open_text(text_type, 0), item)
            self._doc = {**self._doc, "item": item}
        unnamed = {**item, "name": ""} if isinstance(item.get("name"), str) else item
        is_silent_item = text_type is not None and is_textless_object(unnamed)
        self._add_unmapped_unless_covered(open_item, *(("item",) if is_silent_item else ()))

    def _read_item_done(self, item: Json) -> None:
        index = self._doc[schema.OUTPUT_INDEX]
        if not self._items.has_item_ended(index):
            self._doc = {**self._doc, "item": self._end_and_blank_item(index, item)}
        self._add_unmapped_unless_covered(None)

    def _end_and_blank_item(self, index: int, item: Json) -> Json:
        """End an item. Return it, for guards without the texts of earlier deltas."""
        open_item = self._items.get_open_item(index) or self._items.begin_item(index, item)
        inspected = dict(item)
        for name in ("content", "summary"):
            if isinstance(item.get(name), list):
                parts = enumerate(item[name])
                inspected[name] = [self._end_part(open_item, name, n, part) for n, part in parts]
        text_type = schema.TEXT_BY_CALL.get(as_text(item.get("type")))
        if text_type is not None and open_item.part.kind == text_type.kind:
            inspected = self._read_and_blank_text(open_item.open_text(text_type, 0), inspected)
        self._items.end_item(index, open_item)
        return inspected

    def _end_part(self, item: OpenItem, list_member: str, index: int, part: Any) -> Any:
        text_type = schema.TEXT_BY_PART.get(as_text(as_object(part).get("type")))
        if text_type is None or text_type.list_member != list_member or item.part.kind == "opaque":
            return part
        text = item.texts.get((text_type.kind, index))
        if (text is None or not text.has_delta) and as_text(part.get(text_type.member)):
            text = item.open_text(text_type, index)
        if text is None:
            return part
        part = self._read_and_blank_text(text, part)
        item.end_text(text)
        return part

    # The response

    def _read_response_event(self, kind: str, response: Json) -> None:
        if not self._has_started:
            self._has_started = True
            self._events.append(schema.make_start_event(response))
        inspected = response
        if kind in schema.END_EVENTS:
            output = response.get("output")
            items = output if isinstance(output, list) else []
            items = [self._read_final_item(index, item) for index, item in enumerate(items)]
            inspected = {**response, "output": items}
            self._items.end_all_items()
            self._events += schema.make_end_events(response, has_calls=self._items.has_calls)
            self._events.append(RESPONSE_END)
            self._has_stopped = True
        if not self._inspects:
            return
        inspected = schema.remove_echoed_members(inspected)
        self._doc = {**self._doc, "response": inspected}
        if not (
            is_textless_object(inspected)
            and self._doc.keys() <= {"type", "response", schema.SEQUENCE_NUMBER}
        ):
            self._events.insert(len(self._events) - (kind in schema.END_EVENTS), Unmapped(None))

    def _read_final_item(self, index: int, item: Any) -> Any:
        if not isinstance(item, dict):
            if self._splits:
                raise UpstreamInvalid("The upstream sent an output item that is not an object.")
            return item
        if self._items.has_item_ended(index):
            return {} if self._inspects else item
        return self._end_and_blank_item(index, item)

    # Others

    def _read_annotation(self) -> None:
        doc = self._doc
        item = self._items.get_open_item(doc[schema.OUTPUT_INDEX])
        text = None if item is None else item.texts.get(("text", doc["content_index"]))
        if text is None or text.has_ended or self._is_translated:
            self._add_unmapped_unless_covered(item)
            return
        slot = ("annotation",)
        self._events.append(Attach(text.part, "citation", doc.get("annotation"), slot=slot))
        self._add_unmapped_unless_covered(item, "annotation")

    def _read_other_event(self, kind: str) -> None:
        """Read another event. Its texts are distinguished by type, indexes and members."""
        doc = self._doc
        item = self._items.get_open_item(doc.get(schema.OUTPUT_INDEX))
        if self._is_translated:
            return
        if not (kind.endswith(".delta") and isinstance(doc.get("delta"), str | dict)):
            self._add_unmapped_unless_covered(item)
            return
        parts = self._other_parts if item is None else item.other_parts
        indexes = [(n, i) for n, i in doc.items() if n.endswith("_index") and type(i) is int]
        delta = doc["delta"]
        texts: dict[Slot, Any] = {_DELTA: delta}
        if isinstance(delta, dict):
            texts = {("delta", name): text for name, text in delta.items()}
        for slot, text in texts.items():
            if isinstance(text, str):
                key = kind, *indexes, *slot
                if key not in parts:
                    is_json = kind.endswith("_arguments.delta")
                    part = Part("server_arguments" if is_json else "code", len(parts))
                    part.closing, part.parent = "implicit", None if item is None else item.part
                    parts[key] = self._items.begin_part(part)
                self._events.append(Delta(parts[key], text, slot))
        is_text = all([isinstance(text, str) for text in texts.values()])
        self._add_unmapped_unless_covered(item, "delta" if is_text else "")
