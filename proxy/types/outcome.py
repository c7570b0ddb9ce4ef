"""Decisions of limit stores, and the state of counters."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.runtime.frozen import frozen
from proxy.types.limit import Claim, Limit, LimitRefusal

NEVER = -1
WARNED, FRESH = 1, 2
WAIT, FLAGS = 2, 3  # where they stand in a reading
READING = 4
"""Numbers in the reading of a claim: level (a rate's debt, otherwise the used amount);
milliseconds until a budget resets, or -1; milliseconds to wait, 0 if the claim fits and
``NEVER`` if it never will; the bits ``WARNED`` and ``FRESH``."""


@frozen
class CounterState:
    """State of a counter after a call was counted or refused.

    ``used`` may exceed the capacity, because calls settle their actual usage. ``reset_s`` is the
    time until a rate has its full burst or a budget's window ends, None for leases.
    ``would_refuse`` is True if the claim does not fit. ``is_warned`` is True if this call reached
    ``warn_at``, for a budget once per window. ``is_fresh`` is True if a budget's counter is new: a
    new window, or lost by the store.
    """

    limit: Limit
    scope: str
    used: int
    reset_s: float | None
    would_refuse: bool
    is_warned: bool
    is_fresh: bool

    @property
    def remaining(self) -> int:
        return max(0, self.limit.capacity - self.used)


@frozen
class LimitDecision:
    """Decision on the claims of one call, with ``READING`` numbers for each claim.

    ``store_away`` is True if the store is unavailable and limits that fail closed refuse the call.
    """

    admitted: bool
    claims: Sequence[Claim]
    readings: Sequence[int]
    store_away: bool = False

    @property
    def refusal(self) -> LimitRefusal | None:
        """Limit that refuses the call for the longest time, None if the call is admitted."""
        if self.admitted:
            return None
        against = [
            (wait, index)
            for index, wait in enumerate(self.readings[WAIT::READING])
            if wait and not self.claims[index].limit.shadow
        ]
        if not against:
            return None
        wait, index = max(against, key=lambda item: (item[0] == NEVER, item[0]))
        standing, wait_s = self.standing(index), None if wait == NEVER else wait / 1000
        return LimitRefusal(
            limit=standing.limit,
            scope=standing.scope,
            retry_after_s=wait_s,
            remaining=standing.remaining,
        )

    @property
    def standings(self) -> tuple[CounterState, ...]:
        return tuple([self.standing(index) for index in range(len(self.claims))])

    def standing(self, index: int) -> CounterState:
        """Return the state of the counter of one claim."""
        offset = index * READING
        return _standing(self.claims[index], self.readings[offset : offset + READING])

    def used(self) -> list[int]:
        """Return the used amount of the limit of each claim."""
        levels = self.readings[::READING]
        return [-(-levels[n] // claim.limit.debt_per_unit) for n, claim in enumerate(self.claims)]

    def decisions(self) -> list[tuple[Limit, bool]]:
        """Return the limit of each claim, and True if it refuses, or would refuse in shadow
        mode."""
        waits = self.readings[WAIT::READING]
        return [(claim.limit, waits[index] != 0) for index, claim in enumerate(self.claims)]


def _standing(claim: Claim, reading: Sequence[int]) -> CounterState:
    level, reset, wait, flags = reading
    limit, used = claim.limit, level
    if isinstance(limit.window, int):
        used, reset = -(-level // limit.debt_per_unit), -(-level // limit.drain_per_ms)
    return CounterState(
        limit=limit,
        scope=claim.scope,
        used=used,
        reset_s=reset / 1000 if reset >= 0 else None,
        would_refuse=wait != 0,
        is_warned=bool(flags & WARNED),
        is_fresh=bool(flags & FRESH),
    )


def outcome(claims: Sequence[Claim], readings: Sequence[int]) -> LimitDecision:
    """Admit unless a limit that is in force has the call wait."""
    waits = readings[WAIT::READING]
    refused = any(waits) and any(
        wait and not claim.limit.shadow for claim, wait in zip(claims, waits, strict=True)
    )
    return LimitDecision(not refused, claims, readings)
