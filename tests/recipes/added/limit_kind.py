"""Limit of output tokens per time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from proxy.money.usage import Tokens
from proxy.types.limit import MAX_AMOUNT, CallSize, LimitKind


class AcmeRate(LimitKind):
    """Output tokens per time."""

    name = "acme"
    unit = "written token"
    headers = ("x-ratelimit-limit-acme", "x-ratelimit-remaining-acme", "x-ratelimit-reset-acme")
    is_usage_based = True

    def estimate(self, sizes: Sequence[CallSize], day: date) -> int:
        return min(max([size.output for size in sizes], default=0), MAX_AMOUNT)

    def get_used_amount(self, tokens: Tokens | None, cost: int | None) -> int | None:
        return None if tokens is None else tokens.completion_total
