"""Graceful shutdown of a listener with keep-alive connections.

After the signal, responses carry ``Connection: close``. During a grace period new calls are still
accepted. Then the listener closes, idle connections are closed, and calls in progress continue
until the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from proxy.runtime.frozen import frozen
from proxy.server.server import HttpServer

LAST_WORDS_S = 2.0
LOOK_S = 0.05
Stop = Callable[[], Awaitable[None]]


class Calls:
    """Calls in progress, by the task that serves them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._none: asyncio.Event | None = None  # made once somebody waits for the last call

    def begin(self, task: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
        """Register the task of a connection as serving a call, and return it.

        The caller passes the task because asking the loop for it would be a system call per
        request.
        """
        if task is not None:
            self._tasks.add(task)
        return task

    def end(self, task: asyncio.Task[Any] | None) -> None:
        """Unregister a task."""
        if task is not None:
            self._tasks.discard(task)
        if self._none is not None and not self._tasks:
            self._none.set()

    def are_under_way(self) -> bool:
        """True while a call is in progress."""
        return bool(self._tasks)

    async def drain(self, seconds: float) -> None:
        """Wait until all calls end, for at most ``seconds``. Then cancel them."""
        await self._until_none(seconds)
        for task in tuple(self._tasks):
            task.cancel()
        await self._until_none(LAST_WORDS_S)

    async def _until_none(self, seconds: float) -> None:
        if self._tasks:
            self._none = no_calls = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await no_calls.wait()


@frozen
class Drain:
    """Shutdown limits: time for calls in progress, and for idle connections."""

    limit_seconds: float
    grace_seconds: float

    async def run(self, server: HttpServer, calls: Calls, stop_listening: Stop) -> None:
        """Wait until all connections are closed or the deadline passes, then cancel the
        remaining calls."""
        now = asyncio.get_running_loop().time
        started_at, listening = now(), True
        server.draining = True
        while server.connections and now() < started_at + self.limit_seconds:
            if now() >= started_at + self.grace_seconds:
                if listening:
                    await stop_listening()
                    listening = False
                server.close_idle(now() - self.grace_seconds)
            await asyncio.sleep(LOOK_S)
        if listening:
            await stop_listening()
        await calls.drain(max(0.0, started_at + self.limit_seconds - now()))
