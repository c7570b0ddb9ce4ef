"""Turns at threads that callers share, given out caller by caller: one who asks for thousands waits
for its own, and another who asks for one is next."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from proxy.runtime.frozen import frozen

MAX_CHARGED = 1024


class Turns:
    """So many turns at a time. Each is given to the waiting caller whose turns were charged least,
    of equals to the one who has waited longest, and not to the one whose turn has just ended where
    another waits; of the same caller they are given in the order in which it asked.

    A caller who comes back is charged at least as much as whoever was served last: it has saved
    nothing up while it was away.
    """

    def __init__(self, most: int) -> None:
        self._free = self._most = most
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}
        self._charged: dict[object, float] = {}
        self._level = 0.0  # what the caller who was served last was charged before

    def charge(self, caller: object, seconds: float) -> None:
        """Charge a caller for the work of a turn that it still has."""
        self._charged[caller] = self._charge_of(caller) + seconds
        if len(self._charged) > MAX_CHARGED:
            above = {one: charge for one, charge in self._charged.items() if charge > self._level}
            self._charged = above

    def _charge_of(self, caller: object) -> float:
        return max(self._charged.get(caller, 0.0), self._level)

    def of(self, caller: object) -> CallerTurn:
        """Return what a caller enters to have a turn, again and again."""
        return CallerTurn(self, caller)

    def take_free(self) -> bool:
        """Take a turn if one is free, which it is only while nobody waits. True if it was."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self, caller: object) -> None:
        """Wait for a turn."""
        if self.take_free():
            self._level = self._charge_of(caller)
            return
        given = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self.give_back(caller)
            raise

    def give_back(self, caller: object) -> None:
        """End a turn of ``caller``, which is somebody's next."""
        while self._waiting:
            following = min(
                self._waiting, key=lambda other: (self._charge_of(other), other == caller)
            )
            self._level = self._charge_of(following)
            queue = self._waiting.pop(following)
            given = queue.popleft()
            if queue:
                self._waiting[following] = queue  # behind all others who wait
            if not given.done():
                given.set_result(None)
                return
        self._free += 1
        if self._free == self._most:
            self._charged.clear()
            self._level = 0.0


class Places:
    """Counts the places that callers have. While all ``most`` are taken, a caller gets another one
    only below its equal share, so that nobody who takes many keeps others from one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[object] = Counter()

    def is_full(self, caller: object) -> bool:
        """Return True if a caller has to do without one more place."""
        own = self._taken[caller]
        callers = len(self._taken) + (not own)
        return self._taken.total() >= self._most and own >= max(1, self._most // callers)

    def take(self, caller: object) -> None:
        self._taken[caller] += 1

    def give_back(self, caller: object) -> None:
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


@frozen
class CallerTurn:
    """A turn of one caller, while the block runs."""

    turns: Turns
    caller: object

    async def __aenter__(self) -> CallerTurn:
        await self.turns.take(self.caller)
        return self

    async def __aexit__(self, *ended: object) -> None:
        self.turns.give_back(self.caller)

    def charge(self, seconds: float) -> None:
        self.turns.charge(self.caller, seconds)
