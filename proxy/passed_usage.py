"""The usage that answers of other APIs say, each in its own words: those of images, transcriptions,
rerankings and the like."""

from __future__ import annotations

from typing import Any

from proxy.usage import Json, Tokens, read_usage


def passed_tokens(data: Json) -> Tokens | None:
    """Return what an answer says of the tokens it used; None where it says nothing that can be
    trusted."""
    return _of_usage(data.get("usage")) or _of_units(data.get("meta"))


def _of_usage(usage: Any) -> Tokens | None:
    if type(usage) is not dict:
        return None
    known = read_usage(usage)
    if known is not None:
        return known
    if "input_tokens" in usage:
        return read_usage(
            {
                "prompt_tokens": usage["input_tokens"],
                "completion_tokens": usage.get("output_tokens"),
                "total_tokens": usage.get("total_tokens"),
                "prompt_tokens_details": usage.get("input_tokens_details")
                or usage.get("input_token_details"),
                "completion_tokens_details": usage.get("output_tokens_details"),
            }
        )
    if "total_tokens" in usage:
        return read_usage({"prompt_tokens": usage["total_tokens"]})
    return None


def _of_units(meta: Any) -> Tokens | None:
    """Return what Cohere has billed."""
    units = meta.get("billed_units") if type(meta) is dict else None
    return _of_usage(units)
