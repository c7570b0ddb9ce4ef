"""Limit on tokens per period, by the largest prompt and output of a model call's targets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from proxy.money.usage import Tokens
from proxy.types.limit import MAX_AMOUNT, CallSize, LimitKind


class TokenRate(LimitKind):
    """Tokens of prompts and responses per period."""

    name = "tokens"
    unit = "token"
    headers = (
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
    )
    is_usage_based = True

    def estimate(self, sizes: Sequence[CallSize], day: date) -> int:
        highest = 0
        for size in sizes:
            highest = max(highest, size.prompt + size.output)
        return min(highest, MAX_AMOUNT)

    def actual(self, tokens: Tokens | None, cost: int | None) -> int | None:
        return None if tokens is None else tokens.total
