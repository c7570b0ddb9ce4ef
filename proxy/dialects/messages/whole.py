"""Converts whole messages to the events of a stream, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from proxy.dialects.messages import schema
from proxy.dialects.messages.schema import parse_arguments
from proxy.errors import UpstreamInvalid
from proxy.types import Json


def stream_events(message: Json) -> Iterator[Json]:
    """Yield the events of a stream that results in a message.

    Raises:
        UpstreamInvalid: A content block is not an object.
    """
    content, usage = message.get("content"), message.get("usage")
    blocks = content if isinstance(content, list) else []
    head = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": schema.MESSAGE_START, "message": head}
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise UpstreamInvalid("The upstream sent a content block that is not an object.")
        start, deltas = _split_block(block)
        yield {"type": schema.BLOCK_START, "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": schema.BLOCK_DELTA, "index": index, "delta": delta}
        yield {"type": schema.BLOCK_STOP, "index": index}
    end = {name: message.get(name) for name in ("stop_reason", "stop_sequence")}
    counts = {} if usage is None else {"usage": usage}
    yield {"type": schema.MESSAGE_DELTA, "delta": end, **counts}
    yield {"type": schema.MESSAGE_STOP}


def _split_block(block: Json) -> tuple[Json, list[Json]]:
    """Return the start of a block and its deltas."""
    kind, start, deltas = block.get("type"), dict(block), list[Json]()
    if kind == "text" and isinstance(block.get("text"), str):
        start["text"] = ""
        deltas.append({"type": "text_delta", "text": block["text"]})
        citations = block.get("citations")
        if isinstance(citations, list):
            del start["citations"]
            deltas += ({"type": "citations_delta", "citation": item} for item in citations)
    elif kind == "thinking" and isinstance(block.get("thinking"), str):
        start["thinking"] = ""
        deltas.append({"type": "thinking_delta", "thinking": block["thinking"]})
        if "signature" in block:
            start["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        start["input"] = {}
        arguments = orjson.dumps(block.get("input") or {}).decode()
        deltas.append({"type": "input_json_delta", "partial_json": arguments})
    return start, deltas


class MessageAccumulator:
    """Composes a whole message of the events of a stream."""

    __slots__ = ("_blocks", "_message", "_texts")

    def __init__(self) -> None:
        self._message: Json = {}
        self._blocks: dict[Any, Json] = {}  # by index
        self._texts: dict[tuple[Any, str], list[str]] = {}  # by index and member

    def add(self, event: Json) -> None:
        """Add the next event."""
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

    def message(self) -> Json:
        """Return the whole message."""
        for (index, member), texts in self._texts.items():
            text, block = "".join(texts), self._blocks[index]
            if member == "partial_json":
                block["input"] = parse_arguments(text, lambda value: {"arguments": value})
            else:
                block[member] = block.get(member, "") + text
        self._texts.clear()
        return {**self._message, "content": [*self._blocks.values()]}
