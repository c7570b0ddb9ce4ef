"""A call's turn on the event loop: what is there already is worked on for some milliseconds, then
others have theirs.

Whoever awaits something that is there does not let others run. What a call waits for is no work of
its own: a stream that comes at a model's pace gives nothing up, and costs no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TURN_S = 0.005


class LoopTurn:
    """Told when work ``begin``s, it knows when so much of it is done that it ``is_over``."""

    __slots__ = ("_began", "_now", "_worked")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
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
        await asyncio.sleep(0)
        self._worked = 0.0
        self._began = self._now()
