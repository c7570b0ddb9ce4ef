"""Limit on concurrent calls. Each holds a lease until it has ended."""

from __future__ import annotations

from proxy.money.usage import Tokens
from proxy.types.limit import Limit, LimitKind


class Concurrency(LimitKind):
    """Concurrent calls."""

    name = "concurrency"
    unit = "call"
    counter_type = "lease"

    def actual(self, tokens: Tokens | None, cost: int | None) -> int:
        return 0

    def describe(self, limit: Limit) -> str:
        return f"{self.amount_text(limit.amount)} at once"
