"""The watch of one answer: what guards let pass of it, with the values put back that they masked.

Guards look at what the upstream has said; only what they have let pass gets its values back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import orjson

from proxy.freed import let_frames_go
from proxy.guardrails.findings.tally import RetryWanted
from proxy.guardrails.signed_thoughts import ThoughtReader
from proxy.guardrails.stream.feeding import Feeding
from proxy.guardrails.stream.filter import StreamFilter
from proxy.guardrails.stream.frame_feeding import Beside, Feeds, FrameFeeding
from proxy.guardrails.stream.frame_filter import FrameFilter
from proxy.guardrails.stream.placeholders import Masks
from proxy.guardrails.whole_frames import with_values
from proxy.types import AnswerPiece, Call, Chunk, Untouched
from proxy.types.events import Frame

T = TypeVar("T")
Look = Callable[[AnswerPiece], Awaitable[Sequence[AnswerPiece]]]
"""Takes the next chunk, returns those that may be shown. Raises ``GuardBlocked``."""

LookAtOnce = Callable[[AnswerPiece], Sequence[AnswerPiece] | None]
"""Does the same for a chunk that is little work; None, and nothing is taken, for any other."""

UNKNOWN = 2**31  # a weight that is never small


async def nothing(chunk: AnswerPiece) -> Sequence[AnswerPiece]:
    """Let everything pass: no guard looks."""
    return (chunk,)


def later(chunk: AnswerPiece) -> None:
    """Look at nothing at once."""


class Workplace(Protocol):
    """Where work on texts holds up nobody: what the engine of the guards gives its callers."""

    @property
    def clock(self) -> Callable[[], float]: ...

    def beside(self, caller: object) -> Beside: ...

    async def aside(self, weight: int, job: Callable[[], T], caller: object) -> T: ...


class ValueRestorer:
    """The way back of what was masked in a question, into one answer."""

    __slots__ = ("_call", "_caller", "_feeding", "_masks", "_place")

    def __init__(
        self, masks: Masks, place: Workplace, caller: object, call: Call, *, frames: bool
    ) -> None:
        self._masks = masks
        self._place = place
        self._caller = caller
        self._call = call
        self._feeding: Feeds | None = None
        if call.stream:
            beside = place.beside(caller)
            if frames:
                self._feeding = FrameFeeding(FrameFilter(masks), beside)
            else:
                self._feeding = Feeding(StreamFilter(masks), beside)

    async def restored(self, chunks: Sequence[AnswerPiece]) -> Sequence[AnswerPiece]:
        """Return chunks with the values put back, as far as they are certain."""
        chunks = [_without_echo(each) for each in chunks]
        if self._feeding is not None:
            return await self._feeding.feed_all(chunks, self._place.clock)
        whole: list[AnswerPiece] = [await self._whole(each) for each in chunks]
        return whole

    async def _whole(self, chunk: AnswerPiece) -> AnswerPiece:
        job: Callable[[], AnswerPiece] = partial(_unmasked, chunk, self._masks)
        if isinstance(chunk, Frame):
            job = partial(with_values, chunk, self._masks, self._call)
        return await self._place.aside(_weight(chunk), job, self._caller)

    def cut(self) -> Sequence[AnswerPiece]:
        """Return the beginning of a placeholder that never ended."""
        return self._feeding.flush() if self._feeding is not None else ()


class AnswerWatch:
    """One answer on its way out. ``holds`` keeps all of it back to its end, for a guard that may
    want another: ``again`` says that one does, and then nothing of this one is shown. Where it is
    ``guarded``, what is sent is what guards have read, not the bytes it was read from: a name that
    stands twice in them is read once here, and may be read otherwise elsewhere."""

    __slots__ = ("_at_once", "_back", "_guarded", "_kept", "_look", "_shown", "_thoughts", "again")

    def __init__(
        self,
        look: Look,
        back: ValueRestorer | None,
        *,
        at_once: LookAtOnce = later,
        holds: bool = False,
        guarded: bool = False,
        thoughts: ThoughtReader | None = None,
    ) -> None:
        self.again = False
        self._at_once = later if holds or back is not None else at_once
        self._guarded = guarded
        self._thoughts = thoughts
        self._look = look
        self._back = back
        self._shown = False
        self._kept: list[AnswerPiece] | None = [] if holds else None

    def feed_at_once(self, chunk: AnswerPiece) -> Sequence[AnswerPiece] | None:
        safe = self._at_once(chunk)
        if not safe:
            return safe
        self._shown = True
        return self._as_read(safe)

    async def feed(self, chunk: AnswerPiece) -> Sequence[AnswerPiece]:
        try:
            safe = await self._look(chunk)
        except RetryWanted as wanted:
            let_frames_go(wanted)  # the guard's result keeps it
            self.again = True
            return ()
        safe = self._as_read(safe)
        if self._kept is not None:
            self._kept += safe
            safe = self._kept if chunk.last else ()
        if self._back is not None:
            safe = await self._back.restored(safe)
        self._shown = self._shown or bool(safe)
        return safe

    def _as_read(self, chunks: Sequence[AnswerPiece]) -> Sequence[AnswerPiece]:
        """Return chunks that are sent as they were read, where guards have read them."""
        if self._thoughts is not None:
            for chunk in chunks:
                if isinstance(chunk, Frame):
                    self._thoughts.feed_frame(chunk)
                else:
                    self._thoughts.feed(chunk)
        if not self._guarded:
            return chunks
        return [each if each.raw is None else as_read(each) for each in chunks]

    def cut(self) -> Sequence[AnswerPiece]:
        """Return the beginning of a placeholder that never ended. Return nothing if nothing was
        shown, so that the client gets a clean error."""
        return self._back.cut() if self._back is not None and self._shown else ()


def as_read(chunk: AnswerPiece) -> AnswerPiece:
    """Return a chunk that is sent as it was read. Of a small one that is written once, for all who
    send it or keep it."""
    if isinstance(chunk, Frame):
        return chunk if chunk.doc is None else chunk._replace(raw=None)
    data = chunk.data
    if data is None or chunk.size or chunk.last:
        return chunk.rewritten(data)
    # A copy, as the writer keeps some 4 KiB for each of its results, however short.
    return Chunk(data, bytes(bytearray(orjson.dumps(data))), chunk.leg, failed=chunk.failed)


def _without_echo(chunk: AnswerPiece) -> AnswerPiece:
    """Return a chunk that is sent as it was read where its bytes may repeat words of the question,
    which have placeholders in them."""
    if isinstance(chunk, Frame):
        return as_read(chunk)
    return chunk.rewritten(chunk.data) if isinstance(chunk.raw, Untouched) else chunk


def _weight(chunk: AnswerPiece) -> int:
    """Return the bytes of an answer; ``UNKNOWN`` for one that was changed."""
    return UNKNOWN if chunk.raw is None else len(chunk.raw)


def _unmasked(chunk: Chunk, masks: Masks) -> Chunk:
    if chunk.data is None:
        return chunk
    data = masks.unmasked(chunk.data)
    return chunk if data is chunk.data else chunk.rewritten(data)
