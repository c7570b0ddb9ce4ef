"""Notices that a shared store has lost a budget: its counter begins anew in a window that this
instance has seen begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.types.limit import Claim
from proxy.types.outcome import FRESH, READING, Outcome

MOST_KNOWN = 100_000
CLOSE_MS = 1000  # so near to its end a window may be over for the server's clock


@dataclass(slots=True)
class LostCounters:
    """``monotonic`` returns seconds. Beyond ``MOST_KNOWN`` budgets those known longest are
    forgotten, and their loss is not noticed."""

    monotonic: Callable[[], float]
    _ends: dict[tuple[str, str], int] = field(default_factory=dict)

    def find(self, decided: Outcome) -> list[Claim]:
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
