"""Fair queue for threads that callers share: a caller with many tasks delays only its own."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from proxy.runtime.frozen import frozen

MAX_CHARGED = 1024


class Turns:
    """Semaphore that favors callers that have used the least time.

    Among equals the longest waiting caller is first. The caller that just finished is last.
    Requests of one caller are served in order. A returning caller starts at the level of the last
    served one, so idle time earns no credit.
    """

    def __init__(self, max_turns: int) -> None:
        self._free = self._most = max_turns
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}
        self._charged: dict[object, float] = {}
        self._level = 0.0  # what the caller who was served last was charged before

    def charge(self, caller: object, seconds: float) -> None:
        """Charge a caller for the work of a turn that it still holds."""
        self._charged[caller] = self._charge_of(caller) + seconds
        if len(self._charged) > MAX_CHARGED:
            pending_charges = {
                caller_id: charge
                for caller_id, charge in self._charged.items()
                if charge > self._level
            }
            self._charged = pending_charges

    def _charge_of(self, caller: object) -> float:
        return max(self._charged.get(caller, 0.0), self._level)

    def of(self, caller: object) -> CallerTurn:
        """Return a context manager that holds a turn of the caller. Reusable."""
        return CallerTurn(self, caller)

    def take_free(self) -> bool:
        """Take a turn if one is free and no caller waits. Return True if it was taken."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self, caller: object) -> None:
        """Wait for a turn."""
        if self.take_free():
            self._level = self._charge_of(caller)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(caller)
            raise

    def give_back(self, caller: object) -> None:
        """End a turn of ``caller`` and start the next one."""
        while self._waiting:
            following = min(
                self._waiting, key=lambda waiting: (self._charge_of(waiting), waiting == caller)
            )
            self._level = self._charge_of(following)
            queue = self._waiting.pop(following)
            turn = queue.popleft()
            if queue:
                self._waiting[following] = queue  # behind all others who wait
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
        if self._free == self._most:
            self._charged.clear()
            self._level = 0.0


class Places:
    """Counts places per caller. When all are taken, only callers below their equal share get
    another one."""

    def __init__(self, max_places: int) -> None:
        self._most = max_places
        self._taken: Counter[object] = Counter()

    def is_full(self, caller: object) -> bool:
        """Return True if the caller cannot get another place."""
        caller_places = self._taken[caller]
        callers = len(self._taken) + (not caller_places)
        return self._taken.total() >= self._most and caller_places >= max(1, self._most // callers)

    def take(self, caller: object) -> None:
        self._taken[caller] += 1

    def give_back(self, caller: object) -> None:
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


@frozen
class CallerTurn:
    """Context manager that holds a turn of one caller."""

    turns: Turns
    caller: object

    async def __aenter__(self) -> CallerTurn:
        await self.turns.take(self.caller)
        return self

    async def __aexit__(self, *ended: object) -> None:
        self.turns.give_back(self.caller)

    def charge(self, seconds: float) -> None:
        self.turns.charge(self.caller, seconds)
