"""The watch of one answer: what guards let pass of it, with the values put back that they masked.

Guards look at what the upstream has said; only what they have let pass gets its values back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from proxy.guardrails.deltas import Deltas
from proxy.guardrails.engine import Aside
from proxy.guardrails.placeholders import Masks
from proxy.guardrails.rule import Again
from proxy.types import Chunk

Look = Callable[[Chunk], Awaitable[Sequence[Chunk]]]
"""Takes the next chunk, and gives those that may be shown. Raises ``GuardBlocked``."""

UNKNOWN = 2**31  # a weight that is never small


async def nothing(chunk: Chunk) -> Sequence[Chunk]:
    """Let everything pass: no guard looks."""
    return (chunk,)


class Watched:
    """One answer on its way out. ``holds`` keeps all of it back to its end, for a guard that may
    want another: ``again`` says that one does, and then nothing of this one is shown. Where it is
    ``guarded``, what is sent is what guards have read, not the bytes it was read from: a name that
    stands twice in them is read once here, and may be read otherwise elsewhere."""

    __slots__ = ("_aside", "_deltas", "_guarded", "_kept", "_look", "_masks", "_shown", "again")

    def __init__(
        self,
        look: Look,
        masks: Masks | None,
        aside: Aside,
        *,
        streamed: bool,
        holds: bool = False,
        guarded: bool = False,
    ) -> None:
        self.again = False
        self._guarded = guarded
        self._aside = aside
        self._look = look
        self._masks = masks
        self._shown = False
        self._kept: list[Chunk] | None = [] if holds else None
        self._deltas = Deltas(masks) if masks is not None and streamed else None

    async def feed(self, chunk: Chunk) -> Sequence[Chunk]:
        try:
            safe = await self._look(chunk)
        except Again:
            self.again = True
            return ()
        if self._kept is not None:
            self._kept += safe
            safe = self._kept if chunk.last else ()
        if self._masks is not None:
            safe = await self._restored(safe, self._masks)
        if self._guarded:
            safe = [each if each.raw is None else replace(each, raw=None) for each in safe]
        self._shown = self._shown or bool(safe)
        return safe

    def cut(self) -> Sequence[Chunk]:
        """Give the beginning of a placeholder that never came. Nothing where nothing was shown, so
        that the client gets a clean error."""
        return self._deltas.flush() if self._deltas is not None and self._shown else ()

    async def _restored(self, chunks: Iterable[Chunk], masks: Masks) -> list[Chunk]:
        restored: list[Chunk] = []
        for chunk in chunks:
            job = partial(self._of_chunk, chunk, masks)
            restored += await self._aside(self._weight(chunk), job)
        return restored

    def _weight(self, chunk: Chunk) -> int:
        """Give how long a chunk is; a whole answer that was changed may have any length."""
        if chunk.raw is None:
            return 0 if self._deltas is not None else UNKNOWN
        return len(chunk.raw)

    def _of_chunk(self, chunk: Chunk, masks: Masks) -> list[Chunk]:
        if self._deltas is not None:
            return self._deltas.feed(chunk)
        return [_whole(chunk, masks)]


def _whole(chunk: Chunk, masks: Masks) -> Chunk:
    if chunk.data is None:
        return chunk
    data = masks.unmasked(chunk.data)
    return chunk if data is chunk.data else replace(chunk, data=data, raw=None)
