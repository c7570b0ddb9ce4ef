"""A Messages answer in chat's form: whole, and event by event.

For a client that speaks Messages too each piece keeps what chat has no word for: a whole answer its
blocks as they are, an event the rest of itself under ``block``. A text stands once, where guards,
the meter and the cache look for it in any dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import orjson

from proxy.dialects.messages.tools import tool_call
from proxy.errors import UpstreamInvalid
from proxy.types import Json

FINISHES: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Why an answer has ended, in chat's words."""

SEAL = "seal"
"""Where the number of a thought stands: a signature that no longer fits it is not shown."""

_MESSAGE = frozenset({"content", "id", "model", "role", "stop_reason", "stop_sequence", "type"})
_NO_EVENTS = frozenset({"message_stop", "ping"})
BESIDE = ("cache_creation", "server_tool_use")
"""What is counted beside tokens, under the same names in any dialect: only Messages has it."""
_CACHED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def finish_of(reason: Any) -> str | None:
    """Return a stop reason in chat's words; one that is not known is an end like any other."""
    return None if reason is None else FINISHES.get(str(reason), "stop")


def chat_usage(usage: Any) -> Json | None:
    """Return usage in chat's form, whose prompt has the cached tokens in it."""
    if not isinstance(usage, dict):
        return None
    fresh, read, written = (usage.get(name) or 0 for name in _CACHED)
    output = usage.get("output_tokens")
    if usage.get("input_tokens") is None or any(type(n) is not int for n in (fresh, read, written)):
        return {"prompt_tokens": None, "completion_tokens": output}
    made: Json = {"prompt_tokens": fresh + read + written, "completion_tokens": output}
    if type(output) is int:
        made["total_tokens"] = fresh + read + written + output
    if read or written:
        made["prompt_tokens_details"] = {"cached_tokens": read, "cache_write_tokens": written}
    for name in BESIDE:
        if isinstance(usage.get(name), dict):
            made[name] = usage[name]
    details = usage.get("output_tokens_details")
    thought = details.get("thinking_tokens") if isinstance(details, dict) else None
    if type(thought) is int:
        made["completion_tokens_details"] = {"reasoning_tokens": thought}
    return made


def _head(message: Json, kind: str) -> Json:
    return {
        "id": message.get("id"),
        "object": kind,
        "created": 0,
        "model": message.get("model"),
    }


def chat_answer(message: Json) -> Json:
    """Return a whole answer in chat's form."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    for block in _blocks(message):
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            thoughts.append(block["thinking"])
        elif kind == "tool_use":
            calls.append(tool_call(block))
    words: Json = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    words |= {"reasoning_content": "".join(thoughts)} if thoughts else {}
    words |= {"tool_calls": calls} if calls else {}
    return _whole(message, {"message": words}, chat_usage(message.get("usage")))


def own_answer(message: Json) -> Json:
    """Return a whole answer for a client of Messages: its blocks as they are."""
    rest = {name: value for name, value in message.items() if name not in _MESSAGE}
    usage = rest.pop("usage", None)
    choice = {
        "message": {"role": "assistant", "content": [_sealed(each) for each in _blocks(message)]},
        "stop_reason": message.get("stop_reason"),
        "stop_sequence": message.get("stop_sequence"),
    }
    return _whole(message, choice | ({"rest": rest} if rest else {}), own_usage(usage))


def _sealed(block: Json) -> Json:
    """Return a block whose thoughts are signed with a number by which they are known again."""
    thought = block.get("thinking")
    return {**block, SEAL: seal_of(thought)} if isinstance(thought, str) else block


def seal_of(text: str, before: int = 0) -> int:
    """Return the seal of a text that goes on from one whose seal is ``before``."""
    return crc32(text.encode("utf-8", "surrogatepass"), before)


def own_usage(usage: Any) -> Json | None:
    """Return usage in chat's form, and as it came beside that."""
    made = chat_usage(usage)
    return None if made is None else {**usage, **made}


def _whole(message: Json, choice: Json, usage: Json | None) -> Json:
    finish = finish_of(message.get("stop_reason"))
    choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": finish}]
    made = {**_head(message, "chat.completion"), "choices": choices}
    return made if usage is None else made | {"usage": usage}


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    if not all(isinstance(block, dict) for block in blocks):
        raise UpstreamInvalid("The upstream sent a content block that is not an object.")
    return blocks


class EventTurn:
    """Reads the events of one stream, in chat's form. With ``own`` each keeps what is beside it.

    Counts are cumulative: those that an event leaves out are what they were before.
    """

    __slots__ = ("_calls", "_head", "_in_message", "_own", "_seal", "_usage")

    def __init__(self, *, own: bool) -> None:
        self._own = own
        self._in_message = False
        self._head = _head({}, "chat.completion.chunk")
        self._calls: dict[Any, int] = {}  # the place of each call among the tools, by its block
        self._usage: Json = {}
        self._seal = 0  # of the thought so far

    def feed(self, event: Json) -> list[Json]:
        """Return an event as chunks; none for one that says nothing in chat's form."""
        kind = event.get("type")
        if kind == "message_start":
            return self._started(_object(event.get("message")))
        if kind == "message_delta":
            return self._ended(event)
        if kind == "content_block_start":
            return self._begun(block_number(event), _object(event.get("content_block")))
        if kind == "content_block_delta":
            return self._grown(block_number(event), _object(event.get("delta")))
        return self._beyond_chat(kind, event) if self._own else []

    def _beyond_chat(self, kind: Any, event: Json) -> list[Json]:
        """Return an event that says nothing in chat's form. One whose type could not stand in the
        line of its name is left out, ``ping``, as those of a client are our own, and what comes
        before a message, as it may be a stream of another form."""
        if kind == "content_block_stop":
            return self._delta({"block": {"index": block_number(event), "stop": True}})
        named = isinstance(kind, str) and kind.isprintable() and kind not in _NO_EVENTS
        if not (named and self._in_message):
            return []
        return self._delta({"block": {"event": event}})

    def _started(self, message: Json) -> list[Json]:
        self._in_message = True
        self._head = _head(message, "chat.completion.chunk")
        self._note(message.get("usage"))
        delta: Json = {"role": "assistant", "content": ""}
        rest = {name: value for name, value in message.items() if name not in _MESSAGE}
        rest.pop("usage", None)
        if self._own:
            delta = {"role": "assistant", "block": {"message": rest}}
        begun = self._delta(delta)
        usage = self._counts()
        if usage is None:
            return begun
        if self._own:
            return [{**begun[0], "usage": usage}]
        # Bare, as chat has it, and marked: whoever adds counts up must not have it twice.
        return [*begun, {**self._head, "choices": [], "usage": {**usage, "interim": True}}]

    def _ended(self, event: Json) -> list[Json]:
        self._note(event.get("usage"))
        words = _object(event.get("delta"))
        end = {name: value for name, value in event.items() if name not in ("type", "usage")}
        delta = {"block": {"end": end}} if self._own else {}
        chunk = self._delta(delta, finish_of(words.get("stop_reason")))[0]
        usage = self._counts()
        if usage is None:
            return [chunk]
        if self._own:
            return [{**chunk, "usage": usage}]
        return [chunk, {**self._head, "choices": [], "usage": usage}]

    def _note(self, usage: Any) -> None:
        for name, value in _object(usage).items():
            if value is not None or name not in self._usage:
                self._usage[name] = value

    def _counts(self) -> Json | None:
        if not self._usage:
            return None
        return own_usage(self._usage) if self._own else chat_usage(self._usage)

    def _begun(self, index: Any, block: Json) -> list[Json]:
        kind, delta = block.get("type"), dict[str, Any]()
        hidden = {"type"}
        if kind == "tool_use":
            self._calls[index] = place = len(self._calls)
            written = block.get("input")
            function = {
                "name": block.get("name"),
                "arguments": orjson.dumps(written).decode() if written else "",
            }
            call = {"index": place, "id": block.get("id"), "type": "function", "function": function}
            delta["tool_calls"] = [call]
            hidden |= {"id", "name", "input"}
        elif kind == "text" and isinstance(block.get("text"), str):
            hidden |= {"text"}
            if block["text"]:
                delta["content"] = block["text"]
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            hidden |= {"thinking"}
            if block["thinking"]:
                delta["reasoning_content"] = block["thinking"]
        if self._own:
            rest = {name: value for name, value in block.items() if name not in hidden}
            self._seal = seal_of(delta.get("reasoning_content", ""))
            delta["block"] = {"index": index, "start": {"type": kind, **rest}, SEAL: self._seal}
        return self._delta(delta) if delta else []

    def _grown(self, index: Any, delta: Json) -> list[Json]:
        kind, made = delta.get("type"), dict[str, Any]()
        beside: Json = {"index": index}
        if kind == "text_delta" and isinstance(delta.get("text"), str):
            made["content"] = delta["text"]
        elif kind == "thinking_delta" and isinstance(delta.get("thinking"), str):
            made["reasoning_content"] = delta["thinking"]
            self._seal = beside[SEAL] = seal_of(delta["thinking"], self._seal)
        elif kind == "input_json_delta" and index in self._calls:
            function = {"arguments": delta.get("partial_json")}
            made["tool_calls"] = [{"index": self._calls[index], "function": function}]
        else:
            beside["delta"] = delta
        if self._own:
            made["block"] = beside
        return self._delta(made) if made else []

    def _delta(self, delta: Json, finish: str | None = None) -> list[Json]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return [{**self._head, "choices": [choice]}]


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def block_number(event: Json) -> int | None:
    """Return the number of the block that an event is of."""
    index = event.get("index")
    return index if type(index) is int else None
