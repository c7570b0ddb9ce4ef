"""Reads whole responses into frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from proxy.dialects.family import ReadOptions
from proxy.dialects.responses import schema
from proxy.dialects.responses.items import make_part_start_event
from proxy.dialects.responses.reader import ResponsesReader
from proxy.dialects.responses.schema import TextType, make_end_events, make_start_event
from proxy.dialects.wire.strict_json import as_object, as_text
from proxy.errors import UpstreamInvalid
from proxy.types import Json
from proxy.types.events import RESPONSE_END, Delta, Event, Frame, Part, PartEnd, PartStart, Slot

ItemText = tuple[TextType, int, str, Slot]
"""A text of an item: its type, the index of its part, the text, and its path in the response."""


class WholeResponseReader:
    """Reads a whole response into one frame, or into a stream's frames if the client streams."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        options = self._options
        items = doc["output"]
        if not all(isinstance(item, dict) for item in items):
            raise UpstreamInvalid("The upstream sent an output item that is not an object.")
        is_unfinished = doc.get("status") in schema.UNFINISHED_STATUSES and not doc.get("usage")
        if is_unfinished and (options.is_translated or doc.get("background") is not True):
            raise UpstreamInvalid("The upstream sent a response that is not complete.")
        if options.stream:
            reader = ResponsesReader(options)
            return [*chain(*map(reader.read_event, make_stream_events(doc)))]
        events: list[Event] = [make_start_event(doc), *self._make_item_events(items)]
        if not is_unfinished:
            events += [*make_end_events(doc), RESPONSE_END]
        if options.inspect:
            doc = schema.remove_echoed_members(doc)
        return [Frame(tuple(events), schema.FAMILY, doc, raw=raw, model_call=options.model_call)]

    def end(self, *, has_done_marker: bool = False) -> Sequence[Frame]:
        return ()

    def _make_item_events(self, items: list[Json]) -> Iterator[Event]:
        # Clients of other families get a summary only if there is no reasoning.
        is_translated = self._options.is_translated
        texts = [[*_find_item_texts(item, index)] for index, item in enumerate(items)]
        if is_translated:
            texts = _join_or_drop_summaries(texts)
        for index, item in enumerate(items):
            begin = make_part_start_event(item, index)
            item_part = begin.part
            if is_translated and item_part.kind == "opaque":
                continue
            yield begin._replace(slot=("output", index, "name") if begin.call else ())
            for text_type, part_index, text, slot in texts[index]:
                part = item_part
                if text_type.part_type:
                    kind = self._options.shown_as.get(text_type.kind, text_type.kind)
                    part = Part(kind, part_index, parent=item_part)
                    yield PartStart(part)
                if text:
                    yield Delta(part, text, slot)
                if part is not item_part:
                    yield PartEnd(part)
            yield PartEnd(item_part)


def _join_or_drop_summaries(texts: list[list[ItemText]]) -> list[list[ItemText]]:
    """Join summaries as paragraphs. Remove them if the reasoning itself is present."""
    has_reasoning = any(text[0].kind == "reasoning" for item in texts for text in item)
    separator, changed = "", []
    for item in texts:
        changed.append(item_texts := list[ItemText]())
        for text_type, part_index, text, slot in item:
            if text_type.kind != "summary":
                item_texts.append((text_type, part_index, text, slot))
            elif not has_reasoning:
                item_texts.append((text_type, part_index, separator + text, slot))
                separator = "\n\n"
    return changed


def _find_item_texts(item: Json, index: int) -> Iterator[ItemText]:
    for name in ("summary", "content"):
        parts = item.get(name)
        for part_index, part in enumerate(parts if isinstance(parts, list) else ()):
            text_type = schema.TEXT_BY_PART.get(as_text(as_object(part).get("type")))
            if text_type is not None and text_type.list_member == name:
                slot = ("output", index, name, part_index, text_type.member)
                yield text_type, part_index, as_text(part.get(text_type.member)), slot
    text_type = schema.TEXT_BY_CALL.get(as_text(item.get("type")))
    if text_type is not None:
        text = as_text(item.get(text_type.member))
        yield text_type, 0, text, ("output", index, text_type.member)


def make_stream_events(response: Json) -> Iterator[Json]:
    """Yield the stream events of a whole response, without numbers."""
    started = {**response, "status": "in_progress", "output": [], "usage": None}
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": started}
    for index, item in enumerate(response["output"]):
        texts = [*_find_item_texts(item, index)]
        empty: Json = {name: [] for name in ("content", "summary") if name in item}
        empty |= {text_type.member: "" for text_type, *_ in texts if not text_type.part_type}
        yield {"type": schema.ITEM_ADDED, schema.OUTPUT_INDEX: index, "item": {**item, **empty}}
        for text_type, part_index, text, _ in texts:
            yield from _make_text_events(item, index, text_type, part_index, text)
        yield {"type": schema.ITEM_DONE, schema.OUTPUT_INDEX: index, "item": item}
    kind = "incomplete" if response.get("status") == "incomplete" else "completed"
    yield {"type": f"response.{kind}", "response": response}


def _make_text_events(
    item: Json, index: int, text_type: TextType, part_index: int, text: str
) -> Iterator[Json]:
    location: Json = {"item_id": item.get("id"), schema.OUTPUT_INDEX: index}
    name = text_type.member
    delta_event = {"type": f"{text_type.event}.delta", "delta": text}
    done_event = {"type": f"{text_type.event}.done", name: text}
    if not text_type.part_type:
        yield from ({**delta_event, **location}, {**done_event, **location}) if text else ()
        return
    location[text_type.index_member] = part_index
    part = item[text_type.list_member][part_index]
    is_summary = text_type.kind == "summary"
    event = "response.reasoning_summary_part" if is_summary else "response.content_part"
    yield {"type": f"{event}.added", **location, "part": {**part, name: ""}}
    yield {**delta_event, **location}
    yield {**done_event, **location}
    yield {"type": f"{event}.done", **location, "part": part}
