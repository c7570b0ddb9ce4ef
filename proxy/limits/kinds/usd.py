"""Money by the calendar, counted in nano-USD: what the most expensive target may cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from proxy.errors import BudgetExceeded
from proxy.limits.most_expensive import highest_cost
from proxy.money.usage import NANO, Tokens, usd_text
from proxy.types.limit import CallSize, Limit, LimitKind, LimitRefusal


class UsdBudget(LimitKind):
    """USD per calendar second, minute, hour, day, week or month."""

    name = "usd"
    unit = "USD"
    counter_type = "budget"
    is_usage_based = True
    counter = "nano_usd"  # counters of micro-USD, of before, are not read
    scale = NANO

    def estimate(self, sizes: Sequence[CallSize], day: date) -> int:
        return highest_cost(sizes, day) or 0

    def actual(self, tokens: Tokens | None, cost: int | None) -> int | None:
        return cost

    def figure(self, amount: int) -> str:
        return f"{usd_text(amount)} USD"

    def amount_text(self, amount: int) -> str:
        return self.figure(amount)

    def describe(self, limit: Limit) -> str:
        return f"{self.figure(limit.amount)} per {limit.calendar.unit}"

    def error(self, refusal: LimitRefusal, at_ms: int) -> BudgetExceeded:
        budget, left, limit = f"budget {refusal.named}", refusal.remaining, refusal.limit
        if refusal.retry_after_s is None:
            text = f"This call may cost more than the whole {budget}. Request fewer output tokens."
        else:
            known = "" if left is None else f" {self.figure(left)} is left."
            reset = limit.calendar.next_start(at_ms).isoformat(timespec="seconds")
            text = f"This call may cost more than is left of {budget}.{known} It resets at {reset}."
        return BudgetExceeded(text, limit.name, "insufficient_quota", refusal.retry_after_s)
