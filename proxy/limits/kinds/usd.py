"""Money by the calendar, counted in nano-USD: what the most expensive target may cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from proxy.errors import BudgetExceeded
from proxy.limits.most_expensive import highest_cost
from proxy.types.limit import CallSize, Limit, LimitKind
from proxy.usage import NANO, Tokens, usd_text


class UsdBudget(LimitKind):
    """Money in each second, minute, hour, day, week or month of the calendar."""

    name = "usd"
    unit = "USD"
    counting = "budget"
    estimated = True
    counter = "nano_usd"  # counters of micro-USD, of before, are not read
    scale = NANO

    def weigh(self, sizes: Sequence[CallSize], day: date) -> int:
        return highest_cost(sizes, day) or 0

    def used(self, tokens: Tokens | None, cost: int | None) -> int | None:
        return cost

    def figure(self, amount: int) -> str:
        return f"{usd_text(amount)} USD"

    def amount_text(self, amount: int) -> str:
        return self.figure(amount)

    def allowance(self, limit: Limit) -> str:
        return f"{self.figure(limit.amount)} each {limit.calendar.unit}"

    def refusal(self, limit: Limit, retry_after_s: float | None, left: int) -> BudgetExceeded:
        return BudgetExceeded(limit.name, retry_after_s, spent=not left)
