"""Counts in one process while the shared store is away, and notices what that store has lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from proxy.limits.stores.memory import MemoryStore
from proxy.types.limit import Claim, Limit
from proxy.types.outcome import FRESH, NEVER, READING, LimitDecision, outcome

RETRY_MS = 1000
MOST_SEEN = 100_000
CLOSE_MS = 1000  # by which clocks may differ: two ends so near are those of one window
MOST_KNOWN = 100_000
Name = tuple[str, str]
Seen = tuple[int, int, int]
"""What the shared store said last of a counter, its level and reset, and when, in milliseconds."""


@dataclass(slots=True)
class LocalFallback:
    """Decides by ``on_store_error``: ``local`` by the instance's share, ``open`` as if there were
    no limit, ``closed`` against the call.

    The share is the limit over the number of ``replicas``, one at least. It does not begin anew:
    of what all have used when the store was last heard, the instance bears its share too. Once the
    store is heard again of a counter, what was counted here in its place is forgotten.
    """

    monotonic: Callable[[], float]
    utc: Callable[[], float]
    replicas: int = 1
    local: MemoryStore = field(init=False)
    _shares: dict[str, tuple[Limit, Limit]] = field(default_factory=dict)
    _seen: dict[Name, Seen] = field(default_factory=dict)
    _seeded: set[Name] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: the shared store is back."""
        self.local = MemoryStore(self.monotonic, self.utc)
        self._seeded.clear()

    def see(self, decided: LimitDecision) -> None:
        """Note where the shared store says that counters stand."""
        now, readings = int(self.monotonic() * 1000), decided.readings
        for index, claim in enumerate(decided.claims):
            limit = claim.limit
            if limit.on_store_error == "local" and not limit.is_leased:
                level, reset = readings[index * READING], readings[index * READING + 1]
                name = limit.key, claim.scope
                self._seen[name] = level, reset, now
                self._seeded.discard(name)
                self.local.forget(name)
        if len(self._seen) > MOST_SEEN:
            for name in list(self._seen)[: MOST_SEEN // 10]:
                del self._seen[name]

    def correct(self, decided: LimitDecision, at_ms: int, actuals: Sequence[int]) -> None:
        """Note what a call has really used of budgets, by what the shared store decided on it at a
        moment of the monotonic clock."""
        for index, (claim, actual) in enumerate(zip(decided.claims, actuals, strict=True)):
            limit, name = claim.limit, (claim.limit.key, claim.scope)
            _, reset, wait, _ = decided.readings[index * READING : (index + 1) * READING]
            if not limit.is_budget or wait or name not in self._seen:
                continue
            level, left, seen_ms = self._seen[name]
            if abs(seen_ms + left - at_ms - reset) < CLOSE_MS:  # in the same window
                self._seen[name] = max(0, level + actual - claim.amount), left, seen_ms

    def hold(self, request_id: str, claims: Iterable[Claim]) -> None:
        """Take over the places of a call that the shared store has admitted, until it is settled.
        Those of a call that has its places here already stay as they are."""
        local = [self._shared(claim) for claim in claims if claim.limit.on_store_error == "local"]
        if any(claim.limit.is_leased for claim in local):
            self.local.hold_now(request_id, local)

    def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        """Decide without the shared store. ``settle`` tells when the call is over."""
        shares = [self._shared(claim) for claim in claims]
        kept = [claim for claim in shares if claim.limit.on_store_error == "local"]
        closed = has_closed(claims)
        for claim in kept:
            self._seed(claim)
        held = self.local.look_now(kept) if closed else self.local.admit_now(request_id, kept)
        starts = range(0, len(held.readings), READING)
        decided = iter([held.readings[at : at + READING] for at in starts])
        readings: list[int] = []
        for claim in claims:
            readings += next(decided) if claim.limit.on_store_error == "local" else _reading(claim)
        return replace(outcome(shares, _patient(claims, readings)), store_away=closed)

    def charge(self, claims: Sequence[Claim], *, whole: bool) -> None:
        """Add money to the instance's share."""
        shares = [self._shared(claim) for claim in claims if claim.limit.on_store_error == "local"]
        self.local.charge_now(shares, whole=whole)

    def look(self, claims: Sequence[Claim]) -> LimitDecision:
        """See where the instance's share of each limit stands."""
        return self.local.look_now([self._shared(claim) for claim in claims])

    def settle(self, request_id: str, claims: Sequence[Claim], actuals: Sequence[int]) -> None:
        """Correct the instance's share."""
        local = [
            actual
            for claim, actual in zip(claims, actuals, strict=True)
            if claim.limit.on_store_error == "local"
        ]
        self.local.settle_now(request_id, local)

    def _shared(self, claim: Claim) -> Claim:
        limit = claim.limit
        if self.replicas == 1 or limit.on_store_error != "local":
            return claim
        known = self._shares.get(limit.key)
        if known is None or known[0] is not limit:
            burst = limit.burst and max(1, limit.burst // self.replicas)
            share = replace(limit, amount=max(1, limit.amount // self.replicas), burst=burst)
            known = self._shares[limit.key] = limit, share
        return replace(claim, limit=known[1])

    def _seed(self, claim: Claim) -> None:
        """Charge the share of what all have used, once for as long as the store is not heard."""
        limit, name = claim.limit, (claim.limit.key, claim.scope)
        seen = self._seen.get(name)
        if seen is None or name in self._seeded:
            return
        self._seeded.add(name)
        level, reset, at = seen
        passed = int(self.monotonic() * 1000) - at
        if limit.is_budget:
            used = level if passed < reset else 0
        else:
            whole = self._shares.get(limit.key, (limit, limit))[0]
            used = -(-max(0, level - passed * whole.drain_per_ms) // whole.debt_per_unit)
        share = -(-used // self.replicas)
        if share:
            self.local.count_now(replace(claim, amount=share))


def has_closed(claims: Iterable[Claim]) -> bool:
    """True if a limit in force refuses whatever the shared store does not decide."""
    return any(
        claim.limit.on_store_error == "closed" and not claim.limit.shadow for claim in claims
    )


def _reading(claim: Claim) -> tuple[int, int, int, int]:
    return (0, -1, RETRY_MS if claim.limit.on_store_error == "closed" else 0, 0)


def _patient(claims: Sequence[Claim], readings: list[int]) -> list[int]:
    """Return the readings with ``NEVER`` only for what the whole limit could not admit: the store
    may come back."""
    for index, claim in enumerate(claims):
        at = index * READING + 2
        if readings[at] == NEVER and claim.amount <= claim.limit.capacity:
            readings[at] = RETRY_MS
    return readings


@dataclass(slots=True)
class LostCounters:
    """Notices that a shared store has lost a budget: its counter begins anew in a window that this
    instance has seen begun.

    ``monotonic`` returns seconds. Beyond ``MOST_KNOWN`` budgets those known longest are forgotten,
    and their loss is not noticed.
    """

    monotonic: Callable[[], float]
    _ends: dict[tuple[str, str], int] = field(default_factory=dict)

    def find(self, decided: LimitDecision) -> list[Claim]:
        """Return the claims whose budgets turn out to be lost by what the store has decided."""
        lost: list[Claim] = []
        for index, claim in enumerate(decided.claims):
            limit = claim.limit
            if not limit.is_budget:
                continue
            now, name = int(self.monotonic() * 1000), (limit.key, claim.scope)
            _, reset, _, flags = decided.readings[index * READING : (index + 1) * READING]
            if flags & FRESH and now < self._ends.get(name, 0) - CLOSE_MS:
                lost.append(claim)
            if decided.admitted:
                self._ends[name] = now + reset
        if len(self._ends) > MOST_KNOWN:
            for name in list(self._ends)[: MOST_KNOWN // 10]:
                del self._ends[name]
        return lost
