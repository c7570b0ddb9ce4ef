"""Writes frames as Messages responses, streamed or whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from proxy.dialects.chat.tool_calls import make_client_call_id
from proxy.dialects.family import find_attached
from proxy.dialects.messages import schema
from proxy.dialects.messages.schema import parse_tool_arguments
from proxy.dialects.wire.sse import encode_named_event
from proxy.dialects.wire.strict_json import dump
from proxy.types import Json
from proxy.types.events import (
    TOOL_CALL_KINDS,
    Delta,
    Event,
    Finish,
    Frame,
    Kind,
    Part,
    PartStart,
    ResponseEnd,
    ResponseStart,
    UsageReport,
)

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_TEXT = "text", "text_delta", "text"
_THINKING = "thinking", "thinking_delta", "thinking"
_CALL = "tool_use", "input_json_delta", "partial_json"
_BLOCKS: Mapping[Kind, tuple[str, str, str]] = {
    "text": _TEXT,
    "reasoning": _THINKING,
    "arguments": _CALL,
    "input": _CALL,
    "server_arguments": ("", *_CALL[1:]),
}
"""The block type of a part, and the type and the text member of its deltas. Other parts, and blocks
without a type, come only from an upstream of the family."""
_EMPTY_BLOCKS: Mapping[str, Json] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
_DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%%d,'
    b'"delta":{"type":"%b","%b":%%b}}\n\n'
)
_TEMPLATES: Mapping[Kind, bytes] = {
    kind: _DELTA % (delta_type.encode(), member.encode())
    for kind, (_, delta_type, member) in _BLOCKS.items()
    if kind != "input"
}


class MessageComposer:
    """Composes the events of a Messages stream from events of other families.

    Blocks do not interleave. Consecutive parts of one kind share a block, because guards inspect
    them as one text.
    """

    def __init__(self) -> None:
        self.indexes: dict[Part, int] = {}  # index of each open block
        self._events: list[Json] = []  # events of the current frame
        self._open: tuple[int, Kind] | None = None  # index of the open block, kind of its parts
        self._next_index = 0
        self._input: list[str] = []  # input of a custom tool call, which is free text
        self._reason = "end_turn"
        self._has_calls = False
        self._choice: int | None = None
        self._usage: Json | None = None
        self._last_event: str = ""  # type of the last event that is not of a block

    def compose_events(self, frame: Frame) -> list[Json]:
        """Return the Messages events for a frame of another API family."""
        self._events = []
        for event in frame.events:
            self._add_event(event, frame)
        if frame.last:
            self._end_message()
        return self._events

    def track_native_event(self, doc: Json, events: tuple[Event, ...]) -> None:
        """Note the blocks of an event that is forwarded unchanged, for later composed events."""
        kind = doc["type"]
        if kind == schema.BLOCK_START:
            parts = [event.part for event in events if isinstance(event, PartStart)]
            self.indexes.update((part, part.number) for part in parts)
        elif kind == schema.BLOCK_STOP:
            self.indexes.clear()
        elif kind != schema.BLOCK_DELTA:
            self._last_event = kind

    def _add_event(self, event: Event, frame: Frame) -> None:
        match event:
            case Delta(part, text) if text and self._is_first_choice(part.choice):
                self._add_text_delta(part, text)
            case PartStart(part) if part.kind in TOOL_CALL_KINDS and self._is_first_choice(
                part.choice
            ):
                self._begin_tool_call(event, frame)
            case ResponseStart():
                self._start_message(event, frame)
            case UsageReport(tokens, native):
                is_native = frame.family == "messages"
                self._usage = native if is_native else schema.make_messages_usage(tokens, native)
            case Finish(choice, reason) if self._is_first_choice(choice):
                self._reason = schema.STOP_REASONS[reason]
            case ResponseEnd():
                self._end_message()
            case _:
                pass

    def _is_first_choice(self, choice: int) -> bool:
        """Return True for the first choice: a message has only one."""
        if self._choice is None:
            self._choice = choice
        return choice == self._choice

    def _start_message(self, event: ResponseStart, frame: Frame) -> None:
        self._last_event = schema.MESSAGE_START
        reports = (report for report in frame.events if isinstance(report, UsageReport))
        report = next(reports, UsageReport(None, {}))
        message: Json = {
            "id": event.id,
            "type": "message",
            "role": "assistant",
            "model": event.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": schema.make_messages_usage(report.tokens, report.native),
        }
        self._events.append({"type": schema.MESSAGE_START, "message": message})

    def _begin_tool_call(self, event: PartStart, frame: Frame) -> None:
        self._has_calls = True
        part, call = event.part, event.call
        call_id, name = (part.id, "") if call is None else (call.id, call.name)
        call_id = make_client_call_id(call_id, find_attached(frame.events, part, "signature"))
        self._begin_block(part, {"type": "tool_use", "id": call_id, "name": name, "input": {}})

    def _add_text_delta(self, part: Part, text: str) -> None:
        block_type, delta_type, member = _BLOCKS.get(part.kind, ("", "", ""))
        if part not in self.indexes:
            if block_type not in _EMPTY_BLOCKS:
                return
            if self._open is not None and self._open[1] == part.kind:
                self.indexes[part] = self._open[0]
            else:
                self._begin_block(part, _EMPTY_BLOCKS[block_type])
        if part.kind == "input":
            self._input.append(text)
        elif delta_type:
            self._add_delta(self.indexes[part], {"type": delta_type, member: text})

    def _add_delta(self, index: int, delta: Json) -> None:
        self._events.append({"type": schema.BLOCK_DELTA, "index": index, "delta": delta})

    def _begin_block(self, part: Part, block: Json) -> None:
        self._close_block()
        index = self.indexes[part] = self._next_index
        self._next_index += 1
        self._open = index, part.kind
        self._events.append({"type": schema.BLOCK_START, "index": index, "content_block": block})

    def _close_block(self) -> None:
        if self._open is None:
            return
        index, self._open = self._open[0], None
        if self._input:
            arguments = orjson.dumps({"input": "".join(self._input)}).decode()
            self._add_delta(index, {"type": "input_json_delta", "partial_json": arguments})
        self._events.append({"type": schema.BLOCK_STOP, "index": index})
        self._input = []
        self.indexes.clear()

    def _end_message(self) -> None:
        if not self._last_event:
            self._start_message(ResponseStart(None, None, None), Frame(()))
        self._close_block()
        if self._last_event == schema.MESSAGE_START:
            is_call = self._has_calls and self._reason == "end_turn"
            end = {"stop_reason": "tool_use" if is_call else self._reason, "stop_sequence": None}
            usage = schema.make_messages_usage(None, {}) if self._usage is None else self._usage
            self._events.append({"type": schema.MESSAGE_DELTA, "delta": end, "usage": usage})
        if self._last_event != schema.MESSAGE_STOP:
            self._events.append({"type": schema.MESSAGE_STOP})
            self._last_event = schema.MESSAGE_STOP


class MessageWriter:
    """Writes the events of a Messages stream."""

    def __init__(self) -> None:
        self._composer = MessageComposer()
        self._indexes = self._composer.indexes

    def feed(self, frame: Frame) -> bytes:
        doc, events = frame.doc, frame.events
        if doc is not None and frame.family == "messages":
            kind = doc["type"]
            if kind != schema.BLOCK_DELTA:
                self._composer.track_native_event(doc, events)
            raw = frame.raw
            return encode_named_event(kind, dump(doc, frame.size) if raw is None else raw)
        if len(events) == 1 and type(events[0]) is Delta:
            part, text, _ = events[0]
            index, template = self._indexes.get(part), _TEMPLATES.get(part.kind)
            if index is not None and template is not None and text and not frame.last:
                return template % (index, dump(text, frame.size))
        if not (events or doc is not None or frame.last):
            return PING
        docs = self._composer.compose_events(frame)
        return b"".join([encode_named_event(doc["type"], dump(doc, frame.size)) for doc in docs])

    def encode_error(self, document: bytes) -> bytes:
        return encode_named_event("error", document)


class WholeMessageWriter(MessageWriter):
    """Writes a whole message at the last frame."""

    def __init__(self) -> None:
        super().__init__()
        self._message = MessageAccumulator()
        self._size = 0

    def feed(self, frame: Frame) -> bytes:
        self._size += frame.size
        doc = frame.doc
        if doc is not None and frame.family == "messages":
            kind = doc.get("type")
            is_event = isinstance(kind, str) and kind in schema.STREAM_EVENTS
            if frame.last and not is_event:
                return dump(doc, self._size) if frame.raw is None else frame.raw
            self._composer.track_native_event(doc, frame.events)
            self._message.add_event(doc)
        else:
            for event in self._composer.compose_events(frame):
                self._message.add_event(event)
        return dump(self._message.build_message(), self._size) if frame.last else b""


class MessageAccumulator:
    """Composes a whole message from the events of a stream."""

    def __init__(self) -> None:
        self._message: Json = {}
        self._blocks: dict[Any, Json] = {}  # by index
        self._texts: dict[tuple[Any, str], list[str]] = {}  # by index and member

    def add_event(self, event: Json) -> None:
        kind, index = event.get("type"), event.get("index")
        if kind == schema.MESSAGE_START:
            self._message = dict(event["message"])
        elif kind == schema.BLOCK_START:
            self._blocks[index] = dict(event["content_block"])
        elif kind == schema.BLOCK_DELTA:
            self._add_delta(index, event["delta"])
        elif kind == schema.MESSAGE_DELTA:
            usage = {**self._message.get("usage", {}), **event.get("usage", {})}
            self._message |= {**event["delta"], "usage": usage}

    def _add_delta(self, index: Any, delta: Json) -> None:
        for member, value in delta.items():
            if member == "citation":
                block = self._blocks[index]
                block["citations"] = [*(block.get("citations") or ()), value]
            elif member != "type" and isinstance(value, str):
                self._texts.setdefault((index, member), []).append(value)

    def build_message(self) -> Json:
        for (index, member), texts in self._texts.items():
            text, block = "".join(texts), self._blocks[index]
            if member == "partial_json":
                block["input"] = parse_tool_arguments(text, lambda value: {"arguments": value})
            else:
                block[member] = block.get(member, "") + text
        self._texts.clear()
        return {**self._message, "content": [*self._blocks.values()]}
