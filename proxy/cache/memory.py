"""Response store in the memory of this process, bounded in bytes, least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from proxy.cache.store import StoreEvents

ENTRY_BYTES = 420  # memory of an entry's key, expiry and dict slot, without its value


def _estimate_memory_bytes(value: bytes) -> int:
    """Return the memory of a value in bytes. The allocator loses about an eighth."""
    return ENTRY_BYTES + len(value) * 9 // 8


@dataclass(slots=True)
class MemoryAnswerStore:
    """Store of one process that uses at most ``max_bytes`` of memory. ``now`` returns seconds."""

    max_bytes: int
    now: Callable[[], float]
    events: StoreEvents
    name: str = "memory"
    _entries: OrderedDict[bytes, tuple[float, bytes]] = field(default_factory=OrderedDict)
    _size: int = 0

    async def get(self, key: bytes) -> bytes | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry[0] <= self.now():
            self._drop(key)
            self.events.count_cache_evictions("expired", 1)
            self.events.set_cache_size(self.name, len(self._entries), self._size)
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def save(self, key: bytes, value: bytes, ttl_s: float) -> None:
        if key in self._entries:
            self._drop(key)
        cost = _estimate_memory_bytes(value)
        if cost > self.max_bytes:
            self.events.count_cache_evictions("dropped", 1)
            return
        self._entries[key] = (self.now() + ttl_s, value)
        self._size += cost
        evicted = 0
        while self._size > self.max_bytes:
            self._drop(next(iter(self._entries)))
            evicted += 1
        if evicted:
            self.events.count_cache_evictions("full", evicted)
        self.events.set_cache_size(self.name, len(self._entries), self._size)

    def _drop(self, key: bytes) -> None:
        self._size -= _estimate_memory_bytes(self._entries.pop(key)[1])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._entries.clear()
