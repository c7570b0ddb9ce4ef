"""Work that goes on beside the calls, and who ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

from proxy.runtime.turns import Places

STEPS_S = 0.001
MAX_SIDE_TASKS = 1024


@asynccontextmanager
async def run_in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have ``work`` go on until the block is left, which cancels it. When it fails, the block is
    cancelled and raises an ``ExceptionGroup`` of why."""
    group = asyncio.TaskGroup()
    await group.__aenter__()
    task = group.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await group.__aexit__(None, None, None)


async def between_calls(
    steps: Iterator[None],
    is_busy: Callable[[], bool],
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> None:
    """Take short steps of work on the loop. After every millisecond of it others have their turn:
    for as long as it took while there are calls, and for one round of the loop while there are
    none."""
    began = now()
    for _ in steps:
        if (took := now() - began) >= STEPS_S:
            await sleep(took if is_busy() else 0.0)
            began = now()


async def ended(task: asyncio.Task[None]) -> None:
    """End a task, and wait until it has ended, whoever wants to leave sooner. Raise what it broke
    with."""
    left: asyncio.CancelledError | None = None
    if not task.done():
        task.cancel()
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            left = error
    bug = None if task.cancelled() else task.exception()
    if bug is not None:
        raise bug from None
    if left is not None:
        raise left


class SideTasks:
    """Owns tasks of calls that go on beside their responses. Leaving cancels those that remain."""

    def __init__(self, most: int = MAX_SIDE_TASKS) -> None:
        self._places = Places(most)
        self._group = asyncio.TaskGroup()
        self._tasks: dict[asyncio.Task[None], None] = {}

    def is_full(self, caller: object) -> bool:
        """Return True if a caller has as many tasks as it may have."""
        return self._places.is_full(caller)

    def start(self, work: Coroutine[Any, Any, None], caller: object) -> asyncio.Task[None]:
        """Start work of a caller, which must not raise: that would end all that the owner runs."""
        task = self._group.create_task(work)
        self._places.take(caller)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(lambda _: self._places.give_back(caller))
        return task

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in [*self._tasks]:
            task.cancel()
        await self._group.__aexit__(None, None, None)
