"""The one way of guards to their threads: in turns, caller by caller, whatever there is to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import TypeVar

from proxy.runtime.frozen import frozen
from proxy.runtime.turns import CallerTurn

T = TypeVar("T")


TURN_S = 0.02  # charged for a turn itself, however little is done in it


def unobserved(seconds: float) -> None:
    """Observe no wait."""


@frozen
class GuardThreads:
    """Where one caller's work holds up neither the event loop nor other callers. Without a
    ``pool`` it is done here and now. ``on_wait`` gets the seconds of each wait for a turn."""

    pool: Executor | None
    turn: CallerTurn
    on_wait: Callable[[float], None] = unobserved

    async def __call__(self, job: Callable[[], T]) -> T:
        """Return what a piece of work gives, which is done in a turn of its own."""
        if self.pool is None:
            return job()
        async with self.taken():
            return await self.within(job)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold a turn of the caller, which is charged for it and for the work within."""
        now = asyncio.get_running_loop().time
        asked = now()
        async with self.turn:
            self.on_wait(now() - asked)
            self.turn.charge(TURN_S)
            yield

    async def within(self, job: Callable[[], T]) -> T:
        """Return what a piece of work gives that is part of a turn which is taken already."""
        loop = asyncio.get_running_loop()
        result, seconds = await loop.run_in_executor(self.pool, _timed, job)
        self.turn.charge(seconds)
        return result


def _timed(job: Callable[[], T]) -> tuple[T, float]:
    """Return what a piece of work gives, and the time of a processor that it took."""
    began = time.thread_time()
    return job(), time.thread_time() - began
