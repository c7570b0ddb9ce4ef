"""Stores of every kind for tests: what they tell, and a real server of Redis' own."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest


class Told:
    """Remembers what stores tell."""

    def __init__(self) -> None:
        self.entries = self.size = self.failures = 0
        self.gone: Counter[str] = Counter()

    def held(self, store: str, entries: int, size: int) -> None:
        self.entries, self.size = entries, size

    def evicted(self, why: str, count: int) -> None:
        self.gone[why] += count

    def failed(self, store: str) -> None:
        self.failures += 1


class Clock:
    """Stands until a test moves it."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again, for half a minute at most, at what another process does in its time."""
    for _ in range(3000):
        if await holds():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


@dataclass
class RedisServer:
    """A server on a free port of this machine; ``start`` and ``stop`` it as often as you like."""

    folder: Path
    port: int = 0
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *("redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
            *("--appendonly", "no", "--dir", str(self.folder)),
            stdout=asyncio.subprocess.DEVNULL,
        )
        await until(self._answers)

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def redis_server(folder: Path) -> AsyncIterator[RedisServer]:
    if shutil.which("redis-server") is None:
        assert not os.environ.get("CI"), "redis-server is missing: make debian"
        pytest.skip("redis-server is not installed")
    server = RedisServer(folder, free_port())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
