"""The `length`, `sponge` and `economics` guards: limit what a call may use.

`length` limits the size of a text, and `economics` the estimated cost of a call, which the limiter
checks. `sponge` finds texts with extreme repetition, which waste processing time. Tables, logs and
generated data rarely repeat this much. Random text does not repeat and is not found.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from proxy.config.scalars import PositiveInt, PositiveUsd, Section
from proxy.config.shapes import Requirement, any_of, is_not_null, is_present, not_
from proxy.dialects.findings import make_flag_details
from proxy.guards.guard_kind import GuardContext, GuardKind, MaxCallCost, make_wrong_stage_message
from proxy.money.estimate import estimate_text_quarters, to_tokens
from proxy.money.usage import NANO_PER_USD
from proxy.runtime.frozen import frozen
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding

CHARACTER_RUN = re.compile(r"(\S)\1{15,}+")  # possessive, so that no character is tried twice
WORD = re.compile(r"\w+")
WORD_REST = re.compile(r"\w*")
SLICE_LENGTH = 64 * 1024  # characters


@frozen
class Length:
    """Detector of texts that exceed a limit.

    The kind of the finding is the first exceeded limit.
    """

    characters: int | None = None
    lines: int | None = None
    tokens: int | None = None

    lookback = None

    def find(self, text: str) -> Sequence[Finding]:
        for kind, bound, count in (
            ("characters", self.characters, len),
            ("lines", self.lines, count_lines),
            ("tokens", self.tokens, estimate_tokens),
        ):
            if bound is not None and count(text) > bound:
                return (Finding(0, len(text), kind),)
        return ()


def count_lines(text: str) -> int:
    """Return the number of lines. The last line needs no line feed. An empty text has no lines."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def estimate_tokens(text: str) -> int:
    return to_tokens(estimate_text_quarters(text))


class LengthConfig(Section):
    """Texts that are too long."""

    REQUIREMENTS = (
        Requirement(
            any_of(is_not_null("characters"), is_not_null("lines"), is_not_null("tokens")),
            "must have characters, lines or tokens",
        ),
    )

    characters: PositiveInt | None = None
    """Maximum characters of one text."""
    lines: PositiveInt | None = None
    """Maximum lines."""
    tokens: PositiveInt | None = None
    """Maximum tokens, estimated."""


LENGTH_GUARD = GuardKind(
    LengthConfig,
    lambda keys, context: Length(keys.characters, keys.lines, keys.tokens),
    example={"characters": 1},
)


def slice_at_word_ends(text: str, size: int = SLICE_LENGTH) -> Iterator[str]:
    """Yield slices of a text, so that no call into C holds the GIL for long.

    A word is cut only if it is longer than a slice.
    """
    start = 0
    while start < len(text):
        tail = WORD_REST.match(text, start + size, start + 2 * size)
        end = tail.end() if tail is not None else start + size
        yield text[start:end]
        start = end


@frozen
class Sponge:
    """Detector of runs of one character, and of texts whose words or bytes repeat.

    - ``min_run_chars`` is the minimum length of a run.
    - ``min_repeated_share`` is the minimum share of the words in repetitions of one sequence of
      ``sequence_words`` words.
    - ``min_compression_ratio`` is the minimum compression ratio of a normal text.
    - Texts shorter than ``min_text_chars`` characters are checked for runs only.
    """

    min_run_chars: int = 500
    sequence_words: int = 3
    min_repeated_share: float = 0.7
    min_compression_ratio: float = 0.06
    min_text_chars: int = 1000

    lookback = None

    def find(self, text: str) -> Sequence[Finding]:
        if len(text) >= self.min_text_chars:
            if self._has_repeated_words(text):
                return (Finding(0, len(text), "repetition"),)
            data = text.encode("utf-8", "replace")
            if len(zlib.compress(data, 1)) < self.min_compression_ratio * len(data):
                return (Finding(0, len(text), "compression"),)
        runs = (match.span() for match in CHARACTER_RUN.finditer(text))
        least = self.min_run_chars
        return [Finding(start, end, "run") for start, end in runs if end - start >= least]

    def _has_repeated_words(self, text: str) -> bool:
        counts: Counter[tuple[str, ...]] = Counter()
        word_count = 0
        carried: list[str] = []
        for piece in slice_at_word_ends(text):
            piece_words = WORD.findall(piece.casefold())
            word_count += len(piece_words)
            row = carried + piece_words
            counts.update(zip(*(row[i:] for i in range(self.sequence_words)), strict=False))
            carried = row[len(row) - self.sequence_words + 1 :] if self.sequence_words > 1 else []
        if word_count < 10 * self.sequence_words:
            return False
        highest = 0
        for count in counts.values():  # ``max`` would hold the GIL for millions
            highest = count if count > highest else highest
        # A rotating sequence counts once for each of its words.
        return highest * self.sequence_words >= self.min_repeated_share * word_count


class SpongeConfig(Section):
    """Texts with long repetitions, which waste processing time."""


SPONGE_DETAILS = make_flag_details("sponge_attack_detected")
SPONGE_DETECTION = DetectionFormat("sponge_attack", "sponge_attack", SPONGE_DETAILS)
SPONGE_GUARD = GuardKind(
    SpongeConfig, lambda keys, context: Sponge(), detections=(SPONGE_DETECTION,)
)


class EconomicsConfig(Section):
    """Calls whose estimated maximum cost is too high. Only `block` or `flag`, under `input`."""

    REQUIREMENTS = (
        Requirement(
            not_(any_of(is_present("roles"), is_present("fields"), is_present("deadline"))),
            "must not set roles, fields or deadline, because it inspects no text",
        ),
    )

    action: Literal["block", "flag"] = "block"
    """Action on calls that may cost more: `block` or `flag`."""
    max_cost_usd: PositiveUsd
    """Maximum cost of a call in USD."""


def _make_cost_limit(keys: EconomicsConfig, context: GuardContext) -> MaxCallCost:
    if context.stage == "output":
        raise ValueError(make_wrong_stage_message("economics", "input"))
    return MaxCallCost(int(keys.max_cost_usd * NANO_PER_USD))


ECONOMICS_GUARD = GuardKind(EconomicsConfig, _make_cost_limit, example={"max_cost_usd": 1})
