"""The one way of guards to their threads: in turns, caller by caller, whatever there is to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from proxy.frozen import frozen
from proxy.turns import CallerTurn

T = TypeVar("T")


@frozen
class Aside:
    """Where one caller's work holds up neither the event loop nor other callers. Without a
    ``pool`` it is done here and now."""

    pool: Executor | None
    turn: CallerTurn

    async def __call__(self, job: Callable[[], T]) -> T:
        """Return what a piece of work gives, which is done in a turn of its own."""
        if self.pool is None:
            return job()
        async with self.turn:
            return await self.within(job)

    async def within(self, job: Callable[[], T]) -> T:
        """Return what a piece of work gives that is part of a turn which is taken already."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, job)
