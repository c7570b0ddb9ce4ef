"""Usage and cost of a call's attempts, budget charges and cache savings.

Money is in nano-USD. It is None, never zero, if no price is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from proxy.call.attempts import Attempt, AttemptResult, Bill
from proxy.money.estimate import NOTHING_HIDDEN, HiddenOutput, estimate_quarters
from proxy.money.usage import Source, Tokens, price_on
from proxy.runtime.frozen import frozen
from proxy.types import Call

MAX_COST = 2**53  # what no money on earth could pay is taken as unknown


class BilledAttempt(NamedTuple):
    """An attempt with its result and its bill. The bill is None if no model worked on it."""

    attempt: Attempt
    result: AttemptResult
    bill: Bill | None


@frozen
class CacheSavings:
    """Usage and cost that a cached or shared response saved."""

    tokens: Tokens
    cost: int | None


@frozen
class BudgetCharge:
    """Amount that a call charged to one counter of a budget."""

    budget: str
    scope: str
    cost: int


@frozen
class Billing:
    """Bills of one call. ``billed_attempts`` returns all attempts with their results."""

    bills: Sequence[Bill]
    billed_attempts: Callable[[], list[BilledAttempt]]

    @property
    def attempts(self) -> list[BilledAttempt]:
        """All attempts of the call with their current results."""
        return self.billed_attempts()

    @property
    def source(self) -> Source:
        """Source of the token counts: the least certain one of all attempts that used tokens."""
        source: Source = "none"
        for bill in self.bills:
            if bill.usage.source == "unknown":
                return "unknown"
            if source != "partial_estimate" and bill.usage.source != "none":
                source = bill.usage.source
        return source

    @property
    def cost(self) -> int | None:
        """Cost of all attempts. None if one of them has no known price."""
        total = 0
        for bill in self.bills:
            if bill.cost is None:
                return None
            total += bill.cost
        return total

    @property
    def lost_cost(self) -> int | None:
        """Cost of responses that no client received completely."""
        return lost_cost(self.attempts)

    @property
    def tokens(self) -> Tokens:
        tokens = self.bills[0].usage.tokens if self.bills else Tokens()
        for bill in self.bills[1:]:
            tokens += bill.usage.tokens
        return tokens


def lost_cost(attempts: Sequence[BilledAttempt]) -> int | None:
    """Return the cost of responses that no client received completely. None if a price is
    unknown."""
    total = 0
    for _, fate, bill in attempts:
        if bill is not None and fate.loss is not None:
            if bill.cost is None:
                return None
            total += bill.cost
    return total


def bill(
    attempt: Attempt,
    *,
    call: Call | None,
    hidden_output: Callable[[Attempt], HiddenOutput] | None,
    moment: datetime,
) -> Bill:
    """Return the bill of an attempt at the prices of ``moment``, from reported or estimated
    usage.

    ``hidden_output`` estimates output that the model may have produced without sending it. An
    attempt without usage costs nothing, priced or not. Unknown usage has no known cost, unless the
    target is free.
    """
    usage = attempt.meter.settle(
        lambda: estimate_quarters(call.body, call.field_quarters) if call else 0,
        finished=attempt.finished,
        hidden_output=lambda: hidden_output(attempt) if hidden_output else NOTHING_HIDDEN,
    )
    prices = attempt.target.prices
    undated = len(prices) == 1 and prices[0].since is None
    price = prices[0] if undated else price_on(prices, moment.date())
    if usage.source == "unknown":
        cost = 0 if price is not None and price.is_free else None
    else:
        cost = price.cost(usage.tokens) if price else 0 if usage.source == "none" else None
    if cost is not None and cost > MAX_COST:
        cost = None
    return Bill(target=attempt.target, usage=usage, cost=cost, price=price)
