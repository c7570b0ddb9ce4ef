"""Turns at threads that callers share, given out caller by caller: one who asks for thousands waits
for its own, and another who asks for one is next."""

from __future__ import annotations

import asyncio
from collections import deque

from proxy.frozen import frozen


class Turns:
    """So many turns at a time. Each is given to the caller who has waited longest for one of its
    own, but for the one whose turn has just ended where another waits; of the same caller they are
    given in the order in which it asked."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}

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
            following = next((other for other in self._waiting if other != caller), caller)
            queue = self._waiting.pop(following)
            given = queue.popleft()
            if queue:
                self._waiting[following] = queue  # behind all others who wait
            if not given.done():
                given.set_result(None)
                return
        self._free += 1


@frozen
class CallerTurn:
    """A turn of one caller, while the block runs."""

    turns: Turns
    caller: object

    async def __aenter__(self) -> None:
        await self.turns.take(self.caller)

    async def __aexit__(self, *ended: object) -> None:
        self.turns.give_back(self.caller)
