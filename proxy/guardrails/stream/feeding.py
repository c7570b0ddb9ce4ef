"""Where the chunks of a stream are looked at: light ones where they come, heavy ones beside the
event loop, as whole texts are: a long text piece by piece, each in a turn of its own.

A chunk is as heavy as what has to be read for it, which is not the chunk alone: what its window
holds is read again, and at the end of a text a guard may look at all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from proxy.guardrails.stream.filter import StreamFilter
from proxy.guardrails.stream.frame_feeding import Beside
from proxy.guardrails.text.text_walker import EACH, LIGHT, SHEET, in_steps, weight_of
from proxy.guardrails.text.usual import usual_answer
from proxy.guardrails.text.walk import Text, Texts, answer_walk
from proxy.turn import LoopTurn
from proxy.types import Chunk


class Feeding:
    """Feeds one stream's chunks to windows. ``opaque`` is True once one of them held what no guard
    can read."""

    __slots__ = ("_beside", "_deltas", "opaque")

    def __init__(self, deltas: StreamFilter, beside: Beside) -> None:
        self._deltas = deltas
        self._beside = beside
        self.opaque = False

    def feed_at_once(self, chunk: Chunk) -> list[Chunk] | None:
        """Take a chunk that goes on as the last one, and return the chunks it releases; None where
        it is to be fed. Raises ``GuardBlocked``."""
        return self._deltas.go_on(chunk)

    async def feed(self, chunk: Chunk) -> list[Chunk]:
        """Take the next chunk, return the chunks it releases. Raises ``GuardBlocked``."""
        usual = Texts(()) if chunk.data is None else usual_answer(chunk.data)
        texts = () if usual is None else usual.texts
        if usual is None:
            texts = await self._unusual(chunk)
            if sum([EACH + weight_of(each.text) for each in texts]) > LIGHT:  # maybe thousands
                if _has_long(texts):
                    return await self._in_turns(chunk, texts)
                return await self._beside(partial(self._fed, chunk, texts))
        step = self._deltas.read(chunk, texts)
        if step.weight > LIGHT:
            if _has_long(texts):
                return await self._in_turns(chunk, texts)
            return await self._beside(partial(self._deltas.take, step))
        return self._deltas.take(step)

    async def feed_all(self, chunks: Sequence[Chunk], now: Callable[[], float]) -> list[Chunk]:
        """Take chunks, of which there may be many: others have their turn."""
        turn = LoopTurn(now)
        turn.begin()
        released: list[Chunk] = []
        for chunk in chunks:
            released += await self.feed(chunk)
            if turn.is_over():
                await turn.rest()
        return released

    def flush(self) -> list[Chunk]:
        """Return all chunks that are held: the stream has ended."""
        return self._deltas.flush()

    async def _unusual(self, chunk: Chunk) -> tuple[Text, ...]:
        """Read a chunk that may hold many texts."""
        read = await in_steps(answer_walk(chunk.data or {}, cut=True))
        self.opaque = self.opaque or bool(read.opaque)
        return read.texts

    def _fed(self, chunk: Chunk, texts: Sequence[Text]) -> list[Chunk]:
        return self._deltas.take(self._deltas.read(chunk, texts))

    async def _in_turns(self, chunk: Chunk, texts: Sequence[Text]) -> list[Chunk]:
        """Return what a chunk with long texts releases. Each piece of them has a turn, and the
        deadline of the rules, of its own, as it would have in a chunk of its own."""
        step = await self._beside(partial(self._deltas.read, chunk, texts))
        coming = self._deltas.take_in_turns(step)
        released: list[Chunk] = []
        while (safe := await self._beside(partial(next, coming, None))) is not None:
            released += safe
        return released


def _has_long(texts: Sequence[Text]) -> bool:
    return any(len(text.text) > SHEET for text in texts)
