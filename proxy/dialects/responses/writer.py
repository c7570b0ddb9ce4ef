"""Writer of Responses answers, streamed and whole."""

from __future__ import annotations

from typing import Any

import orjson

from proxy.dialects.family import WriteOptions
from proxy.dialects.pieces import dump
from proxy.dialects.responses.composer import Composer, EventBytes, echoed
from proxy.dialects.responses.tables import (
    ADDED,
    BY_CALL,
    BY_DONE,
    BY_KIND,
    BY_PART,
    DONE,
    ENDS,
    FAMILY,
    OF_RESPONSE,
    OUTPUT,
    PART_INDEX,
    TextType,
    member,
    number,
    objects,
    string,
)
from proxy.dialects.responses.usage import response_usage, status_of
from proxy.dialects.sse import KEEPALIVE, named_event
from proxy.errors import GuardBlocked
from proxy.types import Json
from proxy.types.events import (
    Attach,
    Begin,
    Delta,
    Event,
    Finish,
    FinishReason,
    Frame,
    Part,
    Stop,
    UsageReport,
)

Place = tuple[int, str, int]
"""The place of a text: the number of its item, its kind, and the number of its part."""


class _ShownText:
    """What the client got of a text. Log-probabilities count only if each delta had some."""

    __slots__ = ("listed", "logprobs", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.logprobs: list[Json] = []
        self.listed = 0

    def fill(self, value: Json, name: str) -> Json:
        """Return what repeats the text, as it was shown."""
        if not self.pieces:
            return value
        made = {**value, name: "".join(self.pieces)}
        if value.get("logprobs") == [] and self.listed == len(self.pieces):
            made["logprobs"] = self.logprobs
        return made


class ResponsesWriter:
    """Writes one answer.

    Events of the family pass as received up to the first one without bytes. From there on events
    are numbered again, and what repeats a text has the text that was shown.
    """

    __slots__ = (
        *("_composer", "_has_ended", "_head", "_is_own", "_items", "_options", "_out", "_places"),
        *("_reason", "_rewrites", "_size", "_texts", "_usage", "_whole"),
    )

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._out = EventBytes(is_whole=options.whole)
        self._composer = Composer(options.call, self._out)
        self._is_own = False  # an upstream of the family answers
        self._rewrites = False
        self._has_ended = False
        self._head: Json = {}  # the last response, with items only if they are final
        self._items: dict[int, Json] = {}
        self._texts: dict[Part, _ShownText] = {}
        self._places: dict[Place, _ShownText] = {}
        self._reason: FinishReason = "stop"
        self._usage: Json | None = None
        self._size = 0
        self._whole: bytes | None = None

    @property
    def media_type(self) -> str:
        is_whole = self._options.whole
        return "application/json" if is_whole else "text/event-stream; charset=utf-8"

    def weight(self, frame: Frame) -> int:
        if not self._options.whole:
            return frame.size
        return self._size + frame.size if frame.last else 0

    def feed(self, frame: Frame) -> bytes:
        events, doc = frame.events, frame.doc
        if frame.family == FAMILY and doc is not None:
            if self._options.whole and "type" not in doc:
                return frame.raw or dump(self._with_echo(doc), frame.size)
            out = self._own(frame, doc)
        elif not (events or doc is not None or frame.last):
            out = self._keep_alive()
        elif self._is_own or frame.family == FAMILY:
            out = self._own_events(frame)
        else:
            out = self._composer.feed(frame)
        if not self._options.whole:
            return out
        self._size += frame.size
        return dump(self._response(), self._size) if frame.last else b""

    def fail(self, document: bytes) -> bytes:
        """Return the events of an error: SDKs raise the first, Codex reads the second."""
        if self._options.whole:
            return b""
        error = orjson.loads(document).get("error", {})
        members = {name: error.get(name) for name in ("code", "message", "param")}
        head = self._head or self._composer.head or {}
        head = {name: each for name, each in head.items() if name not in ("output", "usage")}
        failed: Json = {"object": "response", **head, "status": "failed"}
        failed["error"] = {name: members[name] for name in ("code", "message")}
        if members["code"] == GuardBlocked.code:
            failed["error"]["code"] = "invalid_prompt"  # Codex repeats a request for other codes
        out = self._out.event("error", {**members, "error": error})
        return out + self._out.event("response.failed", {"response": failed})

    def _keep_alive(self) -> bytes:
        """SDKs require `response.created` to be the first event, so a comment comes before it."""
        if not self._head and self._composer.head is None:
            return KEEPALIVE
        self._rewrites = True
        return self._out.event("keepalive", {})

    def _response(self) -> Json:
        """Return the whole response of a stream."""
        return self._head if self._is_own else self._composer.response

    def _with_echo(self, response: Json) -> Json:
        return {**response, **echoed(self._options.call)}

    # Events of the family

    def _own(self, frame: Frame, doc: Json) -> bytes:
        raw, kind = frame.raw, string(doc.get("type"))
        self._is_own = True
        self._note(frame.events)
        if raw is None:
            self._rewrites = True
        if kind in (ADDED, DONE):
            self._items[number(doc.get(OUTPUT))] = member(doc.get("item"))
        if kind in OF_RESPONSE:
            doc = self._with_response(doc, kind)
        if not self._rewrites and raw is not None and not self._options.whole:
            self._out.number += 1
            return named_event(kind, raw)
        return self._out.event(kind, self._restored(doc, kind), frame.size)

    def _own_events(self, frame: Frame) -> bytes:
        """Write a frame without document into a stream of the family. One of the family itself has
        texts that a later document repeats."""
        self._note(frame.events)
        out = b""
        for event in frame.events:
            if isinstance(event, Delta) and frame.family != FAMILY:
                out += self._delta(event)
            elif isinstance(event, Finish):
                self._reason = event.reason
            elif isinstance(event, UsageReport):
                self._usage = response_usage(event.tokens)
        is_over = frame.last or any([type(event) is Stop for event in frame.events])
        return out + self._end() if is_over and not self._has_ended else out

    def _delta(self, event: Delta) -> bytes:
        """Write a delta that no document has."""
        part = event.part
        text_type = BY_KIND.get(part.kind)
        item = part.parent or part
        if text_type is None:
            return b""
        self._rewrites = True
        where: Json = {"item_id": item.id, OUTPUT: item.number}
        where |= {text_type.numbered_by: part.number} if text_type.part else {}
        return self._out.event(f"{text_type.event}.delta", {**where, "delta": event.text})

    def _note(self, events: tuple[Event, ...]) -> None:
        """Keep the texts that the client gets."""
        for event in events:
            if isinstance(event, Delta):
                shown = self._texts.get(event.part)
                if shown is not None and event.text:
                    shown.pieces.append(event.text)
            elif isinstance(event, Begin):
                part = event.part
                if part.kind in BY_KIND:
                    at, own = (
                        (part.parent or part).number,
                        0 if part.parent is None else part.number,
                    )
                    shown = self._places.setdefault((at, part.kind, own), _ShownText())
                    self._texts[part] = shown
            elif isinstance(event, Attach) and event.name == "logprobs":
                shown = self._texts.get(event.part)
                if shown is not None:
                    shown.listed += 1
                    shown.logprobs += objects(event.value)

    def _with_response(self, doc: Json, kind: str) -> Json:
        """Note the response of an event. Return the event as it is written anew."""
        response = member(doc.get("response"))
        if kind not in ENDS:
            self._head = self._with_echo(response)
            return {**doc, "response": self._head}
        self._has_ended = True
        output = response.get("output")
        for at, item in enumerate(output if isinstance(output, list) else ()):
            known = self._items.get(at)
            if known is None:
                self._items[at] = item
        self._head = {**self._with_echo(response), "output": self._output()}
        return {**doc, "response": self._head}

    def _output(self) -> list[Json]:
        return [self._item(self._items[at], at) for at in sorted(self._items)]

    def _end(self) -> bytes:
        """End a stream whose upstream has not ended it."""
        self._has_ended = self._rewrites = True
        for (at, kind, _), shown in self._places.items():
            text_type = BY_KIND[kind]
            item = self._items.get(at)
            if item is not None and text_type.part and not item.get(text_type.within):
                part = shown.fill({"type": text_type.part}, text_type.member)
                self._items[at] = {**item, text_type.within: [part]}
        status = status_of(self._reason)
        self._head |= {**status, "output": self._output(), "usage": self._usage}
        return self._out.event(f"response.{status['status']}", {"response": self._head})

    def _restored(self, doc: Json, kind: str) -> Json:
        """Return an event with the texts that it repeats as they were shown."""
        at = number(doc.get(OUTPUT))
        if kind in BY_DONE:
            text_type = BY_DONE[kind]
            return self._filled(doc, text_type, (at, number(doc.get(text_type.numbered_by))))
        if kind == DONE:
            return {**doc, "item": self._item(member(doc.get("item")), at)}
        if kind in PART_INDEX and kind.endswith(".done"):
            part = self._part(doc.get("part"), at, number(doc.get(PART_INDEX[kind])))
            return {**doc, "part": part}
        return doc

    def _item(self, item: Json, at: int) -> Json:
        made = dict(item)
        for within in ("content", "summary"):
            if isinstance(item.get(within), list):
                parts = enumerate(item[within])
                made[within] = [self._part(part, at, n) for n, part in parts]
        text_type = BY_CALL.get(string(item.get("type")))
        return made if text_type is None else self._filled(made, text_type, (at, 0))

    def _part(self, part: Any, at: int, part_number: int) -> Any:
        text_type = BY_PART.get(string(member(part).get("type")))
        return part if text_type is None else self._filled(part, text_type, (at, part_number))

    def _filled(self, value: Json, text_type: TextType, place: tuple[int, int]) -> Json:
        shown = self._places.get((place[0], text_type.kind, place[1]))
        return value if shown is None else shown.fill(value, text_type.member)
