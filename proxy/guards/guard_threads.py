"""Threads of guards, in which callers take turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from proxy.runtime.fair_queue import FairQuota, FairSemaphore, FairSlot
from proxy.runtime.frozen import frozen
from proxy.types.guard import Busy

T = TypeVar("T")

TURN_CHARGE_S = 0.02  # charged for each turn, in addition to the CPU that it uses
MODEL_THREADS = 2  # threads that run one model; each uses one core
MAX_MODEL_CALLS = 32  # running and waiting calls of one caller; further calls are rejected


def ignore_wait_time(seconds: float) -> None:
    """Discard the wait: default for ``on_wait``."""


@frozen
class GuardThreads:
    """Runs the jobs of one caller in threads, without delaying the loop or other callers.

    Without a ``pool``, jobs run at once. ``on_wait`` gets the seconds of each wait.
    """

    pool: Executor | None
    slot: FairSlot
    on_wait: Callable[[float], None] = ignore_wait_time

    async def __call__(self, job: Callable[[], T]) -> T:
        """Run a job in its own turn and return its result."""
        if self.pool is None:
            return job()
        async with self.hold_slot():
            return await self.run_in_thread(job)

    @asynccontextmanager
    async def hold_slot(self) -> AsyncIterator[None]:
        """Async context manager that holds a slot for one turn, and charges the caller for it."""
        now = asyncio.get_running_loop().time
        started_at = now()
        async with self.slot:
            self.on_wait(now() - started_at)
            self.slot.charge(TURN_CHARGE_S)
            yield

    async def run_in_thread(self, job: Callable[[], T]) -> T:
        """Run a job in a thread, within ``hold_slot``, and charge the caller its CPU seconds."""

        def timed() -> tuple[T, float]:
            started_at = time.thread_time()
            return job(), time.thread_time() - started_at

        result, seconds = await asyncio.get_running_loop().run_in_executor(self.pool, timed)
        self.slot.charge(seconds)
        return result


class ModelThreadPool:
    """Threads for one model of the operator. Other guards and models do not share them."""

    __slots__ = ("_executor", "_places", "_slots")

    def __init__(self, threads: int = MODEL_THREADS) -> None:
        self._executor = ThreadPoolExecutor(threads, "model")
        self._slots = FairSemaphore(threads)
        self._places = FairQuota(MAX_MODEL_CALLS)

    @contextmanager
    def reserve_threads(self, caller: object) -> Iterator[GuardThreads]:
        """Context manager that yields the threads for one call.

        Raises ``Busy`` if too many calls of the caller are running or waiting.
        """
        if self._places.is_full(caller):
            raise Busy
        self._places.take(caller)
        try:
            yield GuardThreads(self._executor, self._slots.make_slot(caller))
        finally:
            self._places.release(caller)
