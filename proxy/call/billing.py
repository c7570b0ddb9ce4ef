"""What a call's attempts used and cost, as reported or estimated, and what it was charged or saved.

Money is nano-USD; None where no price is known, never zero.
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
    """An attempt, what became of it, and its bill, None where no model was at work for it."""

    attempt: Attempt
    fate: AttemptResult
    bill: Bill | None


@frozen
class CacheSavings:
    """What a call did not have to use, as its answer was kept or shared."""

    tokens: Tokens
    cost: int | None


@frozen
class BudgetCharge:
    """What a call was charged of one counter of a budget."""

    budget: str
    scope: str
    cost: int


@frozen
class Billing:
    """The ``bills`` of the attempts of one call that an upstream was at work for. ``judged`` tells
    of each attempt what became of it."""

    bills: Sequence[Bill]
    judged: Callable[[], list[BilledAttempt]]

    @property
    def attempts(self) -> list[BilledAttempt]:
        """All attempts of the call, with what became of them now."""
        return self.judged()

    @property
    def source(self) -> Source:
        """Where the token counts come from: the least certain of the attempts that used any."""
        source: Source = "none"
        for bill in self.bills:
            if bill.usage.source == "unknown":
                return "unknown"
            if source != "partial_estimate" and bill.usage.source != "none":
                source = bill.usage.source
        return source

    @property
    def cost(self) -> int | None:
        """The cost of all attempts; None as soon as one of them has no known price."""
        total = 0
        for bill in self.bills:
            if bill.cost is None:
                return None
            total += bill.cost
        return total

    @property
    def lost_cost(self) -> int | None:
        """The part of the cost whose answer nobody got to its end."""
        return lost(self.attempts)

    @property
    def tokens(self) -> Tokens:
        tokens = self.bills[0].usage.tokens if self.bills else Tokens()
        for bill in self.bills[1:]:
            tokens += bill.usage.tokens
        return tokens


def lost(attempts: Sequence[BilledAttempt]) -> int | None:
    """Return the cost of the answers that nobody got to their end; None as soon as one of them has
    no known price."""
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
    """Return the bill of an attempt, at the prices of a moment: of what was reported, else
    estimated.

    ``hidden_output`` returns what a model may have written without sending it. What used
    nothing costs nothing, priced or not; where nobody says what was used, the cost is unknown
    unless nothing of the target costs anything.
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
