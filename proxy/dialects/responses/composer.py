"""Composes responses, and the events of their streams, of answers of other families."""

from __future__ import annotations

from typing import Any

import orjson

from proxy.dialects.logprobs import chat_form
from proxy.dialects.pieces import dump
from proxy.dialects.responses.tables import (
    BY_KIND,
    CONVERSATION,
    ECHOED,
    PREVIOUS,
    SEQUENCE,
    UNSTORED,
    TextType,
    objects,
)
from proxy.dialects.responses.usage import response_usage, status_of
from proxy.dialects.signed_calls import BESIDE, SIGNATURE, VENDOR, shown_id
from proxy.dialects.sse import named_event
from proxy.money.usage import Tokens
from proxy.types import Call, Json
from proxy.types.events import (
    CALLS,
    STOP,
    Attach,
    Begin,
    Delta,
    Event,
    Finish,
    FinishReason,
    Frame,
    Kind,
    Part,
    Start,
    ToolCall,
    UsageReport,
)

_REPEATED: Json = {
    "background": False,
    "max_output_tokens": None,
    "parallel_tool_calls": True,
    "reasoning": None,
    "store": None,
    "temperature": 1.0,
    "top_p": 1.0,
    "truncation": None,
}
"""Members of a response that repeat the request besides `ECHOED`, and their defaults."""
_KINDS: dict[Kind, Kind] = {"summary": "reasoning"}


class EventBytes:
    """Writes numbered events. Of a whole answer none are written."""

    __slots__ = ("is_whole", "number")

    def __init__(self, *, is_whole: bool) -> None:
        self.is_whole = is_whole
        self.number = 0

    def event(self, kind: str, doc: Json, size: int = 0) -> bytes:
        if self.is_whole:
            return b""
        numbered = {"type": kind, SEQUENCE: 0, **doc}
        numbered[SEQUENCE] = self.number
        self.number += 1
        return named_event(kind, dump(numbered, size))


def echoed(call: Call) -> Json:
    """Return the members of a response that repeat the request, as its client wrote it."""
    made = {name: call.body.get(name, default) for name, default in ECHOED.items()}
    pin = call.state_ref
    if pin is not None and pin.id:
        name, value = CONVERSATION, {"id": pin.client_id}
        made |= {name: value} if pin.is_conversation else {PREVIOUS: pin.client_id}
    return made


class _OpenText:
    """The text that is being written, in the part `number` of the item `received_at`."""

    __slots__ = ("at", "logprobs", "middle", "number", "pieces", "type")

    def __init__(self, items: list[Json], at: int, text_type: TextType) -> None:
        self.at = at
        self.type = text_type
        self.number = len(items[at].get("content", ()))
        self.pieces: list[str] = []
        self.logprobs: list[Json] = []
        place = orjson.dumps(self.place(items[at]["id"]))[1:-1]
        self.middle = b"," + place + b',"delta":'

    def place(self, item_id: str) -> Json:
        where: Json = {"item_id": item_id, "output_index": self.at}
        index = self.type.numbered_by
        return {**where, index: self.number} if index else where

    @property
    def done(self) -> Json:
        """The members that have the whole text."""
        made: Json = {self.type.member: "".join(self.pieces)}
        return made | ({"logprobs": self.logprobs} if self.type.kind == "text" else {})


class Composer:
    """Takes the events of one answer, whose parts follow each other. Texts and refusals that
    follow each other are one message; parts of one kind that do are one text."""

    __slots__ = (
        *("_call", "_is_message", "_open", "_out", "_part", "_reason", "_tokens"),
        *("has_ended", "head", "items", "response"),
    )

    def __init__(self, call: Call, out: EventBytes) -> None:
        self._call = call
        self._out = out
        self._open: _OpenText | None = None
        self._part: Part | None = None  # of the open text
        self._reason: FinishReason = "stop"
        self._tokens: Tokens | None = None
        self.head: Json | None = None
        self.items: list[Json] = []
        self.response: Json = {}
        self.has_ended = False

    def feed(self, frame: Frame) -> bytes:
        """Return the bytes of the events of a frame."""
        events = frame.events
        if len(events) == 1 and type(event := events[0]) is Delta and not frame.last:
            return self._delta(event, ())
        out = [self._event(event, frame) for event in events]
        return b"".join([*out, self._stop()] if frame.last else out)

    def _event(self, event: Event, frame: Frame) -> bytes:
        if isinstance(event, Delta):
            return self._delta(event, frame.events)
        if isinstance(event, Start):
            return self._start(event)
        if isinstance(event, Begin) and event.part.kind in CALLS and event.call is not None:
            return self._begin_call(event.part, event.call, frame.events)
        if isinstance(event, Finish):
            self._reason = event.reason
        elif isinstance(event, UsageReport):
            self._tokens = event.tokens
        return self._stop() if event is STOP else b""

    def _start(self, start: Start) -> bytes:
        if self.head is not None:
            return b""
        body = self._call.body
        created = (
            self._call.head.received_at.timestamp() if start.created is None else start.created
        )
        self.head = {
            "id": start.id,
            "object": "response",
            "created_at": int(created),
            "model": start.model,
            **{name: body.get(name, default) for name, default in _REPEATED.items()},
            "store": False,  # whatever the request says: no provider stores it
            **echoed(self._call),
            "error": None,
            "incomplete_details": None,
        }
        begun = {**self.head, "status": "in_progress", "output": [], "usage": None}
        kinds = ("response.created", "response.in_progress")
        return b"".join([self._out.event(kind, {"response": begun}) for kind in kinds])

    def _delta(self, event: Delta, events: tuple[Event, ...]) -> bytes:
        part, text = event.part, event.text
        out = b""
        if part is not self._part:
            kind = _KINDS.get(part.kind, part.kind)
            if kind not in BY_KIND or kind in CALLS or part.choice or not text:
                return b""
            out = self._open_text(BY_KIND[kind])
            self._part = part
        known = self._open
        if not text or known is None:
            return out
        known.pieces.append(text)
        suffix = b"}\n\n"
        if known.type.kind == "text":
            logprobs = _logprobs(event, events)
            known.logprobs += logprobs
            suffix = b',"logprobs":%b}\n\n' % (orjson.dumps(logprobs) if logprobs else b"[]")
        if self._out.is_whole:
            return out
        name, number = known.type.event.encode(), self._out.number
        self._out.number += 1
        head = b'event: %b.delta\ndata: {"type":"%b.delta","sequence_number":%d'
        return b"".join(
            [out, head % (name, name, number), known.middle, dump(text, len(text)), suffix]
        )

    def _open_text(self, text_type: TextType) -> bytes:
        known = self._open
        if known is not None and known.type is text_type and text_type.part:
            return b""
        is_message = text_type.item == "message"
        if known is not None and is_message and known.type.item == "message":
            at, out = known.at, self._close_part()
        else:
            out = self._close()
            at = len(self.items)
            out += self._add(_message_item if is_message else _reasoning_item)
        item = self.items[at]
        parts = item["content"]
        known = self._open = _OpenText(self.items, at, text_type)
        parts.append(_part(known))
        added = {**known.place(item["id"]), "part": parts[-1]}
        return out + self._out.event("response.content_part.added", added)

    def _begin_call(self, part: Part, call: ToolCall, events: tuple[Event, ...]) -> bytes:
        if part.choice:
            return b""
        out = self._close()
        at = len(self.items)
        text_type = BY_KIND[part.kind]
        signed = {"id": call.id, BESIDE: {VENDOR: {SIGNATURE: _signature(part, events)}}}
        item: Json = {"type": text_type.item, "status": "in_progress", "call_id": shown_id(signed)}
        item |= {"name": call.name, text_type.member: ""}
        prefix = "ctc" if call.type == "custom" else "fc"
        out += self._add(lambda: {"id": prefix, **item})
        self._open, self._part = _OpenText(self.items, at, text_type), part
        return out

    def _add(self, made: Any) -> bytes:
        """Add an item, whose id begins with the one that it has."""
        item: Json = made()
        at = len(self.items)
        name = str((self.head or {}).get("id")).removeprefix("msg_")
        item["id"] = f"{item['id']}_{UNSTORED}{name}_{at}"
        self.items.append(item)
        return self._out.event("response.output_item.added", {"output_index": at, "item": item})

    def _close_part(self) -> bytes:
        """End the open text."""
        known, self._part = self._open, None
        if known is None:
            return b""
        item = self.items[known.at]
        place = known.place(item["id"])
        out = self._out.event(f"{known.type.event}.done", {**place, **known.done})
        if not known.type.part:
            item |= known.done
            return out
        part = item["content"][known.number] = _part(known)
        return out + self._out.event("response.content_part.done", {**place, "part": part})

    def _close(self) -> bytes:
        """End the open item."""
        out, known = self._close_part(), self._open
        if known is None:
            return out
        self._open = None
        item = self.items[known.at]
        if "status" in item:
            item["status"] = "completed"
        done = {"output_index": known.at, "item": item}
        return out + self._out.event("response.output_item.done", done)

    def _stop(self) -> bytes:
        if self.has_ended:
            return b""
        self.has_ended = True
        out = self._start(Start(None, None, 0))
        if not self.items:
            out += self._open_text(BY_KIND["text"])
        out += self._close()
        status = status_of(self._reason)
        usage = response_usage(self._tokens)
        self.response = {**(self.head or {}), **status, "output": self.items, "usage": usage}
        return out + self._out.event(f"response.{status['status']}", {"response": self.response})


def _message_item() -> Json:
    item = {"id": "msg", "type": "message", "status": "in_progress", "role": "assistant"}
    return {**item, "content": []}


def _reasoning_item() -> Json:
    return {"id": "rs", "type": "reasoning", "summary": [], "content": []}


def _part(text: _OpenText) -> Json:
    beside: Json = {"annotations": []} if text.type.kind == "text" else {}
    return {"type": text.type.part, **beside, **text.done}


def _logprobs(delta: Delta, events: tuple[Event, ...]) -> list[Json]:
    """Return the log-probabilities of a delta, which are beside it in its frame."""
    for event in events:
        if isinstance(event, Attach) and event.part is delta.part and event.name == "logprobs":
            value = chat_form(event.value)  # which legacy completions have otherwise
            return objects(value.get("content") if isinstance(value, dict) else value)
    return []


def _signature(part: Part, events: tuple[Event, ...]) -> Any:
    """Return the signature of a call that begins in a frame, None if it has none."""
    for event in events:
        if isinstance(event, Attach) and event.part is part and event.name == "signature":
            return event.value
    return None
