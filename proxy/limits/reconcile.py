"""Whether the counters of budgets and the ledger agree: the money that only one of them knows of.

Calls go on meanwhile, so a counter is read before and after the ledger is, with time between for
rows to be written: what the ledger says must lie from the one to the other. While nothing is spent
that is exact; else a difference smaller than what was just spent does not show.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from proxy.limits import Limiter
from proxy.limits.stores.store import StoreUnavailable
from proxy.types.limit import BudgetQuery, Claim, Limit

EVERY_S = 300.0
WRITTEN_S = 2.0
SHARE = 20  # looking takes at most such a part of the time
TRIES = 3
Spent = Callable[[BudgetQuery, int], Awaitable[Mapping[str, int]]]


@dataclass(slots=True)
class Reconciler:
    """``spent`` returns what the ledger has for a budget since a moment in milliseconds of UTC, as
    nano-USD by scope.

    Every ``EVERY_S`` seconds ``report`` gets the largest drift of each budget, in nano-USD: above 0
    where the counter has more. A budget whose drift is unknown is not among them; ``failed`` gets
    the error of a look that failed.
    """

    admission: Limiter
    budgets: Callable[[], Awaitable[Mapping[str, BudgetQuery]]]
    spent: Spent
    report: Callable[[Mapping[str, int]], None]
    failed: Callable[[Exception], None]
    sleep: Callable[[float], Awaitable[None]]
    now: Callable[[], float]
    utc: Callable[[], float]
    _seen: dict[str, frozenset[str] | None] = field(default_factory=dict)
    _unsure: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Look for as long as the process lives."""
        rest = EVERY_S
        while True:
            await self.sleep(rest)
            began = self.now()
            try:
                found = await self.look()
            except Exception as error:  # noqa: BLE001  # what looks on must not end the process
                found = {}
                self.failed(error)
            self.report(found)
            rest = max(EVERY_S, SHARE * (self.now() - began))

    async def look(self) -> dict[str, int]:
        """Return the drift of each budget in force, by name; without those where it is unknown."""
        found: dict[str, int] = {}
        for budget in (await self.budgets()).values():
            if budget.limit.shadow or not self._sure(budget):
                continue
            drift = await self._least(budget)
            if drift is not None:
                found[budget.limit.name] = drift
        return found

    def _sure(self, budget: BudgetQuery) -> bool:
        """A budget that began to count other deployments cannot be told until its window is over:
        the ledger does not know what counted before."""
        name, begin = budget.limit.name, self._begin(budget.limit)
        if self._seen.get(name, budget.deployments) != budget.deployments:
            self._unsure[name] = begin
        self._seen[name] = budget.deployments
        return self._unsure.get(name) != begin

    async def _least(self, budget: BudgetQuery) -> int | None:
        """Return the smallest drift of a few tries: one that disappears was a call under way."""
        least: int | None = None
        for _ in range(TRIES):
            drift = await self._drift(budget)
            if drift is None:
                return None
            least = drift if least is None else min(least, drift, key=abs)
            if not least:
                break
        return least

    async def _drift(self, budget: BudgetQuery) -> int | None:
        begin = self._begin(budget.limit)
        before = await self._counted(budget, begin)
        await self.sleep(WRITTEN_S)
        kept = await self.spent(budget, begin)
        after = await self._counted(budget, begin)
        if self._begin(budget.limit) != begin:
            return None
        drifts = [
            _outside(kept.get(scope, 0), before[scope], after[scope])
            for scope in before.keys() & after.keys()
        ]
        return max(drifts, key=abs, default=None)

    async def _counted(self, budget: BudgetQuery, begin: int) -> dict[str, int]:
        """Return the nano-USD spent by calls that have ended, by scope; without fresh counters."""
        store = self.admission.store
        claims = [Claim(budget.limit, scope, 0) for scope in sorted(budget.scopes)]
        if not store.certain:
            return {}
        try:
            standings = await store.read(claims)
        except StoreUnavailable:
            return {}
        held = self.admission.held(budget.limit, begin)
        used = {standing.scope: standing.used for standing in standings if not standing.is_fresh}
        if not store.certain:
            return {}
        return {scope: amount - held.get(scope, 0) for scope, amount in used.items()}

    def _begin(self, limit: Limit) -> int:
        return limit.calendar.window_bounds(int(self.utc() * 1000))[1]


def _outside(kept: int, *counted: int) -> int:
    """Return by how much the ledger's amount is outside the counters' range; 0 if it is within."""
    if min(counted) <= kept <= max(counted):
        return 0
    return min((amount - kept for amount in counted), key=abs)
