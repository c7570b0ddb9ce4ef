"""TCP proxy in front of a server. A test can hold bytes back, which are delivered later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from proxy.runtime.redis_settings import RedisLocation, parse_redis_url


class SlowWire:
    """TCP proxy in front of a local port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = asyncio.Event()
        self._open.set()
        self.at: RedisLocation

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def pause(self, seconds: float) -> None:
        self.hold()
        await asyncio.sleep(seconds)
        self.release()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(OSError):
            await asyncio.gather(self._carry(reader, context[1]), self._carry(context[0], writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._open.wait()
                writer.write(data)
        finally:
            writer.close()


@asynccontextmanager
async def slow_wire(port: int) -> AsyncIterator[SlowWire]:
    wire = SlowWire(port)
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    host, address = server.sockets[0].getsockname()
    wire.at = parse_redis_url(f"redis://{host}:{address}")
    try:
        yield wire
    finally:
        wire.release()
        server.close()
