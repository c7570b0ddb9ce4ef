"""The one estimate of tokens: for what limits claim, what guards measure, and what is booked where
an upstream reports nothing.

It counts in quarters of a token, by script, so that the parts of a text add up to the whole. What
tokenizers of today make of a text differs; this errs on the high side for most languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

QUARTERS = 4  # a token has so many
TOKENS_PER_SECOND = 50  # of one answer, as models of today write it
MEMBER = 6  # quarters of what stands around a name and its value
SLICE = 64 * 1024  # characters of one call into C, so that other threads have their turn
IDS = 10**7  # no tokenizer has as many tokens
PROMPTS = frozenset({"prompt", "input"})  # texts, or the ids of their tokens
SILENT = frozenset({"model"})  # no model reads it, and an upstream gets another

LONG = frozenset({str, list, dict})  # of a value that a model may read
USUAL = {name: len(name) for name in ("role", "content", "type", "text", "name", "function", "id")}
"""The estimates of the names that most members have."""

NONE_KNOWN: Mapping[str, int] = MappingProxyType({})


def text_quarters(text: str) -> int:
    """Return the estimate for a text, in quarters of a token.

    A character is one quarter where UTF-8 has one byte for it (English), two quarters where it has
    two (Greek, Cyrillic, Hebrew, Arabic, letters with accents), a token where it has three
    (Chinese, Japanese, Korean, Thai, the scripts of India), two tokens where it has four (emoji).
    """
    if text.isascii():
        return len(text)
    if len(text) > SLICE:
        return sum(text_quarters(text[at : at + SLICE]) for at in range(0, len(text), SLICE))
    # The sizes of three encodings tell how many characters there are of each kind, at the speed
    # of C: with a, b, c, d of one to four bytes, this is a + 2b + 4c + 8d.
    utf8 = len(text.encode("utf-8", "surrogatepass"))
    utf16 = len(text.encode("utf-16-le", "surrogatepass")) // 2
    ascii_only = len(text.encode("ascii", "ignore"))
    return 2 * utf8 + 2 * utf16 + ascii_only - 4 * len(text)


def value_quarters(value: Any) -> int:
    """Return the estimate for what a JSON value holds, but for the names of members and for what
    stands around values: for texts and numbers."""
    if isinstance(value, str):
        return text_quarters(value)
    if isinstance(value, dict):
        return sum(map(value_quarters, value.values()))
    if isinstance(value, list):
        return sum(map(value_quarters, value))
    return _number_quarters(value) if type(value) in (int, float) else 0


def named_quarters(value: Any) -> int:
    """Return the estimate for a JSON value as it is written: a model reads the names of a schema,
    say, and its numbers.

    Each value within it is a token more, or one and a half where it has a name, for the quotes,
    brackets, colons and commas that it takes.
    """
    if type(value) is str:
        return text_quarters(value)
    if type(value) is dict:
        total = MEMBER * len(value)
        for name, each in value.items():
            total += USUAL[name] if name in USUAL else text_quarters(name)
            if type(each) is str:
                total += len(each) if each.isascii() else text_quarters(each)
            else:
                total += named_quarters(each)
        return total
    if type(value) is list:
        return QUARTERS * len(value) + sum(map(named_quarters, value))
    return _number_quarters(value) if type(value) in (int, float) else QUARTERS  # true, null


def _number_quarters(number: float) -> int:
    """Return a token for each character: many tokenizers have one for each digit."""
    return QUARTERS * len(repr(number))


def prompt_quarters(value: Any) -> int:
    """Return the estimate for one prompt or a list of them: a text, or the ids of tokens. Each of
    a list is a token at least."""
    if isinstance(value, list):
        return sum([max(QUARTERS, prompt_quarters(each)) for each in value])
    if type(value) is int and 0 <= value < IDS:
        return QUARTERS
    return text_quarters(value) if isinstance(value, str) else QUARTERS + named_quarters(value)


def field_quarters(body: Mapping[str, Any]) -> dict[str, int]:
    """Return the estimate for each field of a request that may be long; a number or a switch
    of the request itself is no part of a prompt."""
    quarters = {}
    for name, value in body.items():
        if type(value) in LONG and name not in SILENT:
            quarters[name] = prompt_quarters(value) if name in PROMPTS else named_quarters(value)
    return quarters


def estimate_quarters(body: Mapping[str, Any], known: Mapping[str, int] = NONE_KNOWN) -> int:
    """Return the estimate for a request: for every value in it, whatever field it stands in.

    ``known`` are the estimates of fields that were made before.
    """
    if known:
        unknown = {name: value for name, value in body.items() if name not in known}
        return estimate_quarters(unknown) + sum([known[name] for name in known if name in body])
    return sum(field_quarters(body).values())


def to_tokens(quarters: int) -> int:
    """Return the tokens that so many quarters are, rounded up."""
    return -(-quarters // QUARTERS)


class HiddenOutput(NamedTuple):
    """Output that a model may have written without sending it: ``answers`` of them at the same time
    for so many ``seconds``, at most ``most`` tokens together with what was sent."""

    seconds: float = 0.0
    answers: int = 1
    most: int = 0


NOTHING_HIDDEN = HiddenOutput()


def interrupted_tokens(thoughts: int, text: int, hidden: HiddenOutput) -> int:
    """Return the output tokens of an answer that was interrupted, whoever ended it.

    ``thoughts`` and ``text`` are the tokens that were received before and since the text began.
    Thoughts that were sent may be a summary, so the larger of them and the hidden output counts.
    """
    written = ceil(hidden.seconds * TOKENS_PER_SECOND) * hidden.answers
    return max(thoughts + text, min(max(thoughts, written) + text, hidden.most))
