"""A second event loop for upstreams and clients, and the lag of the proxy's loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from io import BytesIO
from typing import Any, Self, TypeVar

from aiohttp import ClientSession

from tests.conftest import Reply
from tests.doubles import Script, ScriptedUpstream
from tests.test_pipeline import BEARER

LAG_S = 0.1
"""The longest allowed work of the loop without a break."""
BEAT_S = 0.001


class Lag:
    """Context that measures the longest uninterrupted work of the loop's thread.

    ``worst`` is in seconds of the thread's processor time, between two rounds of the loop.
    """

    def __enter__(self) -> Self:
        self.worst = 0.0
        self._last = time.thread_time()
        self._beat()
        return self

    def _beat(self) -> None:
        now = time.thread_time()
        self.worst = max(self.worst, now - self._last)
        self._last = now
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()


class Loop:
    """A separate event loop for clients and upstreams."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    T = TypeVar("T")

    def run(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def send(self, url: str, body: Any, headers: Mapping[str, str] = BEARER) -> Reply:
        """Send JSON or bytes on a new connection."""
        data: Any = {"data": BytesIO(body)} if isinstance(body, bytes) else {"json": body}
        data["headers"] = {"content-type": "application/json", **headers}

        async def post() -> Reply:
            async with ClientSession() as client, client.post(url, **data) as response:
                return Reply(response.status, response.headers, await response.read())

        return await asyncio.wait_for(self.run(post()), 120)


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
async def upstream_on_own_loop(script: Script) -> AsyncIterator[tuple[Loop, str]]:
    """Run an upstream on a separate loop. Yield that loop, also for clients, and the address."""

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
