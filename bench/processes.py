"""The processes of a measurement: started on free ports, waited for, stopped."""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@asynccontextmanager
async def started(port: int, *arguments: str) -> AsyncIterator[Process]:
    """Start a Python module and wait until it listens; stop it in the end."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *arguments, stdout=DEVNULL)
    try:
        async with asyncio.timeout(20):
            while not await listens(port):
                await asyncio.sleep(0.05)
        yield process
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def serving(module: str) -> AsyncIterator[int]:
    """Start a module that takes the port to listen on, and return that."""
    port = free_port()
    async with started(port, module, str(port)):
        yield port


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
