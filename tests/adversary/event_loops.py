"""How long a call holds the proxy's event loop, with its client and upstream on another loop."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from math import inf
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson
from aiohttp import ClientSession

from tests.conftest import Proxy, Reply, policies_for, running_proxy
from tests.doubles import Json, ReceivedRequest, Script, ScriptedUpstream, Wire, event, head
from tests.test_pipeline import BEARER

LAG_S = 0.1
"""The longest that the loop may work without a break."""
BEAT_S = 0.001
TIMEOUT_S = 120
TRIES = 4
T = TypeVar("T")


class LoopLag:
    """Context that measures the longest uninterrupted work of the loop's thread.

    ``worst_s`` is CPU time of the thread between two iterations of the loop.
    """

    def __enter__(self) -> Self:
        self.worst_s = 0.0
        self._last = time.thread_time()
        self._beat()
        return self

    def _beat(self) -> None:
        now = time.thread_time()
        self.worst_s = max(self.worst_s, now - self._last)
        self._last = now
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()


class OtherLoop:
    """An event loop in another thread, for clients and upstreams."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def send(self, url: str, body: Any, headers: Mapping[str, str] = BEARER) -> Reply:
        """Send JSON or bytes on a new connection."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **headers}

        async def post() -> Reply:
            async with (
                ClientSession() as client,
                client.post(url, data=BytesIO(raw), headers=headers) as response,
            ):
                return Reply(response.status, response.headers, await response.read())

        return await asyncio.wait_for(self.run(post()), TIMEOUT_S)


@contextmanager
def running_loop() -> Iterator[OtherLoop]:
    other_loop = OtherLoop()
    other_loop.thread.start()
    try:
        yield other_loop
    finally:
        other_loop.loop.call_soon_threadsafe(other_loop.loop.stop)
        other_loop.thread.join()
        other_loop.loop.close()


@asynccontextmanager
async def upstream_on_other_loop(script: Script) -> AsyncIterator[tuple[OtherLoop, str]]:
    """Run an upstream on another loop. Yield the loop, also for clients, and the address."""

    async def start() -> asyncio.Server:
        upstream = ScriptedUpstream()
        upstream.answer_with(script)
        loop = asyncio.get_running_loop()
        return await loop.create_server(upstream.protocol, "127.0.0.1", 0)

    async def stop(server: asyncio.Server) -> None:
        server.close()

    with running_loop() as other_loop:
        server = await other_loop.run(start())
        try:
            yield other_loop, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            await other_loop.run(stop(server))


def whole_bytes(document: Any) -> list[bytes]:
    """Return the bytes of a whole JSON response."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return [head(200, "application/json", f"content-length: {len(data)}"), data]


def stream_bytes(*events: Any) -> list[bytes]:
    """Return the bytes of a stream of events, which are sent at once."""
    data = b"".join(map(event, (*events, b"[DONE]")))
    return [head(200, "text/event-stream", f"content-length: {len(data)}"), data]


@dataclass
class Measurement:
    """A call that was repeated while it held the loop too long. ``lag_s`` is its least lag."""

    lag_s: float = inf
    cpu_s: float = 0.0
    """CPU time of all threads in the last repetition."""
    statuses: set[int] = field(default_factory=set)
    reply: Reply = field(init=False)
    record: Any = None


@dataclass
class MeasuredProxy:
    """A proxy whose client and upstream run on another loop. The upstream sends ``response``."""

    response: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    proxy: Proxy = field(init=False)
    other_loop: OtherLoop = field(init=False)
    calls: int = 0

    async def script(self, request: ReceivedRequest, wire: Wire) -> None:
        self.requests.append(request.body)
        await wire.send(*self.response)

    async def send(self, path: str, body: Any, headers: Mapping[str, str] = BEARER) -> Reply:
        return await self.other_loop.send(self.proxy.url + path, body, headers)

    async def measure(
        self,
        path: str,
        body: Json,
        headers: Mapping[str, str] = BEARER,
        *,
        allowed_s: float = LAG_S / 2,
        counter: str = "max_tokens",
    ) -> Measurement:
        """Send a call until it does not hold the loop. The field ``counter`` makes bodies differ,
        so that no response is from the cache."""
        result = Measurement()
        for _ in range(TRIES):
            self.calls += 1
            sent_body = orjson.dumps({**body, counter: 15 + self.calls} if counter else body)
            started_at = time.process_time()
            with LoopLag() as lag:
                result.reply = await self.send(path, sent_body, headers)
                result.record = (await self.proxy.sink.wait())[-1]  # of the last target tried
            result.cpu_s = time.process_time() - started_at
            self.proxy.sink.forget()
            result.statuses.add(result.reply.status)
            result.lag_s = min(result.lag_s, lag.worst_s)
            if result.lag_s <= allowed_s:
                break
        return result


@asynccontextmanager
async def measured_proxy(
    folder: Path,
    policies: str,
    script: Callable[[MeasuredProxy], Script] = lambda measured: measured.script,
    **settings: Any,
) -> AsyncIterator[MeasuredProxy]:
    """Run a proxy with these policies and settings, and its upstream on another loop."""
    measured = MeasuredProxy()
    async with upstream_on_other_loop(script(measured)) as (measured.other_loop, url):
        text = policies_for(url) + policies
        async with running_proxy(folder / "policies", text, **settings) as measured.proxy:
            yield measured
