"""The usage that answers of other APIs say, each in its own words: those of images, transcriptions,
rerankings, Anthropic, Cohere, Gemini and the like."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.usage import Json, Tokens, read_usage

CACHES = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""What Anthropic counts beside the input, as read from a cache and as written into it."""
BESIDE = ("cache_creation", "server_tool_use")


def passed_tokens(data: Json) -> Tokens | None:
    """Return what an answer says of the tokens it used; None where it says nothing that can be
    trusted."""
    usage = data.get("usage")
    known = _of_usage(usage) or _of_units(usage) or _of_units(data.get("meta"))
    return known or _of_usage(_of_gemini(data.get("usageMetadata")))


def _of_usage(usage: Any) -> Tokens | None:
    if type(usage) is not dict:
        return None
    known = read_usage(usage)
    if known is not None:
        return known
    if "input_tokens" in usage:
        return read_usage(_of_input(usage))
    if "total_tokens" in usage:
        return read_usage({"prompt_tokens": usage["total_tokens"]})
    return None


def _of_input(usage: Json) -> Json:
    """Return a usage by input and output in a chat's words."""
    made = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details")
        or usage.get("input_token_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }
    if any(usage.get(name) for name in CACHES):
        read, written = (usage.get(name) or 0 for name in CACHES)
        made["prompt_tokens"] = _sum((usage["input_tokens"], read, written))
        made["prompt_tokens_details"] = {"cached_tokens": read, "cache_write_tokens": written}
    return made | {name: usage[name] for name in BESIDE if name in usage}


def _of_gemini(metadata: Any) -> Json | None:
    """Return the usage of Gemini in a chat's words: what it has thought, and what tools have added
    to the question, it counts by themselves."""
    if type(metadata) is not dict or "promptTokenCount" not in metadata:
        return None
    thought = metadata.get("thoughtsTokenCount") or 0
    asked = (metadata["promptTokenCount"], metadata.get("toolUsePromptTokenCount") or 0)
    return {
        "prompt_tokens": _sum(asked),
        "completion_tokens": _sum((metadata.get("candidatesTokenCount") or 0, thought)),
        "prompt_tokens_details": {
            "cached_tokens": metadata.get("cachedContentTokenCount"),
            "audio_tokens": _heard(metadata.get("promptTokensDetails")),
        },
        "completion_tokens_details": {
            "reasoning_tokens": thought,
            "audio_tokens": _heard(metadata.get("candidatesTokensDetails")),
        },
    }


def _heard(details: Any) -> int | None:
    """Return the tokens of audio in a list of them by modality."""
    for each in details if type(details) is list else ():
        if type(each) is dict and each.get("modality") == "AUDIO":
            count: Any = each.get("tokenCount")
            return count if type(count) is int else None
    return None


def _sum(counts: Iterable[Any]) -> int | None:
    """Return the sum of some counts; None where one of them is none."""
    whole = 0
    for count in counts:
        if type(count) is not int or count < 0:
            return None
        whole += count
    return whole


def _of_units(holder: Any) -> Tokens | None:
    """Return what Cohere has billed."""
    units = holder.get("billed_units") if type(holder) is dict else None
    return _of_usage(units)
