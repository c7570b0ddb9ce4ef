"""Reads Messages answers, streams and whole ones, into frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.dialects.family import FamilyReader, ReadOptions
from proxy.dialects.messages import tables
from proxy.dialects.messages.usage import BESIDE, chat_usage
from proxy.dialects.messages.whole import stream_events
from proxy.dialects.pieces import dump
from proxy.dialects.shapes import Shape, fits, is_name
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.money.usage import read_usage
from proxy.types import Json
from proxy.types.events import (
    SHOWN,
    STOP,
    Attach,
    AttachName,
    Begin,
    Delta,
    End,
    Event,
    Finish,
    Frame,
    Native,
    Part,
    Slot,
    Start,
    ToolCall,
    UsageReport,
)

MAX_BLOCKS = 4096
"""Blocks that are open at a time, and blocks of a stream whose parts are inspected or cross."""
_OF_BLOCKS = frozenset({tables.BLOCK_START, tables.BLOCK_DELTA, tables.BLOCK_STOP})
_CROSSING = frozenset({"text", "reasoning", "arguments"})
_ATTACHED: Mapping[str, AttachName] = {
    "signature_delta": "signature",
    "citations_delta": "citation",
}


def message_reader(options: ReadOptions) -> FamilyReader:
    """Return the reader of one answer."""
    return WholeMessageReader(options) if options.whole else MessageReader(options)


class MessageReader:
    """Reads the events of a stream.

    A crossing stream has frames only for what other families represent: text, thoughts and calls
    of the client's tools. A stream that is not split passes in any order of its events.
    """

    __slots__ = (
        *("_blocks", "_delta_type", "_ended", "_finished", "_index", "_member", "_members"),
        *("_options", "_part", "_slot", "_started", "_usage"),
    )

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._started = self._finished = False
        self._blocks: dict[int | None, Part] = {}  # that are open, by index
        self._ended: set[int | None] = set()  # of a split stream
        self._members: dict[Part, str] = {}  # with the text of an open block, if it is inspected
        self._usage: Json = {}  # counts are cumulative
        self._part: Part | None = None  # of the last ordinary delta, with its shape
        self._index: int | None = None
        self._delta_type = self._member = ""
        self._slot: Slot = ()

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        delta = doc.get("delta")
        if (
            self._part is not None
            and doc.get("type") == tables.BLOCK_DELTA
            and doc.get("index") == self._index
            and len(doc) == 3
            and delta.__class__ is dict
            and len(delta) == 2
            and delta.get("type") == self._delta_type
        ):
            text = delta.get(self._member)
            if text.__class__ is str:
                return [self._frame((Delta(self._part, text, self._slot),), doc, raw)]
        kind = doc.get("type")
        if kind.__class__ is not str or not kind.isprintable():
            return []
        return self._read(kind, doc, raw)

    def end(self, *, done: bool = False) -> Sequence[Frame]:
        if not self._finished:
            raise _incomplete()
        return [self._frame((STOP,), None, None)]

    def _read(self, kind: str, doc: Json, raw: bytes) -> list[Frame]:
        if kind == tables.MESSAGE_START:
            return self._message_start(doc, raw)
        if kind == tables.MESSAGE_DELTA:
            return self._message_delta(doc, raw)
        if kind == tables.MESSAGE_STOP:
            return self._message_stop(doc, raw)
        if kind in _OF_BLOCKS and not self._finished:
            if kind == tables.BLOCK_START:
                return self._block_start(doc, raw)
            read = self._block_delta if kind == tables.BLOCK_DELTA else self._block_stop
            return read(doc, raw)
        if kind == tables.PING or not self._started:  # it may be a stream of another family
            return []
        return self._documented((), doc, raw)

    def _frame(self, events: tuple[Event, ...], doc: Json | None, raw: bytes | None) -> Frame:
        if self._options.inspect:  # a member that occurs twice was read once
            raw = None
        return Frame(events, "messages", doc, raw=raw, model_call=self._options.model_call)

    def _documented(
        self, events: tuple[Event, ...], doc: Json, raw: bytes, ordinary: Shape | None = None
    ) -> list[Frame]:
        """Return the frame of a document. Guards read all of it unless its shape is ordinary."""
        if self._options.crossing:
            return [self._frame(events, doc, raw)] if events else []
        if self._options.inspect and (ordinary is None or not fits(doc, ordinary)):
            events = (*events, Native(_part_of(events)))
        return [self._frame(events, doc, raw)]

    def _name(self, value: Any) -> str | None:
        """Return an id or a model. An inspected one must be a name if it crosses, because guards
        read only the document, which does not cross."""
        options = self._options
        if options.inspect and options.crossing and not is_name(value):
            return None
        return value if value.__class__ is str else None

    def _begun(self) -> tuple[Event, ...]:
        """Return the start of the message if the upstream has sent none."""
        if self._started:
            return ()
        self._started = True
        return (Start(None, None, None),)

    # The message

    def _message_start(self, doc: Json, raw: bytes) -> list[Frame]:
        if self._started:
            if self._options.split:
                raise UpstreamInvalid("The upstream started a second message in one stream.")
            return self._documented((), doc, raw)
        self._started = True
        message = _object(doc.get("message"))
        self._add_usage(message.get("usage"))
        start = Start(self._name(message.get("id")), self._name(message.get("model")), None)
        events = (start, *self._report(final=False))
        return self._documented(events, doc, raw, tables.ORDINARY_EVENTS[tables.MESSAGE_START])

    def _message_delta(self, doc: Json, raw: bytes) -> list[Frame]:
        self._add_usage(doc.get("usage"))
        reason = _object(doc.get("delta")).get("stop_reason")
        frames: list[Frame] = []
        events = self._begun()
        if reason is not None and not self._finished:
            events += self._finish(str(reason), frames)
        events += self._report(final=True)
        if self._options.inspect and self._usage:
            doc = {**doc, "usage": dict(self._usage)}
        ordinary = tables.ORDINARY_EVENTS[tables.MESSAGE_DELTA]
        return [*frames, *self._documented(events, doc, raw, ordinary)]

    def _message_stop(self, doc: Json, raw: bytes) -> list[Frame]:
        frames: list[Frame] = []
        events: tuple[Event, ...] = ()
        options = self._options
        if not self._started:
            raise _incomplete()
        if not self._finished:
            events = self._finish(None, frames)
        if options.inspect and not fits(doc, tables.ORDINARY_EVENTS[tables.MESSAGE_STOP]):
            events += (Native(),)
        return [*frames, self._frame((*events, STOP), doc, raw)]

    def _finish(self, reason: str | None, frames: list[Frame]) -> tuple[Event, ...]:
        """Return the events that end the message. The events of blocks without an end of their own
        come in frames of their own if the stream is split."""
        self._finished = True
        ends = [(index, End(part)) for index, part in self._blocks.items()]
        ends = [(index, end) for index, end in ends if self._shows(end.part)]
        self._blocks.clear()
        self._part = None
        finish = Finish(0, "other" if reason is None else tables.FINISHES.get(reason, "stop"))
        if not self._options.split:
            return (*(end for _, end in ends), finish)
        for index, end in ends:
            frames.append(self._frame((end,), {"type": tables.BLOCK_STOP, "index": index}, None))
        return (finish,)

    def _add_usage(self, usage: Any) -> None:
        for name, value in _object(usage).items():
            if value is not None or name not in self._usage:
                self._usage[name] = value

    def _report(self, *, final: bool) -> tuple[Event, ...]:
        if not self._usage:
            return ()
        usage = dict(self._usage)
        tokens = read_usage(chat_usage(usage))
        if self._options.inspect and self._options.crossing:
            usage = {
                name: value
                for name, value in usage.items()
                if name not in BESIDE or fits(value, tables.USAGE[name])
            }
        return (UsageReport(tokens, usage, final),)

    # Blocks

    def _shows(self, part: Part) -> bool:
        """Return True if the client gets a part."""
        return not self._options.crossing or part.kind in _CROSSING

    def _open(self, index: int | None, part: Part) -> tuple[Event, ...]:
        """Open a block. Return the ends of those that close for it."""
        if self._options.split:
            if index in self._blocks:
                raise UpstreamInvalid("The upstream started a content block that had not ended.")
            if len(self._blocks) >= MAX_BLOCKS:
                raise ResponseTooLarge("The upstream sent too many content blocks.")
        closed = [self._blocks.pop(index)] if index in self._blocks else []
        if len(self._blocks) >= MAX_BLOCKS:
            closed.append(self._blocks.pop(next(iter(self._blocks))))
        self._blocks[index] = part
        self._ended.discard(index)
        self._part = None
        return tuple(map(End, closed))

    def _block_start(self, doc: Json, raw: bytes) -> list[Frame]:
        index, block = block_number(doc), _object(doc.get("content_block"))
        kind = block.get("type")
        known = kind if kind.__class__ is str and kind in tables.KINDS else ""
        number = len(self._blocks) if index is None else index
        name = self._name(block.get("id")) or ""
        part = Part(tables.KINDS.get(known, "opaque"), number, id=name)
        events = (*self._begun(), *self._open(index, part))
        if not self._shows(part):
            return [self._frame(events, doc, raw)] if events else []
        if part.kind == "arguments":
            return self._call_start(part, doc, raw, events)
        events += (Begin(part),)
        text = block.get(tables.MEMBERS.get(known, ""))
        if text.__class__ is str and text:
            events += (Delta(part, text, ("content_block", tables.MEMBERS[known])),)
        signature = block.get("signature")
        if signature and not self._options.crossing:
            events += (Attach(part, "signature", signature, slot=("content_block", "signature")),)
        return self._documented(events, doc, raw, tables.ORDINARY_BLOCKS.get(known))

    def _call_start(
        self, part: Part, doc: Json, raw: bytes, events: tuple[Event, ...]
    ) -> list[Frame]:
        """Return the start of a tool call, whose arguments may be there already."""
        block = doc["content_block"]
        name, written = block.get("name"), block.get("input")
        call = ToolCall(part.id, name if name.__class__ is str else "")
        events += (Begin(part, call, ("content_block", "name") if call.name else ()),)
        ordinary = tables.ORDINARY_BLOCKS["tool_use"]
        if not written:
            return self._documented(events, doc, raw, ordinary)
        text = dump(written, 0).decode()
        if not self._options.split:
            return [self._frame((*events, Delta(part, text, ("content_block", "input"))), doc, raw)]
        start = {**doc, "content_block": {**block, "input": {}}}
        grown = {"type": "input_json_delta", "partial_json": text}
        delta = {"type": tables.BLOCK_DELTA, "index": doc.get("index"), "delta": grown}
        arguments = Delta(part, text, ("delta", "partial_json"))
        frames = [
            *self._documented(events, start, raw, ordinary),
            self._frame((arguments,), delta, raw),
        ]
        return [frame._replace(raw=None) for frame in frames]

    def _block_delta(self, doc: Json, raw: bytes) -> list[Frame]:
        index, delta = block_number(doc), _object(doc.get("delta"))
        kind = delta.get("type")
        kind = kind if kind.__class__ is str else ""
        member, sort = tables.DELTAS.get(kind, ("", "opaque"))
        part = self._blocks.get(index)
        events = self._begun()
        if part is None:
            part = Part(sort, index or 0)
            events += self._open_late(index, part)
        if not self._shows(part):
            return [self._frame(events, doc, raw)] if events else []
        text, attached = delta.get(member), _ATTACHED.get(kind)
        ordinary = tables.ORDINARY_DELTA if len(delta) == 2 and index is not None else None
        if attached is not None:
            if attached in delta and not self._options.crossing:
                events += (Attach(part, attached, delta[attached], slot=("delta", attached)),)
            return self._documented(events, doc, raw, ordinary if attached in delta else None)
        if text.__class__ is not str or self._is_misplaced(member, part):
            return self._documented(events, doc, raw)
        slot = "delta", member
        if ordinary is not None:
            self._part, self._index, self._slot = part, index, slot
            self._delta_type, self._member = kind, member
        return self._documented((*events, Delta(part, text, slot)), doc, raw, ordinary)

    def _is_misplaced(self, member: str, part: Part) -> bool:
        """Return True if a client joins a delta to others than those of its block: an inspected
        block has one text, in one member."""
        options = self._options
        if not options.inspect or options.crossing:
            return False
        return self._members.setdefault(part, tables.OF_KINDS.get(part.kind, member)) != member

    def _open_late(self, index: int | None, part: Part) -> tuple[Event, ...]:
        """Open a block whose start the upstream has not sent."""
        if index in self._ended:
            raise UpstreamInvalid("The upstream continued a content block that had ended.")
        closed = self._open(index, part)
        return (*closed, Begin(part)) if self._shows(part) else closed

    def _block_stop(self, doc: Json, raw: bytes) -> list[Frame]:
        index = block_number(doc)
        part = self._blocks.pop(index, None)
        if part is not None:
            self._members.pop(part, None)
        self._part = None
        if self._options.split and not self._options.whole:
            self._ended.add(index)
            if len(self._ended) > MAX_BLOCKS:
                raise ResponseTooLarge("The upstream sent too many content blocks.")
        events = () if part is None or not self._shows(part) else (End(part),)
        return self._documented(events, doc, raw, tables.ORDINARY_EVENTS[tables.BLOCK_STOP])


class WholeMessageReader:
    """Reads a whole answer through the events that a stream would have for it."""

    __slots__ = ("_options",)

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        options = self._options
        reader = MessageReader(options if options.stream else replace(options, inspect=False))
        frames = [frame for event in stream_events(doc) for frame in reader.read(event, b"")]
        if options.stream:
            return [frame._replace(raw=None) for frame in frames]
        events = tuple(
            _of_document(event)
            for frame in frames
            for event in frame.events
            if not (isinstance(event, UsageReport) and not event.final)
        )
        return [Frame(events, "messages", doc, raw=raw, model_call=options.model_call)]

    def end(self, *, done: bool = False) -> Sequence[Frame]:
        return []


def _incomplete() -> UpstreamInvalid:
    early = "The upstream ended the stream before the response was complete."
    return UpstreamInvalid(early).caused("closed")


def _of_document(event: Event) -> Event:
    """Return an event of a whole answer. Only texts that people are shown have a path."""
    if isinstance(event, Delta) and event.part.kind in SHOWN:
        return event._replace(slot=("content", event.part.number, event.slot[-1]))
    return event._replace(slot=()) if isinstance(event, Begin | Delta | Attach) else event


def _part_of(events: tuple[Event, ...]) -> Part | None:
    return next((event.part for event in events if isinstance(event, Begin | Delta | Attach)), None)


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def block_number(event: Json) -> int | None:
    """Return the number of the block of an event, None unless it is an integer."""
    index = event.get("index")
    return index if type(index) is int else None
