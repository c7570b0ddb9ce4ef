"""Events and blocks of Messages, their usual shapes, stop reasons, usage and tool calls.

Source: the typed models of Anthropic's Python SDK, 2.12.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from proxy.dialects.family import Shape, is_empty, is_null_or_number, is_text, make_word_check
from proxy.dialects.wire.strict_json import (
    MAX_RESPONSE_DEPTH,
    as_object,
    get_int,
    is_null_or_word,
    wrap_in_writer_levels,
)
from proxy.errors import UpstreamInvalid
from proxy.money.usage import USAGE_GROUPS, Tokens
from proxy.types import Json
from proxy.types.events import FinishReason, Kind

MESSAGE_START, MESSAGE_DELTA, MESSAGE_STOP = "message_start", "message_delta", "message_stop"
BLOCK_START, BLOCK_DELTA = "content_block_start", "content_block_delta"
BLOCK_STOP, KEEPALIVE_EVENTS = "content_block_stop", "ping"

STREAM_EVENTS = frozenset({MESSAGE_START, MESSAGE_DELTA, MESSAGE_STOP})
STREAM_EVENTS |= {BLOCK_START, BLOCK_DELTA, BLOCK_STOP}

BLOCK_KINDS: Mapping[str, Kind] = {
    "text": "text",
    "thinking": "reasoning",
    "tool_use": "arguments",
    "server_tool_use": "server_arguments",
    "mcp_tool_use": "server_arguments",
}
"""Kinds of text by block type. Other blocks are opaque."""

DELTA_TYPES: Mapping[str, tuple[str, Kind]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "reasoning"),
    "input_json_delta": ("partial_json", "server_arguments"),
}
"""By delta type: the member with the text, and the kind of the block if its start is missing."""

DELTA_MEMBERS: Mapping[Kind, str] = {
    "arguments": "partial_json",
    **{kind: member for member, kind in DELTA_TYPES.values()},
}
"""The member with the text of a delta, by kind."""

FINISH_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Finish reasons by stop reason. Others are ``stop``."""

STOP_REASONS: Mapping[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "other": "end_turn",
}
"""Stop reasons by finish reason of other families."""

_INPUT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_INDEX: Shape = is_null_or_number
_COUNT: Shape = is_null_or_number
USAGE_CHECKS: Mapping[str, Shape] = {
    **dict.fromkeys((*_INPUT_COUNTS, "output_tokens"), _COUNT),
    "cache_creation": {"ephemeral_1h_input_tokens": _COUNT, "ephemeral_5m_input_tokens": _COUNT},
    "output_tokens_details": {"thinking_tokens": _COUNT},
    "server_tool_use": {"web_fetch_requests": _COUNT, "web_search_requests": _COUNT},
    "service_tier": make_word_check("standard", "priority", "batch"),
}

USUAL_EVENTS: Mapping[str, Shape] = {
    MESSAGE_START: {
        "type": is_text,
        "message": {
            "id": is_null_or_word,
            "type": make_word_check("message"),
            "role": make_word_check("assistant"),
            "model": is_null_or_word,
            "content": is_empty,
            "stop_reason": is_empty,
            "stop_sequence": is_empty,
            "usage": USAGE_CHECKS,
        },
    },
    BLOCK_STOP: {"type": is_text, "index": _INDEX},
    MESSAGE_DELTA: {
        "type": is_text,
        "delta": {"stop_reason": make_word_check(*FINISH_REASONS), "stop_sequence": is_empty},
        "usage": USAGE_CHECKS,
    },
    MESSAGE_STOP: {"type": is_text},
}
"""Shapes of events without other text than that of their deltas."""

USUAL_DELTA: Shape = {"type": is_text, "index": _INDEX, "delta": lambda delta: True}

_BLOCK_MEMBERS: Mapping[str, Mapping[str, Shape]] = {
    "text": {"text": is_text, "citations": is_empty},
    "thinking": {"thinking": is_text, "signature": is_text},
    "tool_use": {
        "id": is_null_or_word,
        "name": is_text,
        "input": is_empty,
        "caller": {"type": make_word_check("direct")},
    },
}
USUAL_BLOCKS: Mapping[str, Shape] = {
    name: {"type": is_text, "index": _INDEX, "content_block": {"type": is_text, **members}}
    for name, members in _BLOCK_MEMBERS.items()
}
"""Shapes of events that start a block, by block type."""

# Usage


def to_chat_usage(usage: Any) -> Json | None:
    """Return usage in chat format, whose prompt includes cached tokens. None if not an object."""
    if not isinstance(usage, dict):
        return None
    fresh, read, written = (usage.get(name) or 0 for name in _INPUT_COUNTS)
    output = usage.get("output_tokens")
    counts = [n for name in _INPUT_COUNTS if (n := usage.get(name)) is not None]
    is_invalid = any(type(count) is not int or count < 0 for count in counts)
    if is_invalid or usage.get("input_tokens") is None:
        return {"prompt_tokens": None, "completion_tokens": output}
    result: Json = {"prompt_tokens": fresh + read + written, "completion_tokens": output}
    if type(output) is int:
        result["total_tokens"] = fresh + read + written + output
    if read or written:
        result["prompt_tokens_details"] = {"cached_tokens": read, "cache_write_tokens": written}
    result |= {name: usage[name] for name in USAGE_GROUPS if isinstance(usage.get(name), dict)}
    thinking = get_int(as_object(usage.get("output_tokens_details")), "thinking_tokens")
    if thinking is not None:
        result["completion_tokens_details"] = {"reasoning_tokens": thinking}
    return result


def make_messages_usage(tokens: Tokens | None, native: Json) -> Json:
    """Return usage of another family in Messages format, whose input excludes cached tokens.

    Unknown counts are 0, because clients add them up.
    """
    if tokens is None:
        return {"input_tokens": 0, "output_tokens": 0}
    result: Json = {"input_tokens": tokens.input + tokens.audio_input}
    if tokens.cached_input or tokens.cache_write:
        result["cache_read_input_tokens"] = tokens.cached_input
        result["cache_creation_input_tokens"] = tokens.cache_write
    if tokens.web_searches:
        result["server_tool_use"] = {"web_search_requests": tokens.web_searches}
    result |= {name: native[name] for name in USAGE_GROUPS if name in native}
    return result | {"output_tokens": tokens.completion_total}


# Tools

TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "required": "any", "none": "none"}
"""Tool choices of Messages by those of a chat."""
SERVICE_TIERS: Mapping[str, str] = {"auto": "auto", "default": "standard_only"}
"""Service tiers of Messages by those of a chat."""


def parse_tool_arguments(arguments: Any, on_invalid: Callable[[Any], Json]) -> Json:
    """Return the arguments of a tool call as an object.

    Returns ``on_invalid(value)`` if they are not an object, or nested too deeply to be written.
    """
    try:
        value = orjson.loads(arguments or "{}")
        if arguments and arguments.count("[") + arguments.count("{") > MAX_RESPONSE_DEPTH:
            # The parser allows more levels than the writer.
            orjson.dumps(wrap_in_writer_levels(value))
    except (orjson.JSONDecodeError, TypeError):
        return on_invalid(arguments)
    return value if isinstance(value, dict) else on_invalid(value)


# Whole messages


def make_stream_events(message: Json) -> Iterator[Json]:
    """Yield the stream events of a whole message. Raises ``UpstreamInvalid``."""
    content, usage = message.get("content"), message.get("usage")
    blocks = content if isinstance(content, list) else []
    head = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": MESSAGE_START, "message": head}
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise UpstreamInvalid("The upstream sent a content block that is not an object.")
        start, deltas = _split_block_into_deltas(block)
        yield {"type": BLOCK_START, "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": BLOCK_DELTA, "index": index, "delta": delta}
        yield {"type": BLOCK_STOP, "index": index}
    end = {name: message.get(name) for name in ("stop_reason", "stop_sequence")}
    counts = {} if usage is None else {"usage": usage}
    yield {"type": MESSAGE_DELTA, "delta": end, **counts}
    yield {"type": MESSAGE_STOP}


def _split_block_into_deltas(block: Json) -> tuple[Json, list[Json]]:
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
