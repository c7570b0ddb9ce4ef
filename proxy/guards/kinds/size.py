"""The `length` and `economics` guards: limit the size of a text and the estimated cost of a call.

The limiter checks the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from proxy.config.scalars import PositiveInt, PositiveUsd, Section
from proxy.config.shapes import Requirement, any_of, has, is_present, not_
from proxy.guards.guard_kind import GuardContext, GuardKind, MostCost, only_under
from proxy.money.estimate import text_quarters, to_tokens
from proxy.money.usage import NANO
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding


@frozen
class Length:
    """Detector of texts that exceed a limit. The kind of the finding is the first exceeded
    limit."""

    characters: int | None = None
    lines: int | None = None
    tokens: int | None = None

    lookback = None

    def find(self, text: str) -> Sequence[Finding]:
        for kind, bound, count in (
            ("characters", self.characters, len),
            ("lines", self.lines, count_lines),
            ("tokens", self.tokens, count_tokens),
        ):
            if bound is not None and count(text) > bound:
                return (Finding(0, len(text), kind),)
        return ()


def count_lines(text: str) -> int:
    """Return the number of lines. The last line needs no line feed. An empty text has no lines."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def count_tokens(text: str) -> int:
    return to_tokens(text_quarters(text))


class LengthConfig(Section):
    """Texts that are too long."""

    REQUIREMENTS = (
        Requirement(
            any_of(has("characters"), has("lines"), has("tokens")),
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


class EconomicsConfig(Section):
    """Calls whose estimated maximum cost is too high. Allowed under `input` only."""

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


def _cost_cap(keys: EconomicsConfig, context: GuardContext) -> MostCost:
    if context.stage == "output":
        raise ValueError(only_under("economics", "input"))
    return MostCost(int(keys.max_cost_usd * NANO))


ECONOMICS_GUARD = GuardKind(EconomicsConfig, _cost_cap, example={"max_cost_usd": 1})
