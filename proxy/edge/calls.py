"""The calls under way, so that a stop can wait for them and then end those that remain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

LAST_WORDS_S = 2.0


class Calls:
    """Knows every call that is being served, by the task that serves it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count the current task as serving a call while the block runs."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a call is served by a task")
        self._tasks.add(task)
        self._none.clear()
        try:
            yield
        finally:
            self._tasks.discard(task)
            if not self._tasks:
                self._none.set()

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
