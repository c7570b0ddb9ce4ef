"""What takes long with a large body is done on a thread of its own, so that no other call waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

LARGE_BYTES = 64 * 1024  # what is read within some ten milliseconds, whatever it holds

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Offload:
    """Runs work on small bodies at once, and work on large ones on ``executor``, whose owner
    bounds its threads; None for the event loop's own."""

    executor: Executor | None = None

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Return the result of work on a body of ``size`` bytes."""
        if size <= LARGE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)
