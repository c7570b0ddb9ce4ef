"""Background tasks with an owner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

from proxy.runtime.fair_queue import FairQuota

MAX_STEP_S = 0.001
MAX_SIDE_TASKS = 1024


@asynccontextmanager
async def background_task(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run ``work`` until the block is left, which cancels it.

    A failure of ``work`` cancels the block and raises an ``ExceptionGroup``.
    """
    group = asyncio.TaskGroup()
    await group.__aenter__()
    task = group.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await group.__aexit__(None, None, None)


async def run_steps_with_pauses(
    steps: Iterator[None],
    is_busy: Callable[[], bool],
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> None:
    """Run short steps on the event loop and yield after each millisecond of work.

    The pause is as long as the work while calls are in progress, otherwise one loop iteration.
    """
    started_at = now()
    for _ in steps:
        if (took := now() - started_at) >= MAX_STEP_S:
            await sleep(took if is_busy() else 0.0)
            started_at = now()


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end, even if the caller is canceled meanwhile.

    Then raise the exception of the task, or else the caller's ``CancelledError``.
    """
    cancellation: asyncio.CancelledError | None = None
    if not task.done():
        task.cancel()
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancellation = error
    bug = None if task.cancelled() else task.exception()
    if bug is not None:
        raise bug from None
    if cancellation is not None:
        raise cancellation


class SideTasks:
    """Owns background tasks of calls. Leaving the context cancels those that remain."""

    def __init__(self, max_tasks: int = MAX_SIDE_TASKS) -> None:
        self._places = FairQuota(max_tasks)
        self._group = asyncio.TaskGroup()
        self._tasks: dict[asyncio.Task[None], None] = {}

    def is_full(self, caller: object) -> bool:
        """Return True if the caller has reached its share of tasks."""
        return self._places.is_full(caller)

    def start(self, work: Coroutine[Any, Any, None], caller: object) -> asyncio.Task[None]:
        """Start a task for a caller. If ``work`` raises, the tasks of all callers are canceled."""
        task = self._group.create_task(work)
        self._places.take(caller)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(lambda _: self._places.release(caller))
        return task

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in [*self._tasks]:
            task.cancel()
        await self._group.__aexit__(None, None, None)
