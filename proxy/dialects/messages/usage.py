"""Counts of tokens in Messages and in chat form."""

from __future__ import annotations

from typing import Any

from proxy.money.usage import Tokens
from proxy.types import Json

BESIDE = ("cache_creation", "server_tool_use")
"""Groups of counts that chat answers have under the same names."""
_INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def chat_usage(usage: Any) -> Json | None:
    """Return usage in chat form, whose prompt includes the cached tokens. None for no object."""
    if not isinstance(usage, dict):
        return None
    fresh, read, written = (usage.get(name) or 0 for name in _INPUT)
    output = usage.get("output_tokens")
    if usage.get("input_tokens") is None or any(type(n) is not int for n in (fresh, read, written)):
        return {"prompt_tokens": None, "completion_tokens": output}
    result: Json = {"prompt_tokens": fresh + read + written, "completion_tokens": output}
    if type(output) is int:
        result["total_tokens"] = fresh + read + written + output
    if read or written:
        result["prompt_tokens_details"] = {"cached_tokens": read, "cache_write_tokens": written}
    for name in BESIDE:
        if isinstance(usage.get(name), dict):
            result[name] = usage[name]
    details = usage.get("output_tokens_details")
    thought = details.get("thinking_tokens") if isinstance(details, dict) else None
    if type(thought) is int:
        result["completion_tokens_details"] = {"reasoning_tokens": thought}
    return result


def messages_usage(tokens: Tokens | None, native: Json) -> Json:
    """Return the counts of another family as Messages has them: the input excludes cached tokens.
    Unknown counts are 0, because clients add them up."""
    if tokens is None:
        return {"input_tokens": 0, "output_tokens": 0}
    result: Json = {"input_tokens": tokens.input + tokens.audio_input}
    if tokens.cached_input or tokens.cache_write:
        result["cache_read_input_tokens"] = tokens.cached_input
        result["cache_creation_input_tokens"] = tokens.cache_write
    if tokens.web_searches:
        result["server_tool_use"] = {"web_search_requests": tokens.web_searches}
    result |= {name: native[name] for name in BESIDE if name in native}
    return result | {"output_tokens": tokens.completion_total}
