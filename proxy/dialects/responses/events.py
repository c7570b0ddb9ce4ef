"""An answer in chat's form as the events of a response that is streamed.

What came from an upstream of Responses has its own events with it, see ``reading``; of any other
answer they are made here.
"""

from __future__ import annotations

import copy
from typing import Any

import orjson

from proxy.dialects.pieces import dump
from proxy.dialects.responses.reading import (
    IN_CHAT,
    PARTIAL_JSON,
    member,
    number,
    objects,
    type_of,
)
from proxy.dialects.responses.words import (
    BY_DONE,
    BY_PART,
    CALLS,
    ENDS,
    KINDS,
    OF_RESPONSE,
    Place,
)
from proxy.dialects.responses.writing import (
    call_item,
    choice_of,
    echoed,
    message_item,
    own_usage,
    reasoning_item,
    repeated,
    status_of,
    text_part,
)
from proxy.dialects.sse import KEEPALIVE, named_event
from proxy.types import Call, Chunk, Json, Untouched

_IN_EVENTS = {PARTIAL_JSON: "delta"}


def _is_own(block: Json) -> bool:
    """True if a piece comes from an upstream of Responses: a bare mark says that text goes on."""
    return "index" in block or bool(block.get("start") or block.get("event"))


class ResponseEvents:
    """A stream. Events pass as they came until something of one was changed: from then on all are
    written anew, with what was shown where texts are said again."""

    __slots__ = (
        *("_anew", "_call", "_calls", "_done", "_ended", "_finish", "_head", "_items"),
        *("_logprobs", "_number", "_open", "_own", "_texts", "_usage"),
    )
    media_type = "text/event-stream; charset=utf-8"

    def __init__(self, call: Call | None = None) -> None:
        self._call = call
        self._anew = False
        self._own = False  # the events are an upstream's of Responses
        self._number = 0
        self._ended = False
        self._head: Json | None = None  # the response, without its output
        self._items: dict[int, Json] = {}
        self._calls: dict[int, int] = {}  # the items of calls, by their numbers among the tools
        self._done: set[int] = set()  # the items of a chat that are over
        self._texts: dict[Place, list[str]] = {}
        self._logprobs: dict[Place, list[Json]] = {}
        self._open: Place | None = None
        self._finish: str | None = None
        self._usage: Any = None

    def weight(self, chunk: Chunk) -> int:
        return chunk.size

    def feed(self, chunk: Chunk) -> bytes:
        data, raw = chunk.data, chunk.raw
        if data is None and not chunk.last and self._head is None:
            return KEEPALIVE  # SDKs require "response.created" to be the first event
        if data is None:
            self._anew = True
            return self._bytes(self._end() if chunk.last else [{"type": "keepalive"}])
        made = self._events(data)
        if isinstance(raw, Untouched) and not self._anew:
            self._number += 1
            return named_event(raw.kind, raw)
        self._anew = True
        out = self._bytes(made, chunk.size)
        return out + self._bytes(self._end()) if chunk.last else out

    def fail(self, document: bytes) -> bytes:
        """Return the events of an error: SDKs raise the first, Codex reads the second."""
        error = orjson.loads(document).get("error", {})
        members = {name: error.get(name) for name in ("code", "message", "param")}
        failed: Json = {"object": "response", **(self._head or {}), "status": "failed"}
        failed["error"] = {name: members[name] for name in ("code", "message")}
        ended = {"type": "response.failed", "response": failed}
        return self._bytes([{"type": "error", **members, "error": error}, ended])

    def _bytes(self, made: list[Json], size: int = 0) -> bytes:
        out: list[bytes] = []
        for each in made:
            kind = each["type"]
            numbered = {"type": kind, "sequence_number": self._number, **each}
            out.append(named_event(kind, dump(numbered, size)))
            self._number += 1
        return b"".join(out)

    def _events(self, data: Json) -> list[Json]:
        """Return the events that a chunk makes."""
        made: list[Json] = []
        if data.get("usage") is not None:
            self._usage = data["usage"]
        choice = choice_of(data)
        delta = member(choice.get("delta"))
        block = member(delta.get("block"))
        self._own = self._own or _is_own(block)
        if not self._own and data.get("choices"):
            self._begin(data, made)
        content = delta.get("content")
        if isinstance(content, list):  # a whole answer that is shown as a stream
            for item in objects(content):
                self._show(item, made)
        else:
            self._say(delta, block, choice, made)
        if choice.get("finish_reason") is not None:
            self._finish = str(choice["finish_reason"])
        rests = [dict(block[name]) for name in ("start", "event") if block.get(name)]
        return made + [self._restored(rest, data) for rest in rests]

    def _say(self, delta: Json, block: Json, choice: Json, made: list[Json]) -> None:
        """Add the deltas of what a chunk says, each in its place."""
        thought = "summary" if block.get("summary") else "thought"
        for name in (thought, "text", "refusal"):
            text = delta.get(IN_CHAT[name])
            if text is not None and "index" in block:  # what goes on may say its place no more
                self._open = number(block["index"]), name, number(block.get("at"))
            if not text and name == thought:
                text = delta.get("reasoning")
            if isinstance(text, str) and text:
                self._grow(name, text, made)
                if name == "text":
                    self._list(objects(member(choice.get("logprobs")).get("content")), made[-1])
        for call in objects(delta.get("tool_calls")):
            self._say_call(call, block, made)
        inner = block.get("delta")
        if isinstance(inner, dict):
            at = number(block.get("index"))
            inner = {_IN_EVENTS.get(name, name): each for name, each in inner.items()}
            known = self._items.get(at, {}).get("id")
            made.append({"item_id": known, **inner} if known else inner)

    def _say_call(self, call: Json, block: Json, made: list[Json]) -> None:
        custom = isinstance(call.get("custom"), dict) or call.get("type") == "custom"
        inner = member(call.get("custom" if custom else "function"))
        place = number(call.get("index"))
        if self._own:
            at = self._calls.setdefault(place, number(block.get("index")))
        else:
            at = self._open_call(place, call, made)
        text = inner.get("input" if custom else "arguments")
        if isinstance(text, str) and text:
            name = "input" if custom else "arguments"
            self._open = at, name, 0
            self._grow(name, text, made)

    def _grow(self, name: str, text: str, made: list[Json]) -> None:
        """Add the delta of a text at the place that is open; a chat's opens one for it."""
        place = self._open
        if place is None or place[1] != name:
            place = (0, name, 0) if self._own else self._open_item(name, made)
            self._open = place
        self._texts.setdefault(place, []).append(text)
        kind = KINDS[name]
        made.append({"type": f"{kind.event}.delta", **self._where(place), "delta": text})

    def _list(self, logprobs: list[Json], delta: Json) -> None:
        """Add the log-probs of a delta, which the end of its text says again."""
        delta["logprobs"] = logprobs
        if logprobs and self._open is not None:
            self._logprobs.setdefault(self._open, []).extend(logprobs)

    def _where(self, place: Place) -> Json:
        """Return the members by which an event says of what it is."""
        at, name, part = place
        index = KINDS[name].part_index
        where = {"item_id": self._items.get(at, {}).get("id"), "output_index": at}
        return where | ({index: part} if index else {})

    def _shown(self, place: Place) -> str:
        return "".join(self._texts.get(place, ()))

    # Events of an upstream of Responses

    def _restored(self, rest: Json, data: Json) -> Json:
        """Return an event with what was left out of it, as it was shown."""
        kind = rest.get("type")
        at = number(rest.get("output_index"))
        if kind in OF_RESPONSE:
            rest["response"] = self._response(data, dict(member(rest.get("response"))), kind)
        elif kind in BY_DONE:
            index = KINDS[BY_DONE[str(kind)]].part_index
            part_at = number(rest.get(index)) if index else 0
            rest = self._whole(rest, BY_DONE[str(kind)], at, part_at)
        elif isinstance(rest.get("part"), dict):
            part_at = number(rest.get("content_index", rest.get("summary_index")))
            rest["part"] = self._part(rest["part"], at, part_at)
        elif isinstance(rest.get("item"), dict):
            rest["item"] = self._items[at] = self._item(rest["item"], at)
        return rest

    def _response(self, data: Json, rest: Json, kind: Any) -> Json:
        for missing in objects(rest.pop("output", None)):
            at = number(missing.get("output_index"))
            self._items[at] = self._item(member(missing.get("item")), at)
        self._head = {
            "id": data.get("id"),
            "object": "response",
            "created_at": data.get("created"),
            "model": data.get("model"),
            "error": None,
            **rest,
            **echoed(self._call),
        }
        if kind not in ENDS:
            return {**self._head, "output": [], "usage": None}
        self._ended = True
        return {**self._head, "output": self._output(), "usage": own_usage(self._usage)}

    def _output(self) -> list[Json]:
        return [self._items[at] for at in sorted(self._items)]

    def _part(self, part: Json, at: int, part_at: int) -> Json:
        name = BY_PART.get(type_of(part))
        return part if name is None else self._whole(part, name, at, part_at)

    def _whole(self, value: Json, name: str, at: int, part_at: int) -> Json:
        """Return what says a text again with it, as it was shown."""
        place = at, name, part_at
        if KINDS[name].member in value:
            return value
        listed = {"logprobs": self._logprobs.get(place, [])} if "logprobs" in value else {}
        return {**value, KINDS[name].member: self._shown(place), **listed}

    def _item(self, item: Json, at: int) -> Json:
        made = dict(item)
        for within in ("content", "summary"):
            if isinstance(item.get(within), list):
                parts = enumerate(item[within])
                made[within] = [
                    self._part(part, at, n) if isinstance(part, dict) else part for n, part in parts
                ]
        name = CALLS.get(type_of(item))
        if name is not None:
            made.setdefault(KINDS[name].member, self._shown((at, name, 0)))
        return made

    # Chunks of a chat

    def _begin(self, data: Json, made: list[Json]) -> None:
        """Begin a response, once."""
        if self._head is not None:
            return
        self._head = {
            "id": data.get("id"),
            "object": "response",
            "created_at": data.get("created") or 0,
            "model": data.get("model"),
            **repeated(self._call),
            **echoed(self._call),
            "error": None,
            "incomplete_details": None,
        }
        begun = {**self._head, "status": "in_progress", "output": [], "usage": None}
        made.append({"type": "response.created", "response": begun})
        made.append({"type": "response.in_progress", "response": begun})

    @property
    def _name(self) -> str:
        return str((self._head or {}).get("id"))

    def _open_item(self, name: str, made: list[Json]) -> Place:
        """Open the item, and the part, of a text."""
        at = self._open[0] if self._open else -1
        kept = self._items.get(at, {}) if at >= 0 else {}
        is_message = name in ("text", "refusal")
        if is_message and kept.get("type") == "message":
            self._close_part(made)
        else:
            self._close(made)
            at = len(self._items)
            item = message_item(self._name, at, [], "in_progress")
            if not is_message:
                item = reasoning_item(self._name, at, [])
            self._add(at, item, made)
        parts = self._items[at]["content"]
        place = at, name, len(parts)
        part: Json = {"type": KINDS[name].part, KINDS[name].member: ""}
        part = text_part("") if name == "text" else part
        parts.append(part)
        where = self._where(place)
        made.append({"type": "response.content_part.added", **where, "part": dict(part)})
        return place

    def _open_call(self, place: int, call: Json, made: list[Json]) -> int:
        """Return the item of a call, which is opened with the first word of it."""
        if place in self._calls:
            return self._calls[place]
        if self._open is not None and KINDS[self._open[1]].part_index is not None:
            self._close(made)
        at = self._calls[place] = len(self._items)
        begun = copy.deepcopy(call)
        for inner in ("function", "custom"):
            member(begun.get(inner)).pop("arguments" if inner == "function" else "input", None)
        item = call_item(self._name, at, begun, "in_progress")
        self._add(at, item, made)
        self._open = at, CALLS[item["type"]], 0
        return at

    def _add(self, at: int, item: Json, made: list[Json]) -> None:
        self._items[at] = item
        added = {"type": "response.output_item.added", "output_index": at}
        made.append({**added, "item": copy.deepcopy(item)})

    def _close_part(self, made: list[Json]) -> None:
        """End the text that is open, and its part."""
        if self._open is None:
            return
        at, name, part_at = self._open
        kind, text = KINDS[name], self._shown(self._open)
        done: Json = {"type": f"{kind.event}.done", **self._where(self._open), kind.member: text}
        listed = {"logprobs": self._logprobs.get(self._open, [])} if name == "text" else {}
        made.append(done | listed)
        item = self._items[at]
        if kind.part_index is None:
            item[kind.member] = text
            return
        part = item[kind.within][part_at]
        part |= {kind.member: text, **listed}
        where = self._where(self._open)
        made.append({"type": "response.content_part.done", **where, "part": dict(part)})

    def _close(self, made: list[Json]) -> None:
        """End the item that is open, or all calls: some servers let these take turns."""
        if self._open is None:
            return
        places = [self._open]
        if KINDS[self._open[1]].part_index is None:
            calls = set(self._calls.values()) - self._done
            places = [(at, CALLS[self._items[at]["type"]], 0) for at in sorted(calls)]
        for place in places:
            self._open = place
            self._close_part(made)
            self._done.add(place[0])
            item = self._items[place[0]]
            if "status" in item:
                item["status"] = "completed"
            done = {"type": "response.output_item.done", "output_index": place[0]}
            made.append({**done, "item": copy.deepcopy(item)})
        self._open = None

    def _show(self, item: Json, made: list[Json]) -> None:
        """Add the events of an item that is there as a whole."""
        self._close(made)
        at = len(self._items)
        self._add(at, item, made)
        made.append({"type": "response.output_item.done", "output_index": at, "item": item})

    def _end(self) -> list[Json]:
        """Return the end of a stream, with what an answer of a chat has not said yet."""
        made: list[Json] = []
        if self._ended:
            return made
        self._ended = True
        self._begin({}, made)
        if not (self._own or self._items):
            self._open = self._open_item("text", made)
        if not self._own:
            self._close(made)
        status = status_of(self._finish)
        response = {**(self._head or {}), **status, "output": self._output()}
        response["usage"] = own_usage(self._usage)
        made.append({"type": f"response.{status['status']}", "response": response})
        return made
