"""Events and blocks of Messages: their kinds of text, their ordinary shapes, and stop reasons.

Source: the typed models of Anthropic's Python SDK, 2.12.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.dialects.shapes import Shape, is_empty, is_name, is_number, is_text, one_of
from proxy.types.events import FinishReason, Kind

MESSAGE_START, MESSAGE_DELTA, MESSAGE_STOP = "message_start", "message_delta", "message_stop"
BLOCK_START, BLOCK_DELTA = "content_block_start", "content_block_delta"
BLOCK_STOP, PING = "content_block_stop", "ping"

STREAM_EVENTS = frozenset({MESSAGE_START, MESSAGE_DELTA, MESSAGE_STOP})
STREAM_EVENTS |= {BLOCK_START, BLOCK_DELTA, BLOCK_STOP}

KINDS: Mapping[str, Kind] = {
    "text": "text",
    "thinking": "reasoning",
    "tool_use": "arguments",
    "server_tool_use": "server_arguments",
    "mcp_tool_use": "server_arguments",
}
"""The kind of the text of a block, by its type. Every other block is opaque."""

MEMBERS: Mapping[str, str] = {"text": "text", "thinking": "thinking"}
"""The member of a block that has its text, by its type."""

DELTAS: Mapping[str, tuple[str, Kind]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "reasoning"),
    "input_json_delta": ("partial_json", "server_arguments"),
}
"""The member that has the text of a delta, and the kind of a block that has not begun."""

OF_KINDS: Mapping[Kind, str] = {
    "text": "text",
    "reasoning": "thinking",
    "arguments": "partial_json",
    "server_arguments": "partial_json",
}
"""The member that has the text of the deltas of a block, by the kind of its part."""

FINISHES: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Finish reasons by stop reason. Every other one is `stop`."""

STOPS: Mapping[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "other": "end_turn",
}
"""Stop reasons of answers of other families."""

USAGE: Mapping[str, Shape] = {
    **dict.fromkeys(
        ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        is_number,
    ),
    "cache_creation": {
        "ephemeral_1h_input_tokens": is_number,
        "ephemeral_5m_input_tokens": is_number,
    },
    "output_tokens_details": {"thinking_tokens": is_number},
    "server_tool_use": {"web_fetch_requests": is_number, "web_search_requests": is_number},
    "service_tier": one_of("standard", "priority", "batch"),
}
_INDEX: Shape = is_number

ORDINARY_EVENTS: Mapping[str, Shape] = {
    MESSAGE_START: {
        "type": is_text,
        "message": {
            "id": is_name,
            "type": one_of("message"),
            "role": one_of("assistant"),
            "model": is_name,
            "content": is_empty,
            "stop_reason": is_empty,
            "stop_sequence": is_empty,
            "usage": USAGE,
        },
    },
    BLOCK_STOP: {"type": is_text, "index": _INDEX},
    MESSAGE_DELTA: {
        "type": is_text,
        "delta": {"stop_reason": one_of(*FINISHES), "stop_sequence": is_empty},
        "usage": USAGE,
    },
    MESSAGE_STOP: {"type": is_text},
}
"""Events without any text but that of their deltas."""

ORDINARY_DELTA: Shape = {"type": is_text, "index": _INDEX, "delta": lambda delta: True}

_BLOCK_MEMBERS: Mapping[str, Mapping[str, Shape]] = {
    "text": {"text": is_text, "citations": is_empty},
    "thinking": {"thinking": is_text, "signature": is_text},
    "tool_use": {
        "id": is_name,
        "name": is_text,
        "input": is_empty,
        "caller": {"type": one_of("direct")},
    },
}
ORDINARY_BLOCKS: Mapping[str, Shape] = {
    name: {"type": is_text, "index": _INDEX, "content_block": {"type": is_text, **members}}
    for name, members in _BLOCK_MEMBERS.items()
}
"""Likewise those that start a block, by its type."""
