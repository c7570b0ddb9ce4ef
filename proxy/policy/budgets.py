"""The budgets of a revision, as the ledger is asked about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.label_catalog import counters
from proxy.types.limit import BudgetQuery


@dataclass(slots=True)
class BudgetsInForce:
    """The budgets in force by name, found in a thread once for each snapshot."""

    current: Callable[[], Snapshot]
    _of: Snapshot | None = None
    _named: Mapping[str, BudgetQuery] = field(default_factory=dict)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def all(self) -> Mapping[str, BudgetQuery]:
        """Return the budgets by name. With 5,000 keys they take a second to find."""
        async with self._reading:
            snapshot = self.current()
            if snapshot is not self._of:
                self._named = await asyncio.to_thread(budgets, snapshot)
                self._of = snapshot
            return self._named


def budgets(snapshot: Snapshot) -> dict[str, BudgetQuery]:
    """Return the budgets of a revision by name, with their counters whose owner no caller chooses.

    One that a rule brings, or takes away, counts those calls that the rule says.
    """
    scopes: dict[str, set[str]] = {}
    for limit, scope in counters(snapshot, budgets_only=True):
        scopes.setdefault(limit.name, set()).add(scope)
    rules = [rule for deployment in snapshot.deployments.values() for rule in deployment.rules]
    found = {bound.limit.name: bound for rule in rules for bound in rule.bounds}
    ruled = found.keys() | {name for rule in rules for name in rule.without}
    counting: dict[str, set[str]] = {}
    for name, deployment in snapshot.deployments.items():
        for bound in deployment.bounds:
            counting.setdefault(bound.limit.name, set()).add(name)
            found[bound.limit.name] = bound
    return {
        name: BudgetQuery(
            limit=bound.limit,
            per=bound.per,
            deployments=None if name in ruled else frozenset(counting[name]),
            scopes=frozenset(scopes.get(name, ())),
        )
        for name, bound in found.items()
        if bound.limit.is_budget
    }
