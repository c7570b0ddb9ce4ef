"""Runs an upstream and a client on a thread of their own, beside the proxy's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from tests.doubles import Script, ScriptedUpstream


class Loop:
    """An event loop of its own, for a client and an upstream whose work is not the proxy's."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    T = TypeVar("T")

    def run(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))


@contextmanager
def loop_of_others() -> Iterator[Loop]:
    other_loop = Loop()
    other_loop.thread.start()
    try:
        yield other_loop
    finally:
        other_loop.loop.call_soon_threadsafe(other_loop.loop.stop)
        other_loop.thread.join()
        other_loop.loop.close()


@asynccontextmanager
async def upstream_aside(script: Script) -> AsyncIterator[tuple[Loop, str]]:
    """Run an upstream on a loop of its own; give that loop, for clients too, and its address."""

    async def started() -> asyncio.Server:
        upstream = ScriptedUpstream()
        upstream.answer_with(script)
        loop = asyncio.get_running_loop()
        return await loop.create_server(upstream.protocol, "127.0.0.1", 0)

    async def stopped(server: asyncio.Server) -> None:
        server.close()

    with loop_of_others() as other_loop:
        server: Any = await other_loop.run(started())
        try:
            yield other_loop, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            await other_loop.run(stopped(server))
