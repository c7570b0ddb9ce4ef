"""An answer in chat's form as Messages: whole, and as the events of a stream.

What came from an upstream of Messages has its own pieces with it, see ``reading``; of any other
answer the blocks are made here. What an upstream says as no answer has it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from proxy.dialects.messages.models import models_answer
from proxy.dialects.messages.reading import BESIDE, SEAL, seal_of
from proxy.dialects.messages.tools import tool_use
from proxy.dialects.pieces import dump
from proxy.dialects.signed_calls import shown_id
from proxy.dialects.sse import named_event
from proxy.types import Call, Chunk, Json, Untouched
from proxy.usage import read_usage

STOPS: Mapping[str, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
"""Why an answer has ended, in the words of Messages."""

CHAT_COUNTS = frozenset(
    {"completion_tokens", "completion_tokens_details", "prompt_tokens", "prompt_tokens_details"}
    | {"total_tokens"}
)
NOTHING_USED: Json = {"input_tokens": 0, "output_tokens": 0}
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def _stop_of(finish: Any, *, called: bool) -> str:
    """Return why a chat's answer has ended. One that calls a tool waits for what that returns: some
    servers, and OpenAI's own for a tool that was asked for by name, just say that it has ended."""
    stop = STOPS.get(str(finish), "end_turn")
    return "tool_use" if called and stop == "end_turn" else stop


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _choice(data: Json) -> Json:
    """Return the only choice of an answer or a chunk; an empty one where there is none."""
    choices = data.get("choices")
    return _object(choices[0]) if isinstance(choices, list) and choices else {}


def _count(counts: Json, name: str) -> int:
    value = counts.get(name)
    return value if type(value) is int else 0


def own_usage(usage: Any) -> Json:
    """Return usage in the words of Messages, whose input leaves cached tokens out."""
    if not isinstance(usage, dict):
        return dict(NOTHING_USED)
    if "input_tokens" in usage:
        return {name: value for name, value in usage.items() if name not in CHAT_COUNTS}
    tokens = read_usage(usage)
    if tokens is None:
        return dict(NOTHING_USED)
    made: Json = {"input_tokens": tokens.input + tokens.audio_input}
    if tokens.cached_input or tokens.cache_write:
        made["cache_read_input_tokens"] = tokens.cached_input
        made["cache_creation_input_tokens"] = tokens.cache_write
    made |= {name: usage[name] for name in BESIDE if name in usage}
    return made | {"output_tokens": tokens.completion_total}


def whole(call: Call, parts: Mapping[int, Json]) -> Json:
    """Compose the answer out of its only part."""
    data = parts[0]
    if call.head.endpoint == "count_tokens":
        return data
    if call.head.endpoint == "models":
        return models_answer(call.head, data)
    choice = _choice(data)
    message = _object(choice.get("message"))
    content = message.get("content")
    stop = choice.get("stop_reason")
    if stop is None:
        called = bool(_objects(message.get("tool_calls")))
        stop = _stop_of(choice.get("finish_reason"), called=called)
    rest = choice.get("rest")
    return {
        "id": data.get("id"),
        "type": "message",
        "role": "assistant",
        "model": data.get("model"),
        "content": [*map(_unsealed, _objects(content))]
        if content.__class__ is list
        else blocks_of(message),
        "stop_reason": stop,
        "stop_sequence": choice.get("stop_sequence"),
        **(rest if isinstance(rest, dict) else {}),
        "usage": own_usage(data.get("usage")),
    }


def _unsealed(block: Json) -> Json:
    """Return a block with its signature only where that fits what is shown of it."""
    if SEAL not in block:
        return block
    shown = {name: value for name, value in block.items() if name != SEAL}
    fits = block[SEAL] == seal_of(str(block.get("thinking")))
    return shown if fits or "signature" not in block else {**shown, "signature": ""}


def blocks_of(message: Json) -> list[Json]:
    """Return what a chat's message says as blocks."""
    blocks: list[Json] = []
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str) and thought:
        blocks.append({"type": "thinking", "thinking": thought, "signature": ""})
    words = message.get("content") or message.get("refusal")
    if isinstance(words, str) and words:
        blocks.append({"type": "text", "text": words})
    calls = _objects(message.get("tool_calls"))
    blocks += [tool_use({**call, "id": shown_id(call)}, _wrapped) for call in calls]
    return blocks


def _wrapped(arguments: Any) -> Json:
    """Return the arguments of a tool that a model has written as no object."""
    return {"arguments": arguments}


class MessageEvents:
    """A stream. Events that nothing had to change pass as they came."""

    __slots__ = (
        *("_began", "_block", "_called", "_ended", "_next", "_seal"),
        *("_shown_seal", "_stop", "_usage"),
    )
    media_type = "text/event-stream; charset=utf-8"

    def __init__(self) -> None:
        self._began = False
        self._ended = False
        self._block: tuple[int, object] | None = None  # that is open, and of which kind
        self._seal = self._shown_seal = 0  # of a thought as it came, and as it is shown
        self._called = False  # a tool, by an upstream of another form
        self._next = 0
        self._stop: str | None = None
        self._usage: Any = None

    def weight(self, chunk: Chunk) -> int:
        return chunk.size

    def feed(self, chunk: Chunk) -> bytes:
        data = chunk.data
        if data is None:
            raw = chunk.raw if isinstance(chunk.raw, Untouched) else None
            return self._end(raw) if chunk.last else PING
        made = self._events(data)
        if isinstance(chunk.raw, Untouched):
            return named_event(chunk.raw.kind, chunk.raw)
        out = b"".join([named_event(each["type"], dump(each, chunk.size)) for each in made])
        return out + self._end(None) if chunk.last else out

    def fail(self, document: bytes) -> bytes:
        return named_event("error", document)

    def _events(self, data: Json) -> list[Json]:
        made: list[Json] = []
        if data.get("usage") is not None:
            self._usage = data["usage"]
        choice = _choice(data)
        delta = _object(choice.get("delta"))
        beside = _object(delta.get("block"))
        if not self._began and data.get("choices"):
            self._began = True
            made.append(self._start(data, beside.get("message")))
        self._say(delta, beside, made)
        if choice.get("finish_reason") is not None:
            self._stop = str(choice["finish_reason"])
        if isinstance(beside.get("event"), dict):
            made.append(beside["event"])
        if isinstance(beside.get("end"), dict):
            self._close(made)
            self._ended = True
            made.append(self._message_delta(beside["end"]))
        return made

    def _start(self, data: Json, rest: Any) -> Json:
        message = {
            "id": data.get("id"),
            "type": "message",
            "role": "assistant",
            "model": data.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            **(rest if isinstance(rest, dict) else {}),
            "usage": own_usage(data.get("usage")),
        }
        return {"type": "message_start", "message": message}

    def _say(self, delta: Json, beside: Json, made: list[Json]) -> None:
        """Add the events of what a chunk says, in the order in which a chat's message has it."""
        start = beside.get("start")
        if isinstance(start, dict) and "type" in start:
            self._begin(start, delta, beside, made)
            return
        content = delta.get("content")
        if isinstance(content, list):  # a whole answer that is shown as a stream
            for block in _objects(content):
                self._show(block, made)
            return
        self._say_texts(delta, beside, made)
        for call in _objects(delta.get("tool_calls")):
            self._call(call, made)
        if isinstance(beside.get("delta"), dict) and "index" in beside and self._fits(beside):
            self._delta(beside["delta"], made)
        if beside.get("stop") is True:
            self._close(made)

    def _say_texts(self, delta: Json, beside: Json, made: list[Json]) -> None:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            self._grow("thinking", {"type": "thinking_delta", "thinking": thought}, made)
            self._shown_seal = seal_of(thought, self._shown_seal)
        self._seal = beside.get(SEAL, self._seal)
        words = delta.get("content") or delta.get("refusal")
        if isinstance(words, str) and words:
            self._grow("text", {"type": "text_delta", "text": words}, made)

    def _fits(self, beside: Json) -> bool:
        """True unless it is the signature of thoughts that are shown otherwise."""
        is_changed = self._seal != self._shown_seal
        return not (is_changed and beside["delta"].get("type") == "signature_delta")

    def _begin(self, start: Json, delta: Json, beside: Json, made: list[Json]) -> None:
        """Begin a block of an upstream of Messages."""
        kind, block = start["type"], dict(start)
        grown: Json | None = None
        key: object = kind
        if kind == "text":
            block = {"type": kind, "text": delta.get("content") or "", **start}
        elif kind == "thinking":
            block = {"type": kind, "thinking": delta.get("reasoning_content") or "", **start}
        elif kind == "tool_use":
            call = next(iter(_objects(delta.get("tool_calls"))), {})
            function = _object(call.get("function"))
            key = kind, call.get("index")
            named: Json = {"id": call.get("id"), "name": function.get("name"), "input": {}}
            block = {"type": kind, **named, **start}
            if function.get("arguments"):
                grown = {"type": "input_json_delta", "partial_json": function["arguments"]}
        self._open(key, block, made)
        self._seal = beside.get(SEAL, self._shown_seal)
        if grown is not None:
            self._delta(grown, made)

    def _show(self, block: Json, made: list[Json]) -> None:
        """Add the events of a block that is there as a whole."""
        block = _unsealed(block)
        kind, start, grown = block.get("type"), dict(block), list[Json]()
        if kind == "text":
            start["text"] = ""
            grown.append({"type": "text_delta", "text": block.get("text")})
            cited = start.pop("citations", None)
            for citation in cited if isinstance(cited, list) else ():
                grown.append({"type": "citations_delta", "citation": citation})
        elif kind == "thinking":
            start |= {"thinking": "", "signature": ""}
            grown.append({"type": "thinking_delta", "thinking": block.get("thinking")})
            grown.append({"type": "signature_delta", "signature": block.get("signature")})
        elif kind in ("tool_use", "server_tool_use"):
            start["input"] = {}
            written = orjson.dumps(block.get("input") or {}).decode()
            grown.append({"type": "input_json_delta", "partial_json": written})
        self._open(object(), start, made)
        for each in grown:
            self._delta(each, made)
        self._close(made)

    def _call(self, call: Json, made: list[Json]) -> None:
        function = _object(call.get("function"))
        key = "tool_use", call.get("index", 0)
        self._called = True
        if self._block is None or self._block[1] != key:
            named: Json = {"id": shown_id(call), "name": function.get("name"), "input": {}}
            self._open(key, {"type": "tool_use", **named}, made)
        written = function.get("arguments")
        if isinstance(written, str) and written:
            self._delta({"type": "input_json_delta", "partial_json": written}, made)

    def _grow(self, kind: str, delta: Json, made: list[Json]) -> None:
        if self._block is None or self._block[1] != kind:
            empty: Json = {"type": "text", "text": ""}
            if kind == "thinking":
                empty = {"type": kind, "thinking": "", "signature": ""}
            self._open(kind, empty, made)
        self._delta(delta, made)

    def _open(self, key: object, block: Json, made: list[Json]) -> None:
        self._close(made)
        self._seal = self._shown_seal = seal_of(str(block.get("thinking") or ""))
        self._block = self._next, key
        self._next += 1
        start = {"type": "content_block_start", "index": self._block[0], "content_block": block}
        made.append(start)

    def _delta(self, delta: Json, made: list[Json]) -> None:
        index = self._block[0] if self._block is not None else 0
        made.append({"type": "content_block_delta", "index": index, "delta": delta})

    def _close(self, made: list[Json]) -> None:
        if self._block is not None:
            made.append({"type": "content_block_stop", "index": self._block[0]})
            self._block = None

    def _message_delta(self, end: Json) -> Json:
        return {"type": "message_delta", "delta": {}, **end, "usage": own_usage(self._usage)}

    def _end(self, raw: bytes | None) -> bytes:
        """Return the end of a stream, with what an answer of a chat has not written yet."""
        made: list[Json] = []
        if not self._began:
            self._began = True
            made.append(self._start({}, None))
        self._close(made)
        if not self._ended:
            self._ended = True
            stop = _stop_of(self._stop, called=self._called)
            made.append(
                self._message_delta({"delta": {"stop_reason": stop, "stop_sequence": None}})
            )
        out = b"".join([named_event(each["type"], orjson.dumps(each)) for each in made])
        return out + named_event("message_stop", raw or b'{"type":"message_stop"}')
