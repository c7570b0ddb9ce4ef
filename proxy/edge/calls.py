"""The calls under way, so that a stop can wait for them and then end those that remain."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

LAST_WORDS_S = 2.0


class ServedCall:
    """The block in which one call is served."""

    __slots__ = ("_none", "_task", "_tasks")

    def __init__(self, tasks: set[asyncio.Task[Any]], none: asyncio.Event) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call is served by a task")
        self._task, self._tasks, self._none = task, tasks, none

    def __enter__(self) -> None:
        self._tasks.add(self._task)
        self._none.clear()

    def __exit__(self, *ended: object) -> None:
        self._tasks.discard(self._task)
        if not self._tasks:
            self._none.set()


class Calls:
    """Knows every call that is being served, by the task that serves it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._none = asyncio.Event()
        self._none.set()

    def under_way(self) -> ServedCall:
        """Count the current task as serving a call while the block runs."""
        return ServedCall(self._tasks, self._none)

    async def drain(self, seconds: float) -> None:
        """Let calls end by themselves for so long, then cancel them and let them say so."""
        await self._until_none(seconds)
        for task in tuple(self._tasks):
            task.cancel()
        await self._until_none(LAST_WORDS_S)

    async def _until_none(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._none.wait()
