"""Time slices on the event loop: a call with data ready works for a few milliseconds, then
yields.

Awaiting data that is already available does not yield. Waiting for I/O does not count as work, so a
stream at a model's pace never pauses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

TURN_S = 0.005


class LoopTurns:
    """Pauses of all callers. Per loop iteration one pause of each caller ends.

    A hundred busy streams of one key then take a hundred iterations instead of one long iteration.
    """

    __slots__ = ("_is_due", "_resting")

    def __init__(self) -> None:
        self._resting: dict[object, deque[asyncio.Future[None]]] = {}
        self._is_due = False

    async def rest(self, caller: object) -> None:
        """Pause until other callers, and earlier pauses of this caller, have continued."""
        loop = asyncio.get_running_loop()
        rested = loop.create_future()
        self._resting.setdefault(caller, deque()).append(rested)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._go_on)
        await rested

    def _go_on(self) -> None:
        for caller, resting in [*self._resting.items()]:
            while resting:
                rested = resting.popleft()
                if not rested.done():  # it may have been cancelled
                    rested.set_result(None)
                    break
            if not resting:
                del self._resting[caller]
        self._is_due = bool(self._resting)
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._go_on)


class LoopTurn:
    """Time slice of one call. ``turns`` schedules its pauses by ``caller``."""

    __slots__ = ("_began", "_caller", "_now", "_turns", "_worked")

    def __init__(
        self, now: Callable[[], float], turns: LoopTurns | None = None, caller: object = None
    ) -> None:
        self._now = now
        self._turns = turns
        self._caller = caller
        self._began = self._worked = 0.0

    def begin(self) -> float:
        """Start or resume the measurement of work. Return the current time."""
        self._began = now = self._now()
        return now

    def is_over(self) -> bool:
        """Add the work since the last measurement. Return True if the slice is used up."""
        now = self._now()
        self._worked += now - self._began
        self._began = now
        return self._worked > TURN_S

    async def rest(self) -> None:
        """Yield to other calls and start a new slice."""
        if self._turns is None:
            await asyncio.sleep(0)
        else:
            await self._turns.rest(self._caller)
        self._worked = 0.0
        self._began = self._now()
