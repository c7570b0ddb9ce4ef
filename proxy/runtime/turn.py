"""A call's turn on the event loop: what is there already is worked on for some milliseconds, then
others have theirs.

Whoever awaits something that is there does not let others run. What a call waits for is no work of
its own: a stream that comes at a model's pace gives nothing up, and costs no more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

TURN_S = 0.005


class LoopTurns:
    """The rests of all callers' work. Of what rests of one caller a single piece goes on in each
    round of the loop: a hundred streams of one key take a hundred rounds, not one that is a
    hundred times as long."""

    __slots__ = ("_is_due", "_resting")

    def __init__(self) -> None:
        self._resting: dict[object, deque[asyncio.Future[None]]] = {}
        self._is_due = False

    async def rest(self, caller: object) -> None:
        """Let others have their turn, and what rests of the same caller already."""
        loop = asyncio.get_running_loop()
        rested = loop.create_future()
        self._resting.setdefault(caller, deque()).append(rested)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._go_on)
        await rested

    def _go_on(self) -> None:
        """Let one piece of each caller's work go on."""
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
    """Told when work ``begin``s, it knows when so much of it is done that it ``is_over``. It rests
    among ``turns`` as work of ``caller``, or by itself where there are none."""

    __slots__ = ("_began", "_caller", "_now", "_turns", "_worked")

    def __init__(
        self, now: Callable[[], float], turns: LoopTurns | None = None, caller: object = None
    ) -> None:
        self._now = now
        self._turns = turns
        self._caller = caller
        self._began = self._worked = 0.0

    def begin(self) -> float:
        """Note that work begins, or goes on after a wait. Return the moment."""
        self._began = now = self._now()
        return now

    def is_over(self) -> bool:
        """Count the work since it began, or was counted. True if it is time to ``rest``."""
        now = self._now()
        self._worked += now - self._began
        self._began = now
        return self._worked > TURN_S

    async def rest(self) -> None:
        """Let others have their turn, and take the next one."""
        if self._turns is None:
            await asyncio.sleep(0)
        else:
            await self._turns.rest(self._caller)
        self._worked = 0.0
        self._began = self._now()
