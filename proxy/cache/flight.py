"""An answer that is being fetched once for all who ask the same: they see every chunk of it.

Who leads it fetches, whoever else joins listens from the first chunk on. Nothing here knows where
the answer comes from, or starts a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from proxy.billing import Saved
from proxy.cache.cached_answer import CachedAnswer
from proxy.errors import ProxyError, UpstreamUnavailable
from proxy.types import Chunk, Head


class Flight:
    """One answer on its way. ``kept`` is set instead when it turns out to be there already.

    Up to ``oversize`` it holds all that was said and runs ahead of those who listen; beyond, nobody
    can join any more and the slowest who listens sets the pace, so that memory stays bounded.
    ``saved`` is what listening instead of asking has saved, known with the last chunk.
    """

    def __init__(self) -> None:
        self.kept: CachedAnswer | None = None
        self.head = Head(streamed=False)
        self.error: ProxyError | None = None
        self.saved: Saved | None = None
        self.oversize = False
        self.whole = False
        self.closed = False
        self._chunks: list[Chunk] = []
        self._base = 0
        self._places: set[Listener] = set()
        self._news = asyncio.Event()

    @property
    def joinable(self) -> bool:
        return not self.closed and not self.oversize

    @property
    def shows(self) -> bool:
        """Whether there is something to show, and no sign yet that it will not end well."""
        return self._end > 0 and (self.whole or not self.closed)

    @property
    def _end(self) -> int:
        return self._base + len(self._chunks)

    def _tell(self) -> None:
        """Wake all who wait, for whatever they wait: they look for themselves."""
        self._news.set()
        self._news = asyncio.Event()

    async def add(self, chunk: Chunk) -> None:
        """Take the next chunk; once oversize, wait until all who listen have taken it."""
        if chunk.is_keepalive and not self._end:
            return  # whoever joins is shown something, or a clean error
        self._chunks.append(chunk)
        self.whole = chunk.last
        self._tell()
        while self.oversize and not self.whole and self._lagging():
            await self._news.wait()
        if self.oversize and not self.whole:
            self._base = self._end
            self._chunks.clear()

    def _lagging(self) -> bool:
        return any(place.position < self._end for place in self._places)

    def close(self, error: ProxyError | None = None) -> None:
        """No more comes. Without a last chunk, whoever listens is told the error."""
        self.error = self.error or error
        self.closed = True
        self._tell()

    @contextmanager
    def joined(self) -> Iterator[Listener]:
        """Take a place at the first chunk; it counts as listening until the block is left."""
        place = Listener(self)
        self._places.add(place)
        try:
            yield place
        finally:
            self._places.discard(place)
            self._tell()

    async def begun(self) -> None:
        """Wait until there is something to show, or it is known that there will be nothing."""
        while not self._chunks and self.kept is None and not self.closed:
            await self._news.wait()

    async def unneeded(self) -> None:
        """Wait until it is closed, or nobody listens while it is not whole."""
        while not self.closed and (self._places or self.whole):
            await self._news.wait()

    async def chunk(self, position: int) -> Chunk:
        """Return a chunk as soon as it is there. Raise what ended the flight before it."""
        if self.oversize:
            self._tell()  # this listener has caught up
        while position >= self._end:
            if self.closed:
                raise self.failure().with_traceback(None) from None
            await self._news.wait()
        return self._chunks[position - self._base]

    def there(self, position: int, most: int) -> list[Chunk]:
        """Return the chunks that are there already, so many at the most."""
        return self._chunks[position - self._base :][:most] if not self.oversize else []

    def failure(self) -> ProxyError:
        """Return what ended the flight; a leader that broke has left no error of its own."""
        return self.error or UpstreamUnavailable("The answer that this call shared broke off.")


class Listener:
    """How far one listener has come; an iterator over the chunks."""

    __slots__ = ("_flight", "_over", "position")

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._over = False
        self.position = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if self._over:
            raise StopAsyncIteration
        chunk = await self._flight.chunk(self.position)
        self.position += 1
        self._over = chunk.last
        return chunk

    def more(self, most: int) -> list[Chunk]:
        """Return the chunks after it that are there already, so many at the most."""
        chunks = [] if self._over else self._flight.there(self.position, most)
        if chunks:
            self.position += len(chunks)
            self._over = chunks[-1].last
        return chunks
