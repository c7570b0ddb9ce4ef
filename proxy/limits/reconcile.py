"""Measures drift between budget counters and the ledger.

Calls run during a measurement. The counter is read before and after the ledger, with a pause for
rows to be written: the ledger's amount must lie between both. Drift smaller than the spend during
the measurement is not detected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from proxy.limits import Limiter
from proxy.limits.stores.store import StoreUnavailable
from proxy.types.limit import BudgetQuery, Claim

INTERVAL_S = 300.0
WRITE_DELAY_S = 2.0
MIN_PAUSE_FACTOR = 20  # the pause is at least this many times as long as a measurement
MAX_MEASUREMENTS = 3
FetchSpend = Callable[[BudgetQuery, int], Awaitable[Mapping[str, int]]]


@dataclass(slots=True)
class Reconciler:
    """Reports the drift of each budget every ``INTERVAL_S`` seconds.

    Attributes:
        fetch_spend: Returns the ledger's spend for a budget in nano-USD by scope, since a time in
            milliseconds of UTC.
        on_drift: Called with the largest drift of each budget in nano-USD, positive if the counter
            has more. Budgets with unknown drift are omitted.
        on_error: Called with the error of a failed measurement.
        monotonic: Clock for pauses, in seconds.
        utc: Clock for budget windows, in seconds since 1970.
    """

    limiter: Limiter
    list_budgets: Callable[[], Awaitable[Mapping[str, BudgetQuery]]]
    fetch_spend: FetchSpend
    on_drift: Callable[[Mapping[str, int]], None]
    on_error: Callable[[Exception], None]
    sleep: Callable[[float], Awaitable[None]]
    monotonic: Callable[[], float]
    utc: Callable[[], float]
    _deployments: dict[str, frozenset[str] | None] = field(default_factory=dict)
    _changed_window_ms: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Measure and report until cancelled."""
        pause_s = INTERVAL_S
        while True:
            await self.sleep(pause_s)
            started_at = self.monotonic()
            drifts: Mapping[str, int] = {}
            try:
                drifts = await self.measure_drift()
            except Exception as error:  # noqa: BLE001  # reported; must not end the process
                self.on_error(error)
            self.on_drift(drifts)
            pause_s = max(INTERVAL_S, MIN_PAUSE_FACTOR * (self.monotonic() - started_at))

    async def measure_drift(self) -> dict[str, int]:
        """Return the drift of each active budget by name, without budgets of unknown drift."""
        drifts: dict[str, int] = {}
        for budget in (await self.list_budgets()).values():
            if budget.limit.shadow or not self._has_unchanged_deployments_in_window(budget):
                continue
            drift = await self._find_smallest_drift(budget)
            if drift is not None:
                drifts[budget.limit.name] = drift
        return drifts

    def _has_unchanged_deployments_in_window(self, budget: BudgetQuery) -> bool:
        """Return False if the deployments of a budget have changed in its window.

        The ledger does not record which deployments the budget counted before.
        """
        name = budget.limit.name
        window_start_ms = budget.limit.calendar.get_window_start_ms(self.utc())
        if self._deployments.get(name, budget.deployments) != budget.deployments:
            self._changed_window_ms[name] = window_start_ms
        self._deployments[name] = budget.deployments
        return self._changed_window_ms.get(name) != window_start_ms

    async def _find_smallest_drift(self, budget: BudgetQuery) -> int | None:
        """Repeat the measurement, because drift that disappears was a call in flight."""
        drifts: list[int] = []
        while len(drifts) < MAX_MEASUREMENTS and 0 not in drifts:
            drift = await self._measure_largest_scope_drift(budget)
            if drift is None:
                return None
            drifts.append(drift)
        return min(drifts, key=abs)

    async def _measure_largest_scope_drift(self, budget: BudgetQuery) -> int | None:
        window_start_ms = budget.limit.calendar.get_window_start_ms(self.utc())
        spend_before = await self._read_settled_spend_by_scope(budget, window_start_ms)
        await self.sleep(WRITE_DELAY_S)
        ledger_spend = await self.fetch_spend(budget, window_start_ms)
        spend_after = await self._read_settled_spend_by_scope(budget, window_start_ms)
        if budget.limit.calendar.get_window_start_ms(self.utc()) != window_start_ms:
            return None
        drifts = []
        for scope in spend_before.keys() & spend_after.keys():
            amounts = spend_before[scope], spend_after[scope]
            differences = [amount - ledger_spend.get(scope, 0) for amount in amounts]
            is_between = min(differences) <= 0 <= max(differences)
            drifts.append(0 if is_between else min(differences, key=abs))
        return max(drifts, key=abs, default=None)

    async def _read_settled_spend_by_scope(
        self, budget: BudgetQuery, window_start_ms: int
    ) -> dict[str, int]:
        """Return the nano-USD of ended calls by scope, without fresh counters."""
        store = self.limiter.store
        claims = [Claim(budget.limit, scope, 0) for scope in sorted(budget.scopes)]
        if not store.has_all_updates:
            return {}
        try:
            states = await store.read(claims)
        except StoreUnavailable:
            return {}
        reserved = self.limiter.get_reserved_amounts_by_scope(budget.limit, window_start_ms)
        spend = {
            state.scope: state.used - reserved.get(state.scope, 0)
            for state in states
            if not state.is_fresh
        }
        return spend if store.has_all_updates else {}
