"""Interface of response stores, and the events that they report."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from proxy.runtime.frozen import frozen

EvictionReason = Literal["full", "expired", "dropped", "changed"]
Row = tuple[bytes, float]  # value and expiry
MAX_PENDING_BYTES = 16 * 1024 * 1024
TAG_VERSION = b"\x02"
TAG_BYTES = 32


class AnswerStore(AbstractAsyncContextManager[Any], Protocol):
    """Stores values by key until they expire.

    Entering opens the store. Leaving writes pending values, then closes it.
    """

    async def get(self, key: bytes) -> bytes | None:
        """Return the value unless it has expired. Never raises: an outage is a miss."""

    def save(self, key: bytes, value: bytes, ttl_s: float) -> None:
        """Store a value for ``ttl_s`` seconds, readable at once.

        Never waits or raises: a value that cannot be stored is dropped and reported.
        """


class StoreEvents(Protocol):
    """Receives counts of a store: entries, bytes, evictions by reason, and failures."""

    def set_cache_size(self, store: str, entries: int, size: int) -> None: ...

    def count_cache_evictions(self, reason: EvictionReason, count: int) -> None: ...

    def count_cache_failure(self, store: str) -> None: ...


@dataclass(slots=True)
class PendingWrites:
    """Values that wait to be written, by key, each with its expiry or its time to live.

    ``size`` is their total size in bytes, with ``row_bytes`` for each value.
    """

    row_bytes: int = 0
    size: int = 0
    rows: dict[bytes, Row] = field(default_factory=dict)

    def add(self, key: bytes, value: bytes, expiry: float) -> bool:
        """Add a value in place of an older one. Return False above ``MAX_PENDING_BYTES``."""
        size = len(value) + self.row_bytes
        if self.size + size > MAX_PENDING_BYTES:
            return False
        if key in self.rows:
            self.remove([(key, self.rows[key])])
        self.rows[key] = value, expiry
        self.size += size
        return True

    def remove(self, batch: Iterable[tuple[bytes, Row]]) -> None:
        """Remove the values of a batch, but not the values that have replaced them."""
        for key, row in batch:
            if self.rows.get(key) is row:
                del self.rows[key]
                self.size -= len(row[0]) + self.row_bytes


@frozen
class CacheBackend:
    """Store with the secret of its keys.

    The secret has 16 to 64 bytes and is the same in all processes that share the store.

    In a store that others can write, each value has a tag: its hash under the secret.
    ``on_wrong_tag`` is called for a value with another tag. Without it, values have no tags.
    """

    store: AnswerStore
    secret: bytes = field(repr=False)
    on_wrong_tag: Callable[[], None] | None = None

    @property
    def is_in_process(self) -> bool:
        """True if no other process can read or write the store."""
        return self.on_wrong_tag is None

    async def get(self, key: bytes) -> bytes | None:
        """Return the stored value, None if it is missing or its tag is wrong."""
        value = await self.store.get(key)
        if value is None or self.on_wrong_tag is None:
            return value
        begin = len(TAG_VERSION) + TAG_BYTES
        body = value[begin:]
        if hmac.compare_digest(value[:begin], self._compute_tag(key, body)):
            return body
        self.on_wrong_tag()
        return None

    def save(self, key: bytes, value: bytes, ttl_s: float) -> None:
        tagged = value if self.on_wrong_tag is None else self._compute_tag(key, value) + value
        self.store.save(key, tagged, ttl_s)

    def _compute_tag(self, key: bytes, value: bytes) -> bytes:
        tag = hashlib.blake2b(key, digest_size=TAG_BYTES, key=self.secret, person=b"headrace kept")
        tag.update(value)
        return TAG_VERSION + tag.digest()
