"""A stop seen from its clients: what is under way ends whole, nobody is cut off as it asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from proxy.server import Calls
from tests.conftest import KEY, Proxy, running_proxy, world
from tests.doubles import ScriptedUpstream, answer, legacy, legacy_events, stream
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
HEAD = f"Host: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
LONG_S = 30.0


def request_bytes(*, streamed: bool = False) -> bytes:
    body = json.dumps(ROUTE.body(streamed=streamed))
    line = f"POST {ROUTE.path} HTTP/1.1\r\n"
    return f"{line}{HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@asynccontextmanager
async def stoppable(
    folder: Path, upstream: ScriptedUpstream, grace: float, **options: Any
) -> AsyncIterator[tuple[Proxy, asyncio.Event, asyncio.Task[None]]]:
    """A proxy, what has it stop, and the task that ends once it has stopped."""
    up: asyncio.Future[Proxy] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()

    async def serve() -> None:
        settings = {"drain_seconds": LONG_S, "drain_grace_seconds": grace, **options}
        async with running_proxy(folder, world(upstream.url), **settings) as proxy:
            up.set_result(proxy)
            await stop.wait()

    async with asyncio.TaskGroup() as group, asyncio.timeout(LONG_S / 2):
        serving = group.create_task(serve())
        yield await up, stop, serving
        stop.set()
        await serving


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[bytes, bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        return head, await self.reader.readexactly(length)


async def connected(proxy: Proxy) -> Client:
    return Client(*await proxy.connect())


async def test_kept_connection_closes_in_grace(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stoppable(tmp_path / "p", upstream, grace=1.0) as (proxy, stop, serving):
        clients = [await connected(proxy) for _ in range(4)]
        for client in clients:
            client.writer.write(request_bytes())
            head, _ = await client.answer()
            assert b"connection: close" not in head.lower()
        stop.set()
        await asyncio.sleep(0.1)

        for client in clients:
            client.writer.write(request_bytes())
            head, body = await client.answer()
            assert b"connection: close" in head.lower()
            assert json.loads(body)["choices"]
            assert await client.reader.read() == b""
            client.writer.close()
        await serving


async def test_calls_end_whole_during_stop(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    gate = asyncio.Event()
    upstream.then(answer(legacy()), stream(legacy_events(" Par", "is."), gate=gate))
    async with stoppable(tmp_path / "p", upstream, grace=0.0) as (proxy, stop, serving):
        client = await connected(proxy)
        client.writer.write(request_bytes())
        await client.answer()
        client.writer.write(request_bytes(streamed=True))
        await client.reader.readuntil(b" Par")
        stop.set()
        await asyncio.sleep(0.2)
        gate.set()

        assert (await client.reader.read()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        client.writer.close()
        await serving
        [_, record] = await proxy.sink.wait(2)
        assert record.outcome == "success"


async def test_stop_closes_idle_connections(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stoppable(tmp_path / "p", upstream, grace=0.1) as (proxy, stop, serving):
        stored, fresh, half = [await connected(proxy) for _ in range(3)]
        stored.writer.write(request_bytes())
        await stored.answer()
        half.writer.write(request_bytes()[:40])
        stop.set()

        for client in (stored, fresh, half):
            assert await client.reader.read() == b""
            client.writer.close()
        await serving


async def test_busy_client_does_not_delay_stop(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stoppable(tmp_path / "p", upstream, grace=0.1) as (proxy, stop, serving):
        client, served = await connected(proxy), 0
        head = b""
        while b"connection: close" not in head.lower():
            client.writer.write(request_bytes())
            head, _ = await client.answer()
            assert head.startswith(b"HTTP/1.1 200")
            served += 1
            if served == 3:
                stop.set()
            await asyncio.sleep(0)
        client.writer.close()
        await serving


async def test_a_call_that_does_not_end_is_cancelled_and_cleans_up() -> None:
    calls, values = Calls(), []

    async def call() -> None:
        task = calls.begin(asyncio.current_task())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            values.append("last words")
            raise
        finally:
            calls.end(task)

    async with asyncio.TaskGroup() as group:
        served = group.create_task(call())
        await asyncio.sleep(0)
        await calls.drain(0)

    assert served.cancelled()
    assert values == ["last words"]
