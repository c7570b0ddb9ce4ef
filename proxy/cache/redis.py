"""Answers in Redis or Valkey, shared by many machines.

How much it holds and what goes first is the server's matter (``maxmemory``, ``allkeys-lru``). A
server that fails or is slow costs a call ``timeout_s`` at most, and is then left alone for a while.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Self

from redis.asyncio import BlockingConnectionPool
from redis.asyncio import Redis as Client
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from proxy.cache.store import Tell
from proxy.types import Secret

PREFIX = b"headrace:cache:"
CONNECTIONS = 16
WAITING_BYTES = 16 * 1024 * 1024
BATCH = 64
# The last three are what reading a reply that is none may end in.
FAULTS = (RedisError, OSError, TimeoutError, EOFError, ValueError, RuntimeError)


class Redis:
    """A store for many processes. ``url`` may hold a password, ``now`` gives monotonic seconds.
    After a fault it is not asked for ``rest_s``. The server need not be there on entering."""

    def __init__(
        self,
        url: Secret,
        now: Callable[[], float],
        tell: Tell,
        *,
        timeout_s: float = 0.25,
        rest_s: float = 1.0,
        name: str = "redis",
    ) -> None:
        self._now = now
        self._tell = tell
        self._timeout_s = timeout_s
        self._rest_s = rest_s
        self._name = name
        self._awake_at = 0.0
        self._waiting: dict[bytes, tuple[bytes, int]] = {}  # the value, and its milliseconds
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._group = asyncio.TaskGroup()
        self._pool: BlockingConnectionPool = BlockingConnectionPool.from_url(
            url.reveal(),
            max_connections=CONNECTIONS,
            timeout=timeout_s,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )

    async def get(self, key: bytes) -> bytes | None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            return waiting[0]
        if self._now() < self._awake_at:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                value = await self._client.get(PREFIX + key.hex().encode())
        except FAULTS:
            self._rest()
            return None
        return value if isinstance(value, bytes) else None

    def _rest(self) -> None:
        self._awake_at = self._now() + self._rest_s
        self._tell.failed(self._name)

    def put(self, key: bytes, value: bytes, ttl: float) -> None:
        if self._now() < self._awake_at or self._waiting_bytes + len(value) > WAITING_BYTES:
            self._tell.evicted("dropped", 1)
            return
        self._forget(key)
        self._waiting[key] = (value, max(1, round(ttl * 1000)))
        self._waiting_bytes += len(value)
        self._news.set()
        self._idle.clear()

    def _forget(self, key: bytes) -> None:
        entry = self._waiting.pop(key, None)
        if entry is not None:
            self._waiting_bytes -= len(entry[0])

    async def _write(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._write_some()
            self._idle.set()

    async def written(self) -> None:
        """Wait until nothing waits to be written."""
        await self._idle.wait()

    async def _write_some(self) -> None:
        batch = list(itertools.islice(self._waiting.items(), BATCH))
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.pipeline(transaction=False) as together,
            ):
                for key, (value, milliseconds) in batch:
                    _ = together.set(PREFIX + key.hex().encode(), value, px=milliseconds)
                await together.execute()
        except FAULTS:
            self._rest()
            self._tell.evicted("dropped", len(batch))
        for key, entry in batch:
            if self._waiting.get(key) is entry:
                self._forget(key)

    async def __aenter__(self) -> Self:
        self._client: Client = Client(connection_pool=self._pool)
        await self._group.__aenter__()
        self._writer = self._group.create_task(self._write())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.cancel()
        await self._group.__aexit__(None, None, None)
        if self._waiting:
            await self._write_some()
        await self._client.aclose()
        await self._pool.disconnect()
