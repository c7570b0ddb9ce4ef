"""Composes responses and their stream events from events of other families."""

from __future__ import annotations

import orjson

from proxy.dialects.chat.merging import to_chat_logprobs
from proxy.dialects.chat.tool_calls import make_client_call_id
from proxy.dialects.family import find_attached
from proxy.dialects.responses import schema
from proxy.dialects.responses.schema import (
    EventEncoder,
    TextType,
    echo_request_members,
    make_response_usage,
    make_status_members,
)
from proxy.dialects.wire.strict_json import as_objects, dump
from proxy.money.usage import Tokens
from proxy.types import Call, Json
from proxy.types.events import (
    RESPONSE_END,
    Delta,
    Event,
    Finish,
    FinishReason,
    Frame,
    Part,
    PartStart,
    ResponseStart,
    ToolCall,
    UsageReport,
)

_DEFAULT_PARAMETERS: Json = {
    "background": False,
    "max_output_tokens": None,
    "parallel_tool_calls": True,
    "reasoning": None,
    "store": None,
    "temperature": 1.0,
    "top_p": 1.0,
    "truncation": None,
}
"""Parameters of the request that a response repeats besides ``ECHOED``, and their defaults."""


class _OpenText:
    """The text that is being written: of a tool call, or of the last part of an item."""

    __slots__ = ("index", "item", "location", "logprobs", "middle", "part_index", "pieces", "type")

    def __init__(self, index: int, item: Json, text_type: TextType) -> None:
        self.index = index
        self.item = item
        self.type = text_type
        self.part_index = len(item.get("content", ()))
        self.pieces: list[str] = []
        self.logprobs: list[Json] = []
        self.location: Json = {"item_id": item["id"], schema.OUTPUT_INDEX: index}
        if text_type.index_member:
            self.location[text_type.index_member] = self.part_index
        self.middle = b"," + orjson.dumps(self.location)[1:-1] + b',"delta":'

    @property
    def whole_text_members(self) -> Json:
        """The members with the whole text."""
        members: Json = {self.type.member: "".join(self.pieces)}
        return members | ({"logprobs": self.logprobs} if self.type.kind == "text" else {})

    @property
    def content_part(self) -> Json:
        annotations: Json = {"annotations": []} if self.type.kind == "text" else {}
        return {"type": self.type.part_type, **annotations, **self.whole_text_members}


class ResponseComposer:
    """Composes one response from events whose parts do not interleave.

    Consecutive texts and refusals form one message. Consecutive parts of one kind form one text.
    """

    def __init__(self, call: Call, out: EventEncoder) -> None:
        self._call = call
        self._out = out
        self._open: _OpenText | None = None
        self._part: Part | None = None  # part of the open text
        self._reason: FinishReason = "stop"
        self._tokens: Tokens | None = None
        self._items: list[Json] = []
        self._has_ended = False
        self.response: Json = {}  # without items and usage until the end

    def feed(self, frame: Frame) -> bytes:
        events = frame.events
        if len(events) == 1 and type(event := events[0]) is Delta and not frame.last:
            return self._write_delta(event, ())
        out = [self._write_event(event, frame) for event in events]
        return b"".join([*out, self._end_response()] if frame.last else out)

    def _write_event(self, event: Event, frame: Frame) -> bytes:
        if isinstance(event, Delta):
            return self._write_delta(event, frame.events)
        if isinstance(event, ResponseStart):
            return self._start_response(event)
        if isinstance(event, PartStart) and event.call is not None:
            return self._begin_tool_call(event.part, event.call, frame.events)
        if isinstance(event, Finish):
            self._reason = event.reason
        elif isinstance(event, UsageReport):
            self._tokens = event.tokens
        return self._end_response() if event is RESPONSE_END else b""

    def _start_response(self, start: ResponseStart) -> bytes:
        if self.response:
            return b""
        body, created = self._call.body, start.created
        if created is None:
            created = int(self._call.head.received_at.timestamp())
        self.response = {
            "id": start.id,
            "object": "response",
            "created_at": int(created),
            "model": start.model,
            **{name: body.get(name, default) for name, default in _DEFAULT_PARAMETERS.items()},
            "store": False,  # no provider stores the response, whatever the request says
            **echo_request_members(self._call),
            "error": None,
            "incomplete_details": None,
        }
        started = {**self.response, "status": "in_progress", "output": [], "usage": None}
        kinds = ("response.created", "response.in_progress")
        return b"".join([self._out.encode(kind, {"response": started}) for kind in kinds])

    def _write_delta(self, event: Delta, events: tuple[Event, ...]) -> bytes:
        part, text = event.part, event.text
        out = b""
        if part is not self._part:
            kind = "reasoning" if part.kind == "summary" else part.kind
            text_type = schema.TEXT_BY_KIND.get(kind)
            if text_type is None or not text_type.part_type or part.choice or not text:
                return b""
            out = self._open_text(text_type)
            self._part = part
        opened = self._open
        if not text or opened is None:
            return out
        opened.pieces.append(text)
        suffix = b"}\n\n"
        if opened.type.kind == "text":
            logprobs: list[Json] = []
            if events:
                value = to_chat_logprobs(find_attached(events, part, "logprobs"))
                logprobs = as_objects(value.get("content") if isinstance(value, dict) else value)
                opened.logprobs += logprobs
            suffix = b',"logprobs":%b}\n\n' % (orjson.dumps(logprobs) if logprobs else b"[]")
        if self._out.is_whole:
            return out
        name, number = opened.type.event.encode(), self._out.number
        self._out.number += 1
        head = b'event: %b.delta\ndata: {"type":"%b.delta","sequence_number":%d'
        head %= (name, name, number)
        return b"".join([out, head, opened.middle, dump(text, len(text)), suffix])

    def _open_text(self, text_type: TextType) -> bytes:
        opened = self._open
        if opened is not None and opened.type is text_type and text_type.part_type:
            return b""
        is_message = text_type.item_type == "message"
        if opened is not None and is_message and opened.type.item_type == "message":
            out, index, item = self._close_text(), opened.index, opened.item
        else:
            out = self._close_item()
            item = {"id": "rs", "type": "reasoning", "summary": [], "content": []}
            if is_message:
                item = {"id": "msg", "type": "message", "status": "in_progress"}
                item |= {"role": "assistant", "content": []}
            index = len(self._items)
            out += self._add_item(item)
        opened = self._open = _OpenText(index, item, text_type)
        item["content"].append(opened.content_part)
        added = {**opened.location, "part": opened.content_part}
        return out + self._out.encode("response.content_part.added", added)

    def _begin_tool_call(self, part: Part, call: ToolCall, events: tuple[Event, ...]) -> bytes:
        if part.choice:
            return b""
        out = self._close_item()
        text_type = schema.TEXT_BY_KIND[part.kind]
        signature = find_attached(events, part, "signature")
        item: Json = {
            "id": "ctc" if call.type == "custom" else "fc",
            "type": text_type.item_type,
            "status": "in_progress",
            "call_id": make_client_call_id(call.id, signature),
            "name": call.name,
            text_type.member: "",
        }
        out += self._add_item(item)
        self._open, self._part = _OpenText(len(self._items) - 1, item, text_type), part
        return out

    def _add_item(self, item: Json) -> bytes:
        """Add an item. Its id, so far a prefix, becomes unique."""
        index = len(self._items)
        response_id = str(self.response.get("id")).removeprefix("msg_")
        item["id"] = f"{item['id']}_{schema.UNSTORED_MARK}{response_id}_{index}"
        self._items.append(item)
        return self._out.encode(schema.ITEM_ADDED, {schema.OUTPUT_INDEX: index, "item": item})

    def _close_text(self) -> bytes:
        opened, self._part = self._open, None
        if opened is None:
            return b""
        members = opened.whole_text_members
        out = self._out.encode(f"{opened.type.event}.done", {**opened.location, **members})
        if not opened.type.part_type:
            opened.item |= members
            return out
        part = opened.item["content"][opened.part_index] = opened.content_part
        event = {**opened.location, "part": part}
        return out + self._out.encode("response.content_part.done", event)

    def _close_item(self) -> bytes:
        out, opened = self._close_text(), self._open
        if opened is None:
            return out
        self._open = None
        if "status" in opened.item:
            opened.item["status"] = "completed"
        event = {schema.OUTPUT_INDEX: opened.index, "item": opened.item}
        return out + self._out.encode(schema.ITEM_DONE, event)

    def _end_response(self) -> bytes:
        if self._has_ended:
            return b""
        self._has_ended = True
        out = self._start_response(ResponseStart(None, None, 0))
        if not self._items:
            out += self._open_text(schema.TEXT_BY_KIND["text"])
        out += self._close_item()
        status = make_status_members(self._reason)
        usage = make_response_usage(self._tokens)
        self.response = {**self.response, **status, "output": self._items, "usage": usage}
        return out + self._out.encode(f"response.{status['status']}", {"response": self.response})
