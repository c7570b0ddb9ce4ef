"""The watch of one answer: what guards let pass of it, with the values put back that they masked.

Guards look at what the upstream has said; only what they have let pass gets its values back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from proxy.guards.findings.tally import RetryWanted
from proxy.guards.signed_thoughts import ThoughtReader
from proxy.guards.stream.feeding import Beside, Feeding
from proxy.guards.stream.filter import StreamFilter
from proxy.guards.stream.placeholders import Masks
from proxy.guards.whole_answers import with_values
from proxy.runtime.freed import drop_tracebacks
from proxy.types import Call
from proxy.types.events import Frame

T = TypeVar("T")
Look = Callable[[Frame], Awaitable[Sequence[Frame]]]
"""Takes the next frame, returns those that may be shown. Raises ``GuardBlocked``."""

LookAtOnce = Callable[[Frame], Sequence[Frame] | None]
"""Does the same for a frame that is little work. Returns None, and takes nothing, for any other."""

UNKNOWN = 2**31  # a weight that is never small


async def nothing(frame: Frame) -> Sequence[Frame]:
    """Let every frame pass, because there are no rules."""
    return (frame,)


def later(frame: Frame) -> None:
    """Take no frame at once."""


class Workplace(Protocol):
    """Where work on texts holds up nobody: what the engine of the guards gives its callers."""

    @property
    def clock(self) -> Callable[[], float]: ...

    def beside(self, caller: object) -> Beside: ...

    async def aside(self, weight: int, job: Callable[[], T], caller: object) -> T: ...


class ValueRestorer:
    """The way back of what was masked in a question, into one answer."""

    __slots__ = ("_call", "_caller", "_feeding", "_masks", "_place")

    def __init__(self, masks: Masks, place: Workplace, caller: object, call: Call) -> None:
        self._masks = masks
        self._place = place
        self._caller = caller
        self._call = call
        self._feeding: Feeding | None = None
        if call.stream:
            self._feeding = Feeding(StreamFilter(masks), place.beside(caller))

    async def restored(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Return frames with the values put back, as far as they are certain. Their bytes may
        repeat words of the request, which have placeholders in them."""
        frames = list(map(as_read, frames))
        if self._feeding is not None:
            return await self._feeding.feed_all(frames, self._place.clock)
        return [await self._whole(frame) for frame in frames]

    async def _whole(self, frame: Frame) -> Frame:
        job = partial(with_values, frame, self._masks, self._call)
        return await self._place.aside(UNKNOWN, job, self._caller)

    def abort(self) -> Sequence[Frame]:
        """Return the beginning of a placeholder that never ended."""
        return self._feeding.flush() if self._feeding is not None else ()


class OutputInspector:
    """One answer on its way out. ``holds`` keeps all of it back to its end, for a guard that may
    want another: ``retry_requested`` says that one does, and then nothing of this one is shown.
    Where it is ``guarded``, what is sent is what guards have read, not the bytes it was read from:
    a name that stands twice in them is read once here, and may be read otherwise elsewhere."""

    __slots__ = (
        "_at_once",
        "_back",
        "_guarded",
        "_kept",
        "_look",
        "_shown",
        "_thoughts",
        "retry_requested",
    )

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
        self.retry_requested = False
        self._at_once = later if holds or back is not None else at_once
        self._guarded = guarded
        self._thoughts = thoughts
        self._look = look
        self._back = back
        self._shown = False
        self._kept: list[Frame] | None = [] if holds else None

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        safe = self._at_once(frame)
        if not safe:
            return safe
        self._shown = True
        return self._as_read(safe)

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        try:
            safe = await self._look(frame)
        except RetryWanted as wanted:
            drop_tracebacks(wanted)  # the guard's result keeps it
            self.retry_requested = True
            return ()
        safe = self._as_read(safe)
        if self._kept is not None:
            self._kept += safe
            safe = self._kept if frame.last else ()
        if self._back is not None:
            safe = await self._back.restored(safe)
        self._shown = self._shown or bool(safe)
        return safe

    def _as_read(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Return frames that are sent as guards have read them."""
        if self._thoughts is not None:
            for frame in frames:
                self._thoughts.feed(frame)
        if not self._guarded:
            return frames
        return [frame if frame.raw is None else as_read(frame) for frame in frames]

    def abort(self) -> Sequence[Frame]:
        """Return the beginning of a placeholder that never ended. Return nothing if nothing was
        shown, so that the client gets a clean error."""
        return self._back.abort() if self._back is not None and self._shown else ()


def as_read(frame: Frame) -> Frame:
    """Return a frame whose document is sent instead of its bytes."""
    return frame if frame.doc is None else frame._replace(raw=None)
