"""A listener with a handler of the test, and raw connections to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from proxy.server import Handler
from proxy.server.listening import listen
from proxy.server.server import HttpServer
from proxy.settings import Address
from tests.doubles import PATIENCE_S

MAX_BUFFER_BYTES = 16 * 1024 * 1024
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@asynccontextmanager
async def http_server(handle: Handler, **options: Any) -> AsyncIterator[Connect]:
    """Run a listener. Yields a function that connects to it."""
    async with AsyncExitStack() as opened, asyncio.timeout(PATIENCE_S):
        server = HttpServer(handle, **options)
        address, _ = await listen(opened, server, Address("127.0.0.1", 0))
        yield lambda: asyncio.open_connection(address.host, address.port, limit=MAX_BUFFER_BYTES)
