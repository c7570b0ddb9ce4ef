"""Response store in Redis or Valkey, shared by many machines, also in a cluster.

The server bounds its memory (``maxmemory``, ``allkeys-lru``). An unreachable or slow server costs a
call at most one timeout, and is then not used for ``pause_s``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from proxy.cache.store import PendingWrites, StoreEvents
from proxy.runtime.redis import REDIS_ERRORS, RedisServer

KEY_PREFIX = b"headrace:cache:"
TIMEOUT_S = 0.25
MAX_CONNECTIONS = 16
BATCH_SIZE = 64


def _make_redis_key(key: bytes) -> bytes:
    return KEY_PREFIX + key.hex().encode()


@dataclass(slots=True)
class RedisAnswerStore:
    """Store shared by many processes. Closes ``server``. ``now`` returns monotonic seconds.

    After an error the server is not used for ``pause_s``. Entering succeeds without a server.
    """

    server: RedisServer
    now: Callable[[], float]
    events: StoreEvents
    pause_s: float = 1.0
    name: str = "redis"
    _resume_at: float = 0.0
    _pending: PendingWrites = field(default_factory=PendingWrites)
    """Values and their TTL in milliseconds."""
    _has_pending: asyncio.Event = field(default_factory=asyncio.Event)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _connections: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_CONNECTIONS)
    )
    _writer: asyncio.Task[None] = field(init=False)

    async def get(self, key: bytes) -> bytes | None:
        pending = self._pending.rows.get(key)
        if pending is not None:
            return pending[0]
        if self._is_paused:
            return None
        try:
            async with self._connections:
                if self._is_paused:  # another call failed meanwhile
                    return None
                name = _make_redis_key(key)
                value = await self.server.run_command(name, "GET", name)
        except REDIS_ERRORS:
            self._pause()
            return None
        return value if isinstance(value, bytes) else None

    @property
    def _is_paused(self) -> bool:
        """True while the server is not used after an error."""
        return self.now() < self._resume_at

    def _pause(self) -> None:
        self._resume_at = self.now() + self.pause_s
        self.events.count_cache_failure(self.name)

    def save(self, key: bytes, value: bytes, ttl_s: float) -> None:
        if self._is_paused or not self._pending.add(key, value, max(1, round(ttl_s * 1000))):
            self.events.count_cache_evictions("dropped", 1)
            return
        self._has_pending.set()

    async def _write_batches(self) -> None:
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            while self._pending.rows:
                await self._write_batch()

    async def _write_batch(self) -> None:
        batch = list(itertools.islice(self._pending.rows.items(), BATCH_SIZE))
        try:
            await self.server.run_commands(
                ("SET", _make_redis_key(key), value, "PX", int(milliseconds))
                for key, (value, milliseconds) in batch
            )
        except REDIS_ERRORS:
            self._pause()
            self.events.count_cache_evictions("dropped", len(batch))
        self._pending.remove(batch)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._writer = self._group.create_task(self._write_batches())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._writer.cancel()
        await self._group.__aexit__(None, None, None)
        if self._pending.rows:
            await self._write_batch()
        await self.server.aclose()
