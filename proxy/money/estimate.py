"""Estimates tokens, for limits, for guards, and for responses without reported usage.

Estimates are in quarters of a token, by script, so that the estimates of parts add up. They
exceed the counts of common tokenizers for most languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

QUARTERS_PER_TOKEN = 4  # quarters per token
TOKENS_PER_SECOND = 50  # assumed speed of one response
MEMBER_QUARTERS = 6  # for the punctuation around a name and its value
SLICE_CHARS = 64 * 1024  # characters per call into C, so that other threads can run
MAX_TOKEN_ID = 10**7  # more than the vocabulary of any tokenizer
PROMPT_FIELDS = frozenset({"prompt", "input"})  # texts or token ids
UNREAD_FIELDS = frozenset({"model"})  # not part of the prompt
TEXT_TYPES = frozenset({str, list, dict})
COMMON_NAMES = ("role", "content", "type", "text", "name", "function", "id")
NAME_QUARTERS = {name: len(name) for name in COMMON_NAMES}
NO_ESTIMATES: Mapping[str, int] = MappingProxyType({})


def estimate_text_quarters(text: str) -> int:
    """Estimate a text, in quarters of a token.

    The quarters of a character depend on its bytes in UTF-8: 1 quarter for one byte (English), 2
    for two bytes (Greek, Cyrillic, Hebrew, Arabic, accents), 4 for three bytes (Chinese, Japanese,
    Korean, Thai, Indic scripts), and 8 for four bytes (emoji).
    """
    if text.isascii():
        return len(text)
    if len(text) > SLICE_CHARS:
        return sum(
            estimate_text_quarters(text[i : i + SLICE_CHARS])
            for i in range(0, len(text), SLICE_CHARS)
        )
    # With a, b, c, d characters of one to four bytes, the result is a + 2b + 4c + 8d. The sizes of
    # encodings give it without a loop in Python.
    utf8 = len(text.encode("utf-8", "surrogatepass"))
    utf16 = len(text.encode("utf-16-le", "surrogatepass")) // 2
    ascii_only = len(text.encode("ascii", "ignore"))
    return 2 * utf8 + 2 * utf16 + ascii_only - 4 * len(text)


def sum_leaf_value_quarters(value: Any) -> int:
    """Estimate the texts and numbers in a JSON value, without member names and punctuation."""
    if isinstance(value, str):
        return estimate_text_quarters(value)
    if isinstance(value, dict):
        return sum(map(sum_leaf_value_quarters, value.values()))
    if isinstance(value, list):
        return sum(map(sum_leaf_value_quarters, value))
    return _estimate_number_quarters(value) if type(value) in (int, float) else 0


def estimate_json_quarters(value: Any) -> int:
    """Estimate a JSON value as text, with names of members and punctuation.

    Punctuation counts 4 quarters per item and 6 per member.
    """
    if type(value) is str:
        return estimate_text_quarters(value)
    if type(value) is dict:
        total = MEMBER_QUARTERS * len(value)
        for name, item in value.items():
            total += NAME_QUARTERS[name] if name in NAME_QUARTERS else estimate_text_quarters(name)
            if type(item) is str:
                total += len(item) if item.isascii() else estimate_text_quarters(item)
            else:
                total += estimate_json_quarters(item)
        return total
    if type(value) is list:
        return QUARTERS_PER_TOKEN * len(value) + sum(map(estimate_json_quarters, value))
    return (
        _estimate_number_quarters(value) if type(value) in (int, float) else QUARTERS_PER_TOKEN
    )  # true, null


def _estimate_number_quarters(number: float) -> int:
    return QUARTERS_PER_TOKEN * len(repr(number))  # many tokenizers use a token per digit


def estimate_text_or_ids_quarters(value: Any) -> int:
    """Estimate a prompt, which is a text or token ids, or a list of prompts.

    An item of a list counts at least one token.
    """
    if isinstance(value, list):
        return sum([max(QUARTERS_PER_TOKEN, estimate_text_or_ids_quarters(item)) for item in value])
    if type(value) is int and 0 <= value < MAX_TOKEN_ID:
        return QUARTERS_PER_TOKEN
    return (
        estimate_text_quarters(value)
        if isinstance(value, str)
        else QUARTERS_PER_TOKEN + estimate_json_quarters(value)
    )


def estimate_field_quarters(body: Mapping[str, Any]) -> dict[str, int]:
    """Estimate the prompt tokens of each field of a request, in quarters of a token.

    Fields without a token, or that cannot be part of the prompt, are omitted.
    """
    estimates = {name: _estimate_field_quarters(name, value) for name, value in body.items()}
    return {name: quarters for name, quarters in estimates.items() if quarters}


def _estimate_field_quarters(name: str, value: Any) -> int:
    if type(value) not in TEXT_TYPES or name in UNREAD_FIELDS:
        return 0
    if name in PROMPT_FIELDS:
        return estimate_text_or_ids_quarters(value)
    return estimate_json_quarters(value)


def estimate_body_quarters(
    body: Mapping[str, Any], estimates: Mapping[str, int] = NO_ESTIMATES
) -> int:
    """Estimate the prompt tokens of a request, in quarters of a token.

    ``estimates`` are field estimates that the caller already has.
    """
    total = 0
    for name, value in body.items():
        total += estimates[name] if name in estimates else _estimate_field_quarters(name, value)
    return total


def to_tokens(quarters: int) -> int:
    """Return quarters of a token as whole tokens, rounded up."""
    return -(-quarters // QUARTERS_PER_TOKEN)


class HiddenOutput(NamedTuple):
    """Bounds of the output that a model may have produced without sending it.

    ``responses`` parallel responses took ``seconds``, and have at most ``max_tokens`` tokens in
    all, including the sent ones.
    """

    seconds: float = 0.0
    responses: int = 1
    max_tokens: int = 0


NOTHING_HIDDEN = HiddenOutput()


def estimate_interrupted_output(thoughts: int, text: int, hidden: HiddenOutput) -> int:
    """Return the output tokens of an interrupted response.

    ``thoughts`` and ``text`` are the received tokens of reasoning and of text. Received reasoning
    may be a summary, so the larger of it and the hidden output counts.
    """
    hidden_tokens = ceil(hidden.seconds * TOKENS_PER_SECOND) * hidden.responses
    return max(thoughts + text, min(max(thoughts, hidden_tokens) + text, hidden.max_tokens))
