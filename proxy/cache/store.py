"""What the kinds of stores have in common: their shape, and what they tell of themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Protocol, Self

Why = Literal["full", "expired", "dropped"]


class Store(Protocol):
    """Values under keys, for a while. Entering opens it; leaving writes what waits, and closes."""

    async def get(self, key: bytes) -> bytes | None:
        """Give the value, unless it has expired. Never raises: an outage is a miss."""

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


class Tell(Protocol):
    """Who is told what a store holds, in entries and bytes, what it let go and why, and that it
    could not be reached or used."""

    def held(self, store: str, entries: int, size: int) -> None: ...

    def evicted(self, why: Why, count: int) -> None: ...

    def failed(self, store: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Shelf:
    """A store, and the secret that its keys are made with: 16 to 64 bytes. Processes that share a
    store share its secret; for one that ends with its process any will do."""

    store: Store
    secret: bytes = field(repr=False)
