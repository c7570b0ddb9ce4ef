"""What a call's attempts used and cost, as reported or estimated, and what it was charged or saved.

Money is nano-USD; None where no price is known, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import NamedTuple

from proxy.attempts import Attempt, Fate
from proxy.estimate import body_quarters
from proxy.frozen import frozen
from proxy.types import Call, Target
from proxy.usage import Price, Source, Tokens, Usage, in_force

MAX_COST = 2**53  # what no money on earth could pay is taken as unknown


@frozen
class Bill:
    """What one attempt used and what it cost."""

    target: Target
    usage: Usage
    cost: int | None
    fate: Fate
    price: Price | None = None

    def parts(self) -> dict[str, int]:
        """Return the nano-USD by what they were for; they add up to ``cost``."""
        return self.price.parts(self.usage.tokens) if self.price else {}


class Billed(NamedTuple):
    """An attempt, what became of it, and its bill, None where no upstream was at work for it."""

    attempt: Attempt
    fate: Fate
    bill: Bill | None


@frozen
class Saved:
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
    """The attempts of one call with their bills."""

    attempts: Sequence[Billed]

    @property
    def bills(self) -> list[Bill]:
        """The bills of the attempts that an upstream was at work for."""
        return [each.bill for each in self.attempts if each.bill is not None]

    @property
    def served(self) -> Bill | None:
        """The bill of the answer that was used: of several, the first's."""
        return next((bill for bill in self.bills if bill.fate.served), None)

    @property
    def source(self) -> Source:
        """Where the token counts come from; the least certain of the attempts."""
        sources = {bill.usage.source for bill in self.bills}
        order: tuple[Source, ...] = ("partial_estimate", "provider")
        return next((source for source in order if source in sources), "none")

    @property
    def cost(self) -> int | None:
        """The cost of all attempts; None as soon as one of them has no known price."""
        return _total_cost(self.bills)

    @property
    def lost(self) -> int | None:
        """The part of the cost whose answer nobody got to its end."""
        return _total_cost(bill for bill in self.bills if bill.fate.loss is not None)

    @property
    def tokens(self) -> Tokens:
        first, *others = [bill.usage.tokens for bill in self.bills] or [Tokens()]
        return sum(others, first)


def bill(
    attempts: Sequence[Attempt],
    fates: Iterable[Fate],
    *,
    call: Call | None,
    hidden_tokens: Callable[[Attempt], int] | None,
    day: date,
) -> Billing:
    """Return the bills of attempts, at the prices of a day: of what was reported, else estimated.

    ``hidden_tokens`` returns those that a model may have written without showing any.
    """
    found = []
    for attempt, fate in zip(attempts, fates, strict=True):
        made = None
        if attempt.is_counted:
            usage = _usage(attempt, call, hidden_tokens)
            made = _priced(attempt.target, usage, fate, day)
        found.append(Billed(attempt, fate, made))
    return Billing(found)


def _usage(
    attempt: Attempt, call: Call | None, hidden_tokens: Callable[[Attempt], int] | None
) -> Usage:
    return attempt.meter.settle(
        lambda: body_quarters(call.body, call.quarters) if call else 0,
        finished=attempt.finished,
        hidden_tokens=lambda: 0 if hidden_tokens is None else hidden_tokens(attempt),
    )


def _priced(target: Target, usage: Usage, fate: Fate, day: date) -> Bill:
    price = in_force(target.prices, day)
    cost = price.cost(usage.tokens) if price else None
    if cost is not None and cost > MAX_COST:
        cost = None
    return Bill(target=target, usage=usage, cost=cost, fate=fate, price=price)


def _total_cost(bills: Iterable[Bill]) -> int | None:
    """Return the cost of all, None as soon as one has no known price."""
    total = 0
    for each in bills:
        if each.cost is None:
            return None
        total += each.cost
    return total
