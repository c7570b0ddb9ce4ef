"""Counters of one process while the shared store is away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from proxy.limits.stores.memory import CounterKey, MemoryStore
from proxy.types.limit import (
    FRESH_FLAG,
    NEVER_FITS,
    READING_LENGTH,
    Claim,
    Limit,
    LimitDecision,
    build_limit_decision,
)

RETRY_MS = 1000
MAX_COUNTERS = 100_000
CLOCK_TOLERANCE_MS = 1000  # window ends that differ by less belong to the same window
SharedReading = tuple[int, int, int, bool]
"""Level and reset as the shared store last reported them, the time of the report (ms), and True if
the counter was fresh."""


@dataclass(slots=True)
class LocalFallback:
    """Decides without the store, by ``on_store_error``.

    ``local`` uses this instance's share of the limit, ``open`` admits, ``closed`` refuses. The
    share is the limit divided by ``replicas``, at least 1. Local usage starts at the same share of
    the usage that the shared store last reported. It is dropped once the shared store reports the
    counter again.
    """

    monotonic: Callable[[], float]
    utc: Callable[[], float]
    replicas: int = 1
    local: MemoryStore = field(init=False)
    _shares: dict[str, tuple[Limit, Limit]] = field(default_factory=dict)
    _reports: dict[CounterKey, SharedReading] = field(default_factory=dict)
    _seeded: set[CounterKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop all local usage."""
        self.local = MemoryStore(self.monotonic, self.utc)
        self._seeded.clear()

    def record_decision(self, decision: LimitDecision) -> list[Claim]:
        """Record the readings of a shared store's decision. Return the claims on lost budgets.

        A budget counter is lost if the store reports it as fresh after it has reported it as
        restored in the same window. Beyond ``MAX_COUNTERS`` counters the loss of the oldest is not
        detected.
        """
        now_ms, lost_claims = int(self.monotonic() * 1000), list[Claim]()
        for index, claim in enumerate(decision.claims):
            if claim.limit.is_leased:
                continue
            key = claim.limit.key, claim.scope
            level, reset, _, flags = decision.readings[
                index * READING_LENGTH : (index + 1) * READING_LENGTH
            ]
            is_fresh = claim.limit.is_budget and bool(flags & FRESH_FLAG)
            if is_fresh and key in self._reports:
                _, window_left, reported_ms, was_fresh = self._reports[key]
                is_same_window = now_ms < reported_ms + window_left - CLOCK_TOLERANCE_MS
                if is_same_window and not was_fresh:
                    lost_claims.append(claim)
            if decision.admitted or not is_fresh:
                self._reports[key] = level, reset, now_ms, is_fresh
            self._seeded.discard(key)
            self.local.drop_counter(key)
        if len(self._reports) > MAX_COUNTERS:
            for key in list(self._reports)[: MAX_COUNTERS // 10]:
                del self._reports[key]
        return lost_claims

    def record_restored(self, claims: Iterable[Claim]) -> None:
        """Record that the shared store has restored the budgets of ``claims``."""
        for claim in claims:
            key = claim.limit.key, claim.scope
            if key in self._reports:
                level, reset, reported_ms, _ = self._reports[key]
                self._reports[key] = level, reset, reported_ms, False

    def record_settlement(
        self, decision: LimitDecision, decided_at_ms: int, actuals: Sequence[int]
    ) -> None:
        """Add the actual spend of a call to the recorded readings of its budgets."""
        for index, (claim, actual) in enumerate(zip(decision.claims, actuals, strict=True)):
            limit, key = claim.limit, (claim.limit.key, claim.scope)
            _, reset, wait, _ = decision.readings[
                index * READING_LENGTH : (index + 1) * READING_LENGTH
            ]
            if not limit.is_budget or wait or key not in self._reports:
                continue
            level, window_left, reported_ms, is_fresh = self._reports[key]
            if abs(reported_ms + window_left - decided_at_ms - reset) < CLOCK_TOLERANCE_MS:
                level = max(0, level + actual - claim.amount)
                self._reports[key] = level, window_left, reported_ms, is_fresh

    def restore_leases(self, request_id: str, claims: Iterable[Claim]) -> None:
        """Hold the leases of a call that the shared store has admitted, until it is settled."""
        shares = [*map(self._divide_limit_by_replicas, filter(_has_local_fallback, claims))]
        if any(share.limit.is_leased for share in shares):
            self.local.restore_leases(request_id, shares)

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        shares = [self._divide_limit_by_replicas(claim) for claim in claims]
        local_claims = [claim for claim in shares if _has_local_fallback(claim)]
        is_closed = has_enforced_closed_limit(claims)
        for claim in local_claims:
            self._charge_reported_usage(claim)
        if is_closed:
            decision = self.local.preview(local_claims)
        else:
            decision = await self.local.admit(request_id, local_claims)
        starts = range(0, len(decision.readings), READING_LENGTH)
        local_readings = iter(
            [decision.readings[start : start + READING_LENGTH] for start in starts]
        )
        readings: list[int] = []
        for claim in claims:
            if _has_local_fallback(claim):
                reading = list(next(local_readings))
                if reading[2] == NEVER_FITS and claim.amount <= claim.limit.capacity:
                    reading[2] = RETRY_MS  # the caller may retry once the store is back
            else:
                wait = RETRY_MS if claim.limit.on_store_error == "closed" else 0
                reading = [0, -1, wait, 0]
            readings += reading
        return replace(build_limit_decision(shares, readings), is_store_unavailable=is_closed)

    async def restore(self, claims: Sequence[Claim]) -> None:
        """Restore budgets locally, against this instance's share of their limits.

        Claims of limits with another ``on_store_error`` are ignored.
        """
        shares = [*map(self._divide_limit_by_replicas, filter(_has_local_fallback, claims))]
        await self.local.restore(shares)

    def preview(self, claims: Sequence[Claim]) -> LimitDecision:
        """Return the decision by this instance's shares without charging."""
        return self.local.preview([self._divide_limit_by_replicas(claim) for claim in claims])

    async def settle(
        self, request_id: str, claims: Sequence[Claim], actuals: Sequence[int]
    ) -> None:
        """Replace the local charges of a call by actual usage."""
        usage = zip(claims, actuals, strict=True)
        local_usage = [actual for claim, actual in usage if _has_local_fallback(claim)]
        await self.local.settle(request_id, local_usage)

    def _divide_limit_by_replicas(self, claim: Claim) -> Claim:
        limit = claim.limit
        if self.replicas == 1 or not _has_local_fallback(claim):
            return claim
        entry = self._shares.get(limit.key)
        if entry is None or entry[0] is not limit:
            burst = limit.burst and max(1, limit.burst // self.replicas)
            try:
                share = replace(limit, amount=max(1, limit.amount // self.replicas), burst=burst)
            except ValueError:  # exact only as the whole amount in a longer window
                assert isinstance(limit.window, int)  # noqa: S101  # only rates can be inexact
                burst = max(1, limit.capacity // self.replicas)
                share = replace(limit, window=limit.window * self.replicas, burst=burst)
            entry = self._shares[limit.key] = limit, share
        return replace(claim, limit=entry[1])

    def _charge_reported_usage(self, claim: Claim) -> None:
        """Charge this instance's share of the last reported usage, once per report."""
        limit, key = claim.limit, (claim.limit.key, claim.scope)
        report = self._reports.get(key)
        if report is None or key in self._seeded:
            return
        self._seeded.add(key)
        level, reset, reported_ms, _ = report
        elapsed_ms = int(self.monotonic() * 1000) - reported_ms
        if limit.is_budget:
            used = level if elapsed_ms < reset else 0
        else:
            shared = self._shares.get(limit.key, (limit, limit))[0]
            used = -(-max(0, level - elapsed_ms * shared.drain_per_ms) // shared.debt_per_unit)
        share = -(-used // self.replicas)
        if share:
            self.local.charge_unchecked(replace(claim, amount=share))


def has_enforced_closed_limit(claims: Iterable[Claim]) -> bool:
    """Return True if an enforced limit refuses calls that the shared store did not decide."""
    return any(
        claim.limit.on_store_error == "closed" and not claim.limit.shadow for claim in claims
    )


def _has_local_fallback(claim: Claim) -> bool:
    return claim.limit.on_store_error == "local"
