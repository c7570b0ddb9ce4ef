"""The calls under way, so that a stop can wait for them and then end those that remain."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

LAST_WORDS_S = 2.0


class Calls:
    """Knows every call that is being served, by the task that serves it, which serves no other
    meanwhile."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._none: asyncio.Event | None = None  # made once somebody waits for the last call

    def begin(self, task: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
        """Count a task, that of the connection, as serving a call until its ``end``. Return it. To
        ask the loop which one runs is a call of the system, for each call of a client."""
        if task is not None:
            self._tasks.add(task)
        return task

    def end(self, task: asyncio.Task[Any] | None) -> None:
        """Count a task no more."""
        if task is not None:
            self._tasks.discard(task)
        if self._none is not None and not self._tasks:
            self._none.set()

    def are_under_way(self) -> bool:
        """True while a call is being served."""
        return bool(self._tasks)

    async def drain(self, seconds: float) -> None:
        """Let calls end by themselves for so long, then cancel them and let them say so."""
        await self._until_none(seconds)
        for task in tuple(self._tasks):
            task.cancel()
        await self._until_none(LAST_WORDS_S)

    async def _until_none(self, seconds: float) -> None:
        if self._tasks:
            self._none = none = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await none.wait()
