"""Reader of whole responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.dialects.family import ReadOptions
from proxy.dialects.responses.open_items import begin_item
from proxy.dialects.responses.reader import ResponsesReader
from proxy.dialects.responses.tables import (
    ADDED,
    BY_CALL,
    BY_PART,
    DONE,
    ECHOED,
    FAMILY,
    UNFINISHED,
    TextType,
    member,
    string,
)
from proxy.dialects.responses.usage import ending, start_of
from proxy.errors import UpstreamInvalid
from proxy.types import Json
from proxy.types.events import STOP, Begin, Delta, End, Event, Frame, Part, Slot

Place = tuple[TextType, int, str, Slot]
"""A text of an item: its type, the number of its part, the text itself, and its path."""


class WholeResponseReader:
    """Reads one document. For a client that asked for a stream, it becomes the events of one."""

    __slots__ = ("_options",)

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        options = self._options
        items = doc["output"]
        if not all(isinstance(item, dict) for item in items):
            raise UpstreamInvalid("The upstream sent an output item that is not an object.")
        is_unfinished = doc.get("status") in UNFINISHED and not doc.get("usage")
        if is_unfinished and (options.crossing or doc.get("background") is not True):
            raise UpstreamInvalid("The upstream sent a response that is not complete.")
        if options.stream:
            reader = ResponsesReader(options)
            made = [reader.read_made(each) for each in _events_of(doc)]
            return [frame for frames in made for frame in frames]
        events: list[Event] = [start_of(doc), *self._items(items)]
        if not is_unfinished:
            events += [*ending(doc), STOP]
        if options.inspect:
            doc = {name: value for name, value in doc.items() if name not in ECHOED}
        return [Frame(tuple(events), FAMILY, doc, raw=raw, model_call=options.model_call)]

    def end(self, *, done: bool = False) -> Sequence[Frame]:
        return ()

    def _items(self, items: list[Json]) -> Iterator[Event]:
        """Yield the events of items. Clients of other families get a summary of the reasoning in
        paragraphs, unless the reasoning itself is there."""
        crosses = self._options.crossing
        texts = [[*_texts(item, at)] for at, item in enumerate(items)]
        kinds = {text_type.kind for each in texts for text_type, *_ in each}
        paragraph = ""
        for at, item in enumerate(items):
            begin = begin_item(item, at)
            part = begin.part
            if crosses and part.kind == "opaque":
                continue
            yield begin._replace(slot=("output", at, "name") if begin.call else ())
            for text_type, number, text, slot in texts[at]:
                is_summary = crosses and text_type.kind == "summary"
                if is_summary and "reasoning" in kinds:
                    continue
                piece = paragraph + text if is_summary else text
                paragraph = "\n\n" if is_summary else paragraph
                child = part
                if text_type.part:
                    child = Part(text_type.kind, number, parent=part)
                    yield Begin(child)
                if piece:
                    yield Delta(child, piece, slot)
                if child is not part:
                    yield End(child)
            yield End(part)


def _texts(item: Json, at: int) -> Iterator[Place]:
    """Yield the texts of an item."""
    for within in ("summary", "content"):
        parts = item.get(within)
        for number, part in enumerate(parts if isinstance(parts, list) else ()):
            text_type = BY_PART.get(string(member(part).get("type")))
            if text_type is not None and text_type.within == within:
                text = string(part.get(text_type.member))
                yield text_type, number, text, ("output", at, within, number, text_type.member)
    text_type = BY_CALL.get(string(item.get("type")))
    if text_type is not None:
        text = string(item.get(text_type.member))
        yield text_type, 0, text, ("output", at, text_type.member)


def _events_of(response: Json) -> Iterator[Json]:
    """Yield the events of a stream that ends with a response."""
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": begun}
    for at, item in enumerate(response["output"]):
        texts = [*_texts(item, at)]
        lists: Json = {within: [] for within in ("content", "summary") if within in item}
        empty = {text_type.member: "" for text_type, *_ in texts if not text_type.part}
        yield {"type": ADDED, "output_index": at, "item": {**item, **lists, **empty}}
        for text_type, number, text, _ in texts:
            yield from _text_events(item, at, text_type, number, text)
        yield {"type": DONE, "output_index": at, "item": item}
    kind = "incomplete" if response.get("status") == "incomplete" else "completed"
    yield {"type": f"response.{kind}", "response": response}


def _text_events(
    item: Json, at: int, text_type: TextType, number: int, text: str
) -> Iterator[Json]:
    where: Json = {"item_id": item.get("id"), "output_index": at}
    name = text_type.member
    delta = {"type": f"{text_type.event}.delta", "delta": text}
    done = {"type": f"{text_type.event}.done", name: text}
    if not text_type.part:
        yield from ({**delta, **where}, {**done, **where}) if text else ()
        return
    where[text_type.numbered_by] = number
    part = item[text_type.within][number]
    event = "response.reasoning_summary_part" if text_type.kind == "summary" else _CONTENT
    yield {"type": f"{event}.added", **where, "part": {**part, name: ""}}
    yield {**delta, **where}
    yield {**done, **where}
    yield {"type": f"{event}.done", **where, "part": part}


_CONTENT = "response.content_part"
