"""The end of a listener whose clients keep connections: nobody is cut off in a call.

From the signal on each answer says that its connection closes. For a grace new calls are still
taken, as who sends them may not have heard yet; then nobody is let in, and connections that have
been idle for the grace are closed. Calls under way go on until the time is over.
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


@frozen
class Drain:
    """How long the calls under way may go on, and for how long connections may stay idle."""

    limit_seconds: float
    grace_seconds: float

    async def run(self, server: HttpServer, calls: Calls, stop_listening: Stop) -> None:
        """Wait until no connection is left or the time is over, then end the calls that remain."""
        now = asyncio.get_running_loop().time
        begun, listening = now(), True
        server.draining = True
        while server.connections and now() < begun + self.limit_seconds:
            if now() >= begun + self.grace_seconds:
                if listening:
                    await stop_listening()
                    listening = False
                server.close_idle(now() - self.grace_seconds)
            await asyncio.sleep(LOOK_S)
        if listening:
            await stop_listening()
        await calls.drain(max(0.0, begun + self.limit_seconds - now()))
