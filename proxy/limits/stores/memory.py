"""Counters of one process. Each call of the store is one step of the event loop: nothing awaits.

Memory is bounded: counters that say nothing are forgotten, and beyond ``most`` some others are, and
counted as ``evicted``: an evicted budget begins anew. They go first of the key that has most of
them, so that a client who makes up names loses its own: its rates before its budgets, the oldest
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from proxy.limits.stores.counters import Budget, Counter, Leases, Rate, Taken, new_counter
from proxy.limits.stores.store import BilledOnce
from proxy.types.limit import Claim, Limit
from proxy.types.outcome import READING, CounterState, LimitDecision, outcome

MOST_COUNTERS = 100_000
KEPT_SHARE = 0.9
SWEEP_FROM = 1024
Name = tuple[str, str]
Charge = tuple[Counter, Limit, Taken]
Looked = tuple[Counter, Limit, int, int]


@dataclass(slots=True)
class MemoryStore:
    """A ``Store``. ``monotonic`` returns seconds that only go forward, ``utc`` those since 1970."""

    monotonic: Callable[[], float]
    utc: Callable[[], float]
    most: int = MOST_COUNTERS
    evicted: int = 0
    _counters: dict[Name, Counter] = field(default_factory=dict)
    _under_way: dict[str, list[Charge | None]] = field(default_factory=dict)
    _sweep_at: int = SWEEP_FROM
    _billed: BilledOnce = field(default_factory=BilledOnce)

    def __post_init__(self) -> None:
        self._sweep_at = min(SWEEP_FROM, self.most)

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        return self.admit_now(request_id, claims)

    async def settle(self, request_id: str, actuals: Sequence[int]) -> None:
        self.settle_now(request_id, actuals)

    async def release(self, request_id: str) -> None:
        self.settle_now(request_id, ())

    async def renew(self) -> None:
        self.renew_now()

    async def charge(self, charge_id: str, claims: Sequence[Claim], *, whole: bool = False) -> None:
        """As promised, but that an id is not remembered: nothing here fails half-way."""
        self.charge_now(claims, whole=whole)

    async def bill_once(self, name: str, owner: str) -> bool:
        """As promised, of the last ``MOST_BILLED`` names since the process has begun."""
        return self._billed.bill(name, owner)

    async def book(self, name: str) -> None:
        """Do nothing: what was billed and not booked is forgotten with the process."""

    async def read(self, claims: Sequence[Claim]) -> tuple[CounterState, ...]:
        return self.look_now(claims).standings

    @property
    def size(self) -> int:
        """How many counters there are."""
        return len(self._counters)

    @property
    def certain(self) -> bool:
        return True

    @property
    def under_way(self) -> int:
        """How many calls are admitted and not settled."""
        return len(self._under_way)

    def admit_now(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        if request_id in self._under_way:
            return self._again(claims)
        now, wall = int(self.monotonic() * 1000), int(self.utc() * 1000)
        if len(self._counters) >= self._sweep_at:
            self._sweep(now, wall)
        admitted, looked = self._look(claims, now, wall)
        readings: list[int] = []
        if not admitted:
            return LimitDecision(False, claims, _readings(looked, wall))
        taken: list[Charge | None] = []
        for counter, limit, amount, wait in looked:
            if wait:  # in shadow: had it been in force, the call would not have run
                taken += (None,)
                counter.read(limit, wait, wall, readings)
            else:
                mark = counter.take(limit, amount, request_id, wall, readings)
                taken += ((counter, limit, (amount, mark, now, request_id)),)
        self._hold(request_id, taken)
        return LimitDecision(True, claims, readings)

    def _look(self, claims: Sequence[Claim], now: int, wall: int) -> tuple[bool, list[Looked]]:
        """Return whether all claims fit, and for each its counter and how long it has to wait."""
        admitted, counters = True, self._counters
        looked: list[Looked] = []
        for claim in claims:
            limit = claim.limit
            name = (limit.key, claim.scope)
            if name not in counters:
                counters[name] = new_counter(limit)
            counter = counters[name]
            wait = counter.must_wait(limit, claim.amount, now, wall)
            if wait and claim.is_count_only:
                wait = 0
            elif wait and not limit.shadow:
                admitted = False
            looked += ((counter, limit, claim.amount, wait),)
        return admitted, looked

    def _again(self, claims: Sequence[Claim]) -> LimitDecision:
        """Admit a call that is under way already: only tell where its counters stand."""
        readings = list(self.look_now(claims).readings)
        readings[2::READING] = [0] * len(claims)
        return LimitDecision(True, claims, readings)

    def _hold(self, request_id: str, taken: list[Charge | None]) -> None:
        if len(self._under_way) >= self.most:  # the oldest stays charged, its lease ends
            del self._under_way[next(iter(self._under_way))]
        self._under_way[request_id] = taken

    def look_now(self, claims: Sequence[Claim]) -> LimitDecision:
        """Return what ``admit_now`` would decide; nothing is charged and no counter made."""
        now, wall = self._clocks()
        readings: list[int] = []
        for claim in claims:
            limit = claim.limit
            counter = self._counters.get((limit.key, claim.scope)) or new_counter(limit)
            wait = counter.must_wait(limit, claim.amount, now, wall)
            counter.read(limit, 0 if claim.is_count_only else wait, wall, readings)
        return outcome(claims, readings)

    def settle_now(self, request_id: str, actuals: Sequence[int]) -> None:
        taken = self._under_way.pop(request_id, None)
        if taken is None:
            return
        now = int(self.monotonic() * 1000)
        for charge, actual in zip(taken, actuals or [0] * len(taken), strict=True):
            if charge is not None:
                counter, limit, what = charge
                if actual != what[0] or limit.is_leased:  # else nothing is to be corrected
                    counter.settle(limit, what, actual if actual > 0 else 0, now)

    def renew_now(self) -> None:
        now = int(self.monotonic() * 1000)
        for taken in self._under_way.values():
            for charge in taken:
                if charge is not None and isinstance(charge[0], Leases):
                    charge[0].renew(charge[1], charge[2], now)

    def charge_now(self, claims: Sequence[Claim], *, whole: bool) -> None:
        _, wall = self._clocks()
        for claim in claims:
            name = (claim.limit.key, claim.scope)
            counter = self._counters.setdefault(name, new_counter(claim.limit))
            if isinstance(counter, Budget):
                counter.add(claim, wall, whole=whole)

    def count_now(self, claim: Claim) -> None:
        """Count what was used elsewhere of a rate or a budget, whether it fits or not."""
        self._take("", claim, *self._clocks())

    def hold_now(self, request_id: str, claims: Sequence[Claim]) -> None:
        """Hold the places of a call that was admitted elsewhere, whether they fit or not, until it
        is settled: by all its claims, those counted there too. A call is held once."""
        if request_id in self._under_way:
            return
        now, wall = self._clocks()
        taken: list[Charge | None] = [
            self._take(request_id, claim, now, wall) if claim.limit.is_leased else None
            for claim in claims
        ]
        self._hold(request_id, taken)

    def _take(self, request_id: str, claim: Claim, now: int, wall: int) -> Charge:
        limit, amount = claim.limit, claim.amount
        counter = self._counters.setdefault((limit.key, claim.scope), new_counter(limit))
        counter.must_wait(limit, amount, now, wall)
        mark = counter.take(limit, amount, request_id, wall, [])
        return counter, limit, (amount, mark, now, request_id)

    def forget(self, name: Name) -> None:
        """Let a counter go."""
        self._counters.pop(name, None)

    def _clocks(self) -> tuple[int, int]:
        return int(self.monotonic() * 1000), int(self.utc() * 1000)

    def _sweep(self, now: int, wall: int) -> None:
        """Forget what says nothing, then the oldest; rarely enough to cost little per counter."""
        busy = {id(charge[0]) for taken in self._under_way.values() for charge in taken if charge}
        kept = {
            name: counter
            for name, counter in self._counters.items()
            if id(counter) in busy or not counter.idle(now, wall)
        }
        if len(kept) >= self.most:
            excess = len(kept) - int(self.most * KEPT_SHARE)
            for name in islice(_least_missed(kept), excess):
                del kept[name]
            self.evicted += excess
        self._counters = kept
        self._sweep_at = min(self.most, max(SWEEP_FROM, 2 * len(kept)))


def _least_missed(kept: dict[Name, Counter]) -> Iterator[Name]:
    """Return the names of counters in the order in which they are let go: all that an owner has
    more of than others have, then one of each in turn. ``kept`` has the oldest first."""
    rates = [name for name, counter in kept.items() if isinstance(counter, Rate)]
    others = [name for name, counter in kept.items() if not isinstance(counter, Rate)]
    owned: dict[str, int] = {}
    places: list[list[Name]] = []
    for name in chain(reversed(others), reversed(rates)):
        owner = _owner(name)
        place = owned[owner] = owned.get(owner, -1) + 1
        if place == len(places):
            places.append([])
        places[place].append(name)
    for names in reversed(places):
        yield from reversed(names)


def _owner(name: Name) -> str:
    """Return the key that a counter is named by, whatever else it is per; where it is per no key,
    its limit."""
    limit, scope = name
    first, _, _ = scope.partition("|")
    return first if first.startswith("key:") else limit


def _readings(looked: list[Looked], wall: int) -> list[int]:
    readings: list[int] = []
    for counter, limit, _, wait in looked:
        counter.read(limit, wait, wall, readings)
    return readings
