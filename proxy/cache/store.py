"""What the kinds of stores have in common: their shape, and the events that they report."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import field
from types import TracebackType
from typing import Literal, Protocol, Self

from proxy.runtime.frozen import frozen

Why = Literal["full", "expired", "dropped", "changed"]
TAGGED = b"\x02"
TAG_BYTES = 32


class AnswerStore(Protocol):
    """Values under keys, for a while. Entering opens it; leaving writes what waits, and closes."""

    async def get(self, key: bytes) -> bytes | None:
        """Return the value, unless it has expired. Never raises: an outage is a miss."""

    def put(self, key: bytes, value: bytes, ttl: float) -> None:
        """Take a value for ``ttl`` seconds. Found from now on. Never waits and never raises: what
        cannot be stored is dropped and told."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class StoreEvents(Protocol):
    """Gets what a store holds, in entries and bytes, how many it evicted and why, and that it could
    not be reached or used."""

    def held(self, store: str, entries: int, size: int) -> None: ...

    def evicted(self, why: Why, count: int) -> None: ...

    def failed(self, store: str) -> None: ...


@frozen
class CacheBackend:
    """A store, and the secret that its keys are made with: 16 to 64 bytes. Processes that share a
    store share its secret; for one that ends with its process any will do.

    What is kept where others may write carries a tag that takes the secret to make: ``changed`` is
    told of a value whose tag is not its own. Without it nothing is tagged.
    """

    store: AnswerStore
    secret: bytes = field(repr=False)
    changed: Callable[[], None] | None = None

    @property
    def is_own(self) -> bool:
        """True if nobody else can read or write what is kept."""
        return self.changed is None

    async def get(self, key: bytes) -> bytes | None:
        """Return the value that was put, as it was put; None for any other."""
        value = await self.store.get(key)
        if value is None or self.changed is None:
            return value
        begin = len(TAGGED) + TAG_BYTES
        body = value[begin:]
        if hmac.compare_digest(value[:begin], self._tag(key, body)):
            return body
        self.changed()
        return None

    def put(self, key: bytes, value: bytes, ttl: float) -> None:
        tagged = value if self.changed is None else self._tag(key, value) + value
        self.store.put(key, tagged, ttl)

    def _tag(self, key: bytes, value: bytes) -> bytes:
        tag = hashlib.blake2b(key, digest_size=TAG_BYTES, key=self.secret, person=b"headrace kept")
        tag.update(value)
        return TAGGED + tag.digest()
