"""What a store answers: admitted, or refused by which limit for how long; and where each stands."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.runtime.frozen import frozen
from proxy.types.limit import Claim, Limit, LimitRefusal

NEVER = -1
WARNED, FRESH = 1, 2
WAIT, FLAGS = 2, 3  # where they stand in a reading
READING = 4
"""Numbers in a claim's reading: the level (a rate's debt, else what is used); milliseconds to a
budget's reset, else -1; milliseconds to wait, 0 when it fits and ``NEVER`` when it never will;
``WARNED`` and ``FRESH`` as bits. Values are made of them when asked for: not every call asks."""


@frozen
class CounterState:
    """Where a counter stands after the call was counted, or as it is when the call was refused.

    ``used`` may exceed the capacity, as calls are settled to what they really used. ``reset_s``
    is the time until a rate is whole again or a budget's window ends, None for concurrency.
    ``would_refuse`` says that the claim does not fit. ``is_warned`` says that this call reached
    ``warn_at``: a budget says so once a window. ``is_fresh`` says that a budget's counter did not
    exist before: it is a new window, or the store has lost the old counter.
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
    """The answer to the claims of one call, in their order; ``READING`` numbers for each.

    ``store_away`` says that limits which are closed without their store refuse for that alone.
    """

    admitted: bool
    claims: Sequence[Claim]
    readings: Sequence[int]
    store_away: bool = False

    @property
    def refusal(self) -> LimitRefusal | None:
        """Who refuses, if the call is not admitted."""
        if self.admitted:
            return None
        against = [
            (wait, index)
            for index, wait in enumerate(self.readings[WAIT::READING])
            if wait and not self.claims[index].limit.shadow
        ]
        if not against:
            return None
        wait, index = max(against, key=lambda each: (each[0] == NEVER, each[0]))
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
        """Return where the counter of one claim stands."""
        at = index * READING
        return _standing(self.claims[index], self.readings[at : at + READING])

    def used(self) -> list[int]:
        """Return how much of the limit of each claim is used."""
        levels = self.readings[::READING]
        return [-(-levels[n] // claim.limit.debt_per_unit) for n, claim in enumerate(self.claims)]

    def decisions(self) -> list[tuple[Limit, bool]]:
        """Return the limit of each claim, and whether it refuses or, in shadow, would."""
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
