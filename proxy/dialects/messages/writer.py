"""Writes frames as Messages answers: as the events of a stream, or as one document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from proxy.dialects.family import FamilyWriter, WriteOptions
from proxy.dialects.messages import tables
from proxy.dialects.messages.usage import messages_usage
from proxy.dialects.messages.whole import MessageAccumulator
from proxy.dialects.pieces import dump
from proxy.dialects.signed_calls import shown_id
from proxy.dialects.sse import named_event
from proxy.types import Json
from proxy.types.events import (
    CALLS,
    Attach,
    Begin,
    Delta,
    Event,
    Finish,
    Frame,
    Kind,
    Part,
    Start,
    Stop,
    UsageReport,
)

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_TEXT = "text", "text_delta", "text"
_THINKING = "thinking", "thinking_delta", "thinking"
_CALL = "tool_use", "input_json_delta", "partial_json"
_BLOCKS: Mapping[Kind, tuple[str, str, str]] = {
    "text": _TEXT,
    "refusal": _TEXT,
    "reasoning": _THINKING,
    "summary": _THINKING,
    "arguments": _CALL,
    "input": _CALL,
    "server_arguments": ("", *_CALL[1:]),
}
"""The type of the block that has a part, and the type and the member of its deltas. Other parts,
and blocks without a type, come only from an upstream of the same family."""
_EMPTY: Mapping[str, Json] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
_DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%%d,'
    b'"delta":{"type":"%b","%b":%%b}}\n\n'
)
_TEMPLATES: Mapping[Kind, bytes] = {
    kind: _DELTA % (sort.encode(), member.encode())
    for kind, (_, sort, member) in _BLOCKS.items()
    if kind != "input"
}


def message_writer(options: WriteOptions) -> FamilyWriter:
    """Return the writer of one exchange."""
    return WholeMessageWriter() if options.whole else MessageWriter()


class MessageComposer:
    """Makes the events of a Messages stream out of typed events, one block after the other. Parts
    that follow each other share a block if it has their type."""

    __slots__ = (
        *("_called", "_choice", "_ended", "_input", "_next", "_open", "_reason", "_usage"),
        "indexes",
    )

    def __init__(self) -> None:
        self.indexes: dict[Part, int] = {}  # of the blocks that are open
        self._open: tuple[int, str] | None = None  # the index and the type of our block
        self._next = 0
        self._input: list[str] = []  # of a custom tool call, which is not JSON
        self._reason = "end_turn"
        self._called = False
        self._choice: int | None = None
        self._usage: Json | None = None
        self._ended: str = ""  # the last event of the message

    def compose(self, frame: Frame) -> list[Json]:
        """Return the events for a frame without a document of Messages."""
        out: list[Json] = []
        for event in frame.events:
            self._event(event, frame, out)
        if frame.last:
            self._stop(out)
        return out

    def note(self, doc: Json, events: tuple[Event, ...]) -> None:
        """Take note of an event that passes, so that others may follow it."""
        kind = doc["type"]
        if kind == tables.BLOCK_START:
            parts = [event.part for event in events if isinstance(event, Begin)]
            self.indexes.update((part, part.number) for part in parts)
        elif kind == tables.BLOCK_STOP:
            self.indexes.clear()
        elif kind != tables.BLOCK_DELTA:
            self._ended = kind

    def _event(self, event: Event, frame: Frame, out: list[Json]) -> None:
        match event:
            case Delta(part, text) if text and self._is_shown(part.choice):
                self._delta(part, text, out)
            case Begin(part) if part.kind in CALLS and self._is_shown(part.choice):
                self._call(event, frame, out)
            case Start():
                self._start(event, frame, out)
            case UsageReport(tokens, native):
                own = frame.family == "messages"
                self._usage = native if own else messages_usage(tokens, native)
            case Finish(choice, reason) if self._is_shown(choice):
                self._reason = tables.STOPS[reason]
            case Stop():
                self._stop(out)
            case _:
                pass

    def _is_shown(self, choice: int) -> bool:
        """Return True for the first choice: a message has only one."""
        if self._choice is None:
            self._choice = choice
        return choice == self._choice

    def _start(self, event: Start, frame: Frame, out: list[Json]) -> None:
        self._ended = tables.MESSAGE_START
        reports = (each for each in frame.events if isinstance(each, UsageReport))
        report = next(reports, UsageReport(None, {}))
        message: Json = {
            "id": event.id,
            "type": "message",
            "role": "assistant",
            "model": event.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": messages_usage(report.tokens, report.native),
        }
        out.append({"type": tables.MESSAGE_START, "message": message})

    def _call(self, event: Begin, frame: Frame, out: list[Json]) -> None:
        self._called = True
        part, call = event.part, event.call
        attached = (each for each in frame.events if isinstance(each, Attach))
        signature = next((each.value for each in attached if each.name == "signature"), None)
        name = call.id if call is not None else part.id
        block = {
            "type": "tool_use",
            "id": signed_id(name, signature),
            "name": call.name if call is not None else "",
            "input": {},
        }
        self._begin(part, block, out)

    def _delta(self, part: Part, text: str, out: list[Json]) -> None:
        block, kind, member = _BLOCKS.get(part.kind, ("", "", ""))
        if part not in self.indexes:
            if block not in _EMPTY:
                return
            if self._open is not None and self._open[1] == block:
                self.indexes[part] = self._open[0]
            else:
                self._begin(part, _EMPTY[block], out)
        if part.kind == "input":
            self._input.append(text)
        elif kind:
            out.append(_grown(self.indexes[part], {"type": kind, member: text}))

    def _begin(self, part: Part, block: Json, out: list[Json]) -> None:
        self._close(out)
        self._open = self._next, block["type"]
        self.indexes[part] = self._next
        out.append({"type": tables.BLOCK_START, "index": self._next, "content_block": block})
        self._next += 1

    def _close(self, out: list[Json]) -> None:
        if self._open is None:
            return
        if self._input:
            written = orjson.dumps({"input": "".join(self._input)}).decode()
            grown = {"type": "input_json_delta", "partial_json": written}
            out.append(_grown(self._open[0], grown))
        out.append({"type": tables.BLOCK_STOP, "index": self._open[0]})
        self._open = None
        self._input = []
        self.indexes.clear()

    def _stop(self, out: list[Json]) -> None:
        """Add the events that the end of the message lacks."""
        if not self._ended:
            self._start(Start(None, None, None), Frame(()), out)
        self._close(out)
        if self._ended == tables.MESSAGE_START:
            called = self._called and self._reason == "end_turn"
            reason = "tool_use" if called else self._reason
            usage = messages_usage(None, {}) if self._usage is None else self._usage
            end = {"stop_reason": reason, "stop_sequence": None}
            out.append({"type": tables.MESSAGE_DELTA, "delta": end, "usage": usage})
        if self._ended != tables.MESSAGE_STOP:
            out.append({"type": tables.MESSAGE_STOP})
            self._ended = tables.MESSAGE_STOP


class MessageWriter:
    """Writes the events of a stream."""

    __slots__ = ("_composer", "_indexes")
    media_type = "text/event-stream; charset=utf-8"

    def __init__(self) -> None:
        self._composer = MessageComposer()
        self._indexes = self._composer.indexes

    def weight(self, frame: Frame) -> int:
        return frame.size

    def feed(self, frame: Frame) -> bytes:
        doc, events = frame.doc, frame.events
        if doc is not None and frame.family == "messages":
            kind = doc["type"]
            if kind != tables.BLOCK_DELTA:
                self._composer.note(doc, events)
            raw = frame.raw
            return named_event(kind, dump(doc, frame.size) if raw is None else raw)
        if len(events) == 1 and type(events[0]) is Delta:
            part, text, _ = events[0]
            index, template = self._indexes.get(part), _TEMPLATES.get(part.kind)
            if index is not None and template is not None and text and not frame.last:
                return template % (index, dump(text, frame.size))
        if not (events or doc is not None or frame.last):
            return PING
        docs = self._composer.compose(frame)
        return b"".join([named_event(each["type"], dump(each, frame.size)) for each in docs])

    def fail(self, document: bytes) -> bytes:
        return named_event("error", document)


class WholeMessageWriter:
    """Writes one document at the last frame."""

    __slots__ = ("_composer", "_message", "_size")
    media_type = "application/json"

    def __init__(self) -> None:
        self._composer = MessageComposer()
        self._message = MessageAccumulator()
        self._size = 0

    def weight(self, frame: Frame) -> int:
        return self._size + frame.size if frame.last else 0

    def feed(self, frame: Frame) -> bytes:
        self._size += frame.size
        doc = frame.doc
        if doc is not None and frame.family == "messages":
            kind = doc.get("type")
            is_event = isinstance(kind, str) and kind in tables.STREAM_EVENTS
            if frame.last and not is_event:
                return dump(doc, self._size) if frame.raw is None else frame.raw
            self._composer.note(doc, frame.events)
            self._message.add(doc)
        else:
            for each in self._composer.compose(frame):
                self._message.add(each)
        return dump(self._message.message(), self._size) if frame.last else b""

    def fail(self, document: bytes) -> bytes:
        return b""


def signed_id(name: str, signature: Any) -> Any:
    """Return the id of a tool call with its thought signature."""
    beside = {"extra_content": {"google": {"thought_signature": signature}}}
    return shown_id({"id": name, **beside})


def _grown(index: int, delta: Json) -> Json:
    return {"type": tables.BLOCK_DELTA, "index": index, "delta": delta}
