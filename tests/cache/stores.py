"""An event log and a clock for tests of cache stores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from proxy.cache.redis import RedisAnswerStore
from proxy.cache.sqlite import SqliteAnswerStore


class StoreEventLog:
    """Records the events of stores."""

    def __init__(self) -> None:
        self.entries = self.size = self.failures = 0
        self.evictions: Counter[str] = Counter()
        self.replaced_files: list[tuple[str, str]] = []
        self.write_errors: list[BaseException] = []

    def set_cache_size(self, store: str, entries: int, size: int) -> None:
        self.entries, self.size = entries, size

    def count_cache_evictions(self, reason: str, count: int) -> None:
        self.evictions[reason] += count

    def count_cache_failure(self, store: str) -> None:
        self.failures += 1

    def replaced(self, reason: str, path: Path | None) -> None:
        self.replaced_files.append((reason, path.name if path else ""))


class Clock:
    """Clock that advances only when a test sets it."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Poll a condition that another process fulfills, for at most 30 seconds."""
    for _ in range(3000):
        if await holds():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


async def flush(store: RedisAnswerStore | SqliteAnswerStore) -> None:
    """Wait until all pending values are written or dropped."""

    async def is_idle() -> bool:
        return not store._pending.rows

    await until(is_idle)
