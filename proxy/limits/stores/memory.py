"""Counters of one process. Every operation runs in one step of the event loop.

Memory is bounded: idle counters are dropped, and beyond ``max_counters`` others are evicted. The
counters of the owner with the most counters are evicted first, so that a client that invents names
loses only its own. Rates are evicted before budgets, older counters before newer ones. An evicted
budget starts again at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from proxy.limits.stores.counters import Budget, Charge, Counter, Leases, Rate, make_counter
from proxy.limits.stores.store import BillingOwners
from proxy.types.limit import (
    READING_LENGTH,
    Claim,
    CounterState,
    Limit,
    LimitDecision,
    build_limit_decision,
)

MAX_COUNTERS = 100_000
SHARE_AFTER_EVICTION = 0.9
MIN_SWEEP_SIZE = 1024
CounterKey = tuple[str, str]
"""Key of a limit, and scope."""
CounterCharge = tuple[Counter, Limit, Charge]
CounterWait = tuple[Counter, Limit, int, int]
"""Counter, limit, amount of the claim, and wait in milliseconds."""


@dataclass(slots=True)
class MemoryStore:
    """A ``CounterStore`` of one process.

    ``monotonic`` returns seconds of a monotonic clock, ``utc`` seconds since 1970.
    """

    monotonic: Callable[[], float]
    utc: Callable[[], float]
    max_counters: int = MAX_COUNTERS
    evicted_count: int = 0
    _counters: dict[CounterKey, Counter] = field(default_factory=dict)
    _calls: dict[str, list[CounterCharge | None]] = field(default_factory=dict)
    _sweep_size: int = MIN_SWEEP_SIZE
    _billing_owners: BillingOwners = field(default_factory=BillingOwners)

    def __post_init__(self) -> None:
        self._sweep_size = min(MIN_SWEEP_SIZE, self.max_counters)

    async def claim_bill(self, name: str, owner: str) -> bool:
        return self._billing_owners.claim_bill(name, owner)

    async def mark_bill_booked(self, name: str) -> None:
        """Do nothing, because no other process can claim the bill."""

    async def read(self, claims: Sequence[Claim]) -> tuple[CounterState, ...]:
        return self.preview(claims).counter_states

    @property
    def has_all_updates(self) -> bool:
        return True

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        if request_id in self._calls:
            readings = list(self.preview(claims).readings)
            readings[2::READING_LENGTH] = [0] * len(claims)
            return LimitDecision(True, claims, readings)
        now_ms, wall_ms = int(self.monotonic() * 1000), int(self.utc() * 1000)
        if len(self._counters) >= self._sweep_size:
            self._sweep(now_ms, wall_ms)
        is_admitted, waits = self._find_waits(claims, now_ms, wall_ms)
        readings = []
        if not is_admitted:
            for counter, limit, _, wait in waits:
                counter.append_reading(limit, wait, wall_ms, readings)
            return LimitDecision(False, claims, readings)
        charges: list[CounterCharge | None] = []
        for counter, limit, amount, wait in waits:
            if wait:  # in shadow mode: an enforced limit would have refused the call
                charges += (None,)
                counter.append_reading(limit, wait, wall_ms, readings)
            else:
                mark = counter.charge(limit, amount, request_id, wall_ms, readings)
                charges += ((counter, limit, (amount, mark, now_ms, request_id)),)
        self._add_call(request_id, charges)
        return LimitDecision(True, claims, readings)

    def _find_waits(
        self, claims: Sequence[Claim], now_ms: int, wall_ms: int
    ) -> tuple[bool, list[CounterWait]]:
        """Return whether the call is admitted, and the wait of each claim in ms.

        A limit in shadow mode may have a wait, but does not refuse. Count-only claims never wait.
        """
        is_admitted, counters = True, self._counters
        waits: list[CounterWait] = []
        for claim in claims:
            limit = claim.limit
            key = (limit.key, claim.scope)
            if key not in counters:
                counters[key] = make_counter(limit)
            counter = counters[key]
            wait = counter.get_wait_ms(limit, claim.amount, now_ms, wall_ms)
            if wait and claim.is_count_only:
                wait = 0
            elif wait and not limit.shadow:
                is_admitted = False
            waits += ((counter, limit, claim.amount, wait),)
        return is_admitted, waits

    def _add_call(self, request_id: str, charges: list[CounterCharge | None]) -> None:
        if len(self._calls) >= self.max_counters:  # the oldest stays charged; its lease expires
            del self._calls[next(iter(self._calls))]
        self._calls[request_id] = charges

    def preview(self, claims: Sequence[Claim]) -> LimitDecision:
        """Return the decision on ``claims`` without charging and without creating counters."""
        now_ms, wall_ms = self._read_clocks()
        readings: list[int] = []
        for claim in claims:
            limit = claim.limit
            counter = self._counters.get((limit.key, claim.scope)) or make_counter(limit)
            wait = counter.get_wait_ms(limit, claim.amount, now_ms, wall_ms)
            counter.append_reading(limit, 0 if claim.is_count_only else wait, wall_ms, readings)
        return build_limit_decision(claims, readings)

    async def settle_unused(self, request_id: str) -> None:
        await self.settle(request_id, ())

    async def settle(self, request_id: str, actuals: Sequence[int]) -> None:
        charges = self._calls.pop(request_id, None)
        if charges is None:
            return
        now_ms = int(self.monotonic() * 1000)
        for entry, actual in zip(charges, actuals or [0] * len(charges), strict=True):
            if entry is not None:
                counter, limit, charge = entry
                if actual != charge[0] or limit.is_leased or limit.is_budget:
                    counter.settle(limit, charge, actual if actual > 0 else 0, now_ms)

    async def renew(self) -> None:
        now_ms = int(self.monotonic() * 1000)
        for charges in self._calls.values():
            for entry in charges:
                if entry is not None and isinstance(entry[0], Leases):
                    entry[0].renew(entry[1], entry[2], now_ms)

    async def restore(self, claims: Sequence[Claim]) -> bool:
        for claim in claims:
            self._restore_budget(claim)
        return True

    def _restore_budget(self, claim: Claim) -> None:
        key = (claim.limit.key, claim.scope)
        counter = self._counters.setdefault(key, make_counter(claim.limit))
        if isinstance(counter, Budget):
            counter.restore(claim, int(self.utc() * 1000))

    def charge_unchecked(self, claim: Claim) -> None:
        """Charge a rate even beyond its capacity, or add earlier spend to a budget."""
        if claim.limit.is_budget:
            self._restore_budget(claim)
        else:
            self._force_charge("", claim, *self._read_clocks())

    def restore_leases(self, request_id: str, claims: Sequence[Claim]) -> None:
        """Hold the leases of a call admitted elsewhere, even beyond the capacity.

        ``claims`` are all claims of the call. Does nothing if the call is in flight here.
        """
        if request_id in self._calls:
            return
        now_ms, wall_ms = self._read_clocks()
        charges: list[CounterCharge | None] = [
            self._force_charge(request_id, claim, now_ms, wall_ms)
            if claim.limit.is_leased
            else None
            for claim in claims
        ]
        self._add_call(request_id, charges)

    def _force_charge(
        self, request_id: str, claim: Claim, now_ms: int, wall_ms: int
    ) -> CounterCharge:
        limit, amount = claim.limit, claim.amount
        counter = self._counters.setdefault((limit.key, claim.scope), make_counter(limit))
        counter.get_wait_ms(limit, amount, now_ms, wall_ms)
        mark = counter.charge(limit, amount, request_id, wall_ms, [])
        return counter, limit, (amount, mark, now_ms, request_id)

    def drop_counter(self, key: CounterKey) -> None:
        self._counters.pop(key, None)

    def _read_clocks(self) -> tuple[int, int]:
        return int(self.monotonic() * 1000), int(self.utc() * 1000)

    def _sweep(self, now_ms: int, wall_ms: int) -> None:
        """Drop idle counters, then evict others. Runs rarely enough to cost little per counter."""
        busy = {id(entry[0]) for charges in self._calls.values() for entry in charges if entry}
        counters = {
            key: counter
            for key, counter in self._counters.items()
            if id(counter) in busy or not counter.can_be_dropped(now_ms, wall_ms)
        }
        if len(counters) >= self.max_counters:
            excess = len(counters) - int(self.max_counters * SHARE_AFTER_EVICTION)
            for key in islice(_sort_for_eviction(counters), excess):
                del counters[key]
            self.evicted_count += excess
        self._counters = counters
        self._sweep_size = min(self.max_counters, max(MIN_SWEEP_SIZE, 2 * len(counters)))


def _sort_for_eviction(counters: dict[CounterKey, Counter]) -> Iterator[CounterKey]:
    """Yield keys in the order of eviction. ``counters`` has the oldest first.

    The counters by which the largest owners exceed others come first, then one counter of each
    owner in turn.
    """
    rates = [key for key, counter in counters.items() if isinstance(counter, Rate)]
    other_keys = [key for key, counter in counters.items() if not isinstance(counter, Rate)]
    last_rank: dict[str, int] = {}
    keys_by_rank: list[list[CounterKey]] = []
    for key in chain(reversed(other_keys), reversed(rates)):
        limit, scope = key
        first_label, _, _ = scope.partition("|")
        owner = first_label if first_label.startswith("key:") else limit
        rank = last_rank[owner] = last_rank.get(owner, -1) + 1
        if rank == len(keys_by_rank):
            keys_by_rank.append([])
        keys_by_rank[rank].append(key)
    for keys in reversed(keys_by_rank):
        yield from reversed(keys)
