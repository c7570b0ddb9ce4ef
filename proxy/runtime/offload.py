"""What takes long with a large body is done on a thread of its own, in turns by caller, so that no
other call waits for more than one of a caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from proxy.runtime.frozen import frozen
from proxy.runtime.turns import Turns

LARGE_BYTES = 64 * 1024  # what is read within some ten milliseconds, whatever it holds

T = TypeVar("T")


@frozen
class Offload:
    """Runs work on small bodies at once, and work on large ones on ``executor``, whose owner
    bounds its threads; None for the event loop's own. ``turns`` are those of its callers."""

    executor: Executor | None = None
    turns: Turns | None = None

    async def run(self, size: int, work: Callable[[], T], caller: object) -> T:
        """Return the result of a caller's work on a body of ``size`` bytes."""
        if size <= LARGE_BYTES:
            return work()
        if self.turns is None:
            return await self._aside(work)
        async with self.turns.of(caller):
            return await self._aside(work)

    async def _aside(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)
