"""Kinds of limits by their key in policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from proxy.limits.kinds.usd import UsdBudget
from proxy.money.usage import Tokens
from proxy.types.limit import MAX_AMOUNT, CallSize, Limit, LimitKind


class RequestRate(LimitKind):
    """Calls per period."""

    name = "requests"
    unit = "request"
    headers = (
        "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
    )  # fmt: skip


class TokenRate(LimitKind):
    """Tokens of prompts and responses per period."""

    name = "tokens"
    unit = "token"
    headers = (
        "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
    )  # fmt: skip
    is_usage_based = True

    def estimate(self, sizes: Sequence[CallSize], day: date) -> int:
        highest = 0
        for size in sizes:
            highest = max(highest, size.prompt + size.output)
        return min(highest, MAX_AMOUNT)

    def get_used_amount(self, tokens: Tokens | None, cost: int | None) -> int | None:
        return None if tokens is None else tokens.total


class Concurrency(LimitKind):
    """Concurrent calls."""

    name = "concurrency"
    unit = "call"
    counter_type = "lease"

    def get_used_amount(self, tokens: Tokens | None, cost: int | None) -> int:
        return 0

    def describe(self, limit: Limit) -> str:
        return f"{self.format_amount(limit.amount)} at once"


KINDS: Mapping[str, LimitKind] = {
    kind.name: kind for kind in (RequestRate(), TokenRate(), Concurrency(), UsdBudget())
}
