"""Writes responses, streamed and whole."""

from __future__ import annotations

from typing import Any

import orjson

from proxy.dialects.family import WriteOptions
from proxy.dialects.responses import schema
from proxy.dialects.responses.composer import ResponseComposer
from proxy.dialects.responses.schema import (
    EventEncoder,
    TextType,
    echo_request_members,
    make_response_usage,
    make_status_members,
)
from proxy.dialects.wire.sse import KEEPALIVE, encode_named_event
from proxy.dialects.wire.strict_json import as_int, as_object, as_objects, as_text, dump
from proxy.errors import GuardBlocked
from proxy.types import Json
from proxy.types.events import (
    Attach,
    Delta,
    Event,
    Finish,
    FinishReason,
    Frame,
    Part,
    PartStart,
    ResponseEnd,
    UsageReport,
)

TextKey = tuple[int, str, int]
"""The index of an item, the kind of a text, and the index of its part."""


class _SentText:
    """Text that the client has received. ``logprobs`` are used if every delta had some."""

    __slots__ = ("logprobs", "logprobs_count", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.logprobs: list[Json] = []
        self.logprobs_count = 0

    def insert_text(self, value: Json, name: str) -> Json:
        """Return a value that repeats the text, with the text that the client received."""
        if not self.pieces:
            return value
        filled = {**value, name: "".join(self.pieces)}
        if value.get("logprobs") == [] and self.logprobs_count == len(self.pieces):
            filled["logprobs"] = self.logprobs
        return filled


class ResponsesWriter:
    """Writes one response.

    Events of a Responses upstream pass as received until one is changed. After that, events are
    renumbered, and repeated texts are replaced by the texts that were sent.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._out = EventEncoder(is_whole=options.whole)
        self._composer: ResponseComposer | None = None
        self._is_native = False  # True if the upstream serves the Responses API
        self._rewrites = False
        self._has_ended = False
        self._response: Json = {}  # the latest response document, with items only if they are final
        self._items: dict[int, Json] = {}
        self._text_by_part: dict[Part, _SentText] = {}
        self._text_by_key: dict[TextKey, _SentText] = {}
        self._reason: FinishReason = "stop"
        self._usage: Json | None = None
        self._size = 0

    def feed(self, frame: Frame) -> bytes:
        events, doc = frame.events, frame.doc
        if frame.family == schema.FAMILY and doc is not None:
            if self._options.whole and "type" not in doc:
                echoed = echo_request_members(self._options.call)
                return frame.raw or dump({**doc, **echoed}, frame.size)
            out = self._write_native_event(frame, doc)
        elif not (events or doc is not None or frame.last):
            if not self._response:  # SDKs require `response.created` to be the first event
                return KEEPALIVE
            self._rewrites = True
            out = self._out.encode("keepalive", {})
        elif self._is_native or frame.family == schema.FAMILY:
            out = self._write_composed_events(frame)
        else:
            self._composer = self._composer or ResponseComposer(self._options.call, self._out)
            out = self._composer.feed(frame)
            self._response = self._composer.response
        if not self._options.whole:
            return out
        self._size += frame.size
        if not frame.last:
            return b""
        return dump(self._response, self._size)

    def encode_error(self, document: bytes) -> bytes:
        """Return two events for an error: SDKs raise the first, Codex reads the second."""
        error = orjson.loads(document).get("error", {})
        details = {name: error.get(name) for name in ("code", "message", "param")}
        # Codex retries other codes.
        code = "invalid_prompt" if details["code"] == GuardBlocked.code else details["code"]
        failed: Json = {"object": "response", **self._response, "status": "failed"}
        failed["error"] = {"code": code, "message": details["message"]}
        failed = {n: value for n, value in failed.items() if n not in ("output", "usage")}
        out = self._out.encode("error", {**details, "error": error})
        return out + self._out.encode("response.failed", {"response": failed})

    # Streams of the family

    def _write_native_event(self, frame: Frame, doc: Json) -> bytes:
        raw, kind = frame.raw, as_text(doc.get("type"))
        self._is_native = True
        self._store_sent_texts(frame.events)
        self._rewrites |= raw is None
        if kind in (schema.ITEM_ADDED, schema.ITEM_DONE):
            self._items[as_int(doc.get(schema.OUTPUT_INDEX))] = as_object(doc.get("item"))
        if kind in schema.RESPONSE_EVENTS:
            self._set_response(as_object(doc.get("response")), is_final=kind in schema.END_EVENTS)
            doc = {**doc, "response": self._response}
        if not self._rewrites and raw is not None and not self._options.whole:
            self._out.number += 1
            return encode_named_event(kind, raw)
        return self._out.encode(kind, self._insert_event_texts(doc, kind), frame.size)

    def _write_composed_events(self, frame: Frame) -> bytes:
        # Deltas in frames of the family are not written: a later document repeats their texts.
        self._store_sent_texts(frame.events)
        out = b""
        for event in frame.events:
            if isinstance(event, Delta):
                if frame.family != schema.FAMILY:
                    out += self._write_delta(event)
            elif isinstance(event, Finish):
                self._reason = event.reason
            elif isinstance(event, UsageReport):
                self._usage = make_response_usage(event.tokens)
        is_over = frame.last or any([type(event) is ResponseEnd for event in frame.events])
        return out + self._write_end_event() if is_over and not self._has_ended else out

    def _write_delta(self, event: Delta) -> bytes:
        part = event.part
        text_type = schema.TEXT_BY_KIND.get(part.kind)
        if text_type is None:
            return b""
        self._rewrites = True
        item = part.parent or part
        location: Json = {"item_id": item.id, schema.OUTPUT_INDEX: item.number}
        location |= {text_type.index_member: part.number} if text_type.part_type else {}
        return self._out.encode(f"{text_type.event}.delta", {**location, "delta": event.text})

    def _store_sent_texts(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, Delta):
                if event.text and event.part in self._text_by_part:
                    self._text_by_part[event.part].pieces.append(event.text)
            elif isinstance(event, PartStart):
                part = event.part
                if part.kind in schema.TEXT_BY_KIND:
                    part_index = 0 if part.parent is None else part.number
                    key = (part.parent or part).number, part.kind, part_index
                    self._text_by_part[part] = self._text_by_key.setdefault(key, _SentText())
            elif isinstance(event, Attach) and event.name == "logprobs":
                text = self._text_by_part.get(event.part)
                if text is not None:
                    text.logprobs_count += 1
                    text.logprobs += as_objects(event.value)

    def _set_response(self, response: Json, *, is_final: bool) -> None:
        self._response = {**response, **echo_request_members(self._options.call)}
        if is_final:
            self._has_ended = True
            output = response.get("output")
            for index, item in enumerate(output if isinstance(output, list) else ()):
                if isinstance(item, dict):
                    self._items.setdefault(index, item)
            self._response["output"] = self._collect_output_items()

    def _collect_output_items(self) -> list[Json]:
        return [self._insert_item_texts(self._items[index], index) for index in sorted(self._items)]

    def _write_end_event(self) -> bytes:
        self._has_ended = self._rewrites = True
        for (index, kind, _), text in self._text_by_key.items():
            text_type = schema.TEXT_BY_KIND[kind]
            item = self._items.get(index)
            if item is not None and text_type.part_type and not item.get(text_type.list_member):
                part = text.insert_text({"type": text_type.part_type}, text_type.member)
                self._items[index] = {**item, text_type.list_member: [part]}
        status = make_status_members(self._reason)
        self._response |= {**status, "output": self._collect_output_items(), "usage": self._usage}
        return self._out.encode(f"response.{status['status']}", {"response": self._response})

    def _insert_event_texts(self, doc: Json, kind: str) -> Json:
        index = as_int(doc.get(schema.OUTPUT_INDEX))
        if kind in schema.TEXT_BY_DONE:
            text_type = schema.TEXT_BY_DONE[kind]
            part_index = as_int(doc.get(text_type.index_member))
            return self._insert_sent_text(doc, text_type, index, part_index)
        if kind == schema.ITEM_DONE:
            return {**doc, "item": self._insert_item_texts(as_object(doc.get("item")), index)}
        if kind in schema.PART_INDEX and kind.endswith(".done"):
            part_index = as_int(doc.get(schema.PART_INDEX[kind]))
            return {**doc, "part": self._insert_part_text(doc.get("part"), index, part_index)}
        return doc

    def _insert_item_texts(self, item: Json, index: int) -> Json:
        filled = dict(item)
        for name in ("content", "summary"):
            if isinstance(item.get(name), list):
                parts = enumerate(item[name])
                filled[name] = [self._insert_part_text(part, index, n) for n, part in parts]
        text_type = schema.TEXT_BY_CALL.get(as_text(item.get("type")))
        return filled if text_type is None else self._insert_sent_text(filled, text_type, index, 0)

    def _insert_part_text(self, part: Any, index: int, part_index: int) -> Any:
        text_type = schema.TEXT_BY_PART.get(as_text(as_object(part).get("type")))
        if text_type is None:
            return part
        return self._insert_sent_text(part, text_type, index, part_index)

    def _insert_sent_text(
        self, value: Json, text_type: TextType, index: int, part_index: int
    ) -> Json:
        text = self._text_by_key.get((index, text_type.kind, part_index))
        return value if text is None else text.insert_text(value, text_type.member)
