"""Runs CPU work on large bodies in threads, with a fair share for each caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from proxy.runtime.fair_queue import FairSemaphore
from proxy.runtime.frozen import frozen

LARGE_BYTES = 64 * 1024  # what is read within some ten milliseconds, whatever it holds

T = TypeVar("T")


@frozen
class Offload:
    """Runs work on large bodies on ``executor``, by default the loop's, and on others inline."""

    executor: Executor | None = None
    turns: FairSemaphore | None = None

    async def run(self, size: int, work: Callable[[], T], caller: object) -> T:
        """Return the result of work on a body of ``size`` bytes."""
        if size <= LARGE_BYTES:
            return work()
        if self.turns is None:
            return await self._in_thread(work)
        async with self.turns.of(caller):
            return await self._in_thread(work)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)
