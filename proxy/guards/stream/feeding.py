"""Feeds frames to a filter: light ones at once, heavy ones in a thread, long texts piece by piece.

A frame is as heavy as the text that its inspection reads. That includes what filters hold, and all
of a text at its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import Protocol, TypeVar

from proxy.guards.findings.tally import RuleTally
from proxy.guards.stream.filter import FrameTexts, StreamFilter
from proxy.guards.stream.texts import other_texts
from proxy.guards.text.text_walker import EACH, LIGHT, SHEET, in_steps
from proxy.runtime.frozen import frozen
from proxy.runtime.turn import LoopTurn
from proxy.types.events import (
    Attach,
    Begin,
    Delta,
    Event,
    Extension,
    Fault,
    Finish,
    Frame,
    Native,
    Start,
    Stop,
)

MAX_OPENING = 16
"""Frames that wait for the first content."""
WALKED = (Start, Begin, Attach, Extension, Native)
"""Events whose texts no delta carries."""
T = TypeVar("T")


class Beside(Protocol):
    """Runs a job where it delays no other call."""

    def __call__(self, job: Callable[[], T]) -> Awaitable[T]: ...


@frozen
class InTime:
    """Runs one heavy inspection at a time in a thread. Each rule has its deadline."""

    tallies: Sequence[RuleTally]
    beside: Beside

    async def __call__(self, job: Callable[[], T]) -> T:
        def bounded() -> T:
            for tally in self.tallies:
                tally.until = tally.clock() + tally.rule.deadline_s
            try:
                return job()
            finally:
                for tally in self.tallies:
                    tally.until = inf

        return await self.beside(bounded)


class Feeding:
    """Feeds the frames of one stream to a filter. `opaque`: one had a value without text."""

    __slots__ = ("_beside", "_filter", "opaque")

    def __init__(self, frames: StreamFilter, beside: Beside) -> None:
        self._filter = frames
        self._beside = beside
        self.opaque = False

    def try_inspect(self, frame: Frame) -> list[Frame] | None:
        """Take a frame that is little work, return the frames it releases. Return None, and take
        nothing, for any other. Raises ``GuardBlocked``."""
        return self._filter.go_on(frame)

    async def feed(self, frame: Frame) -> list[Frame]:
        """Take the next frame, return the frames it releases. Raises ``GuardBlocked``."""
        others = None
        if any(isinstance(event, WALKED) for event in frame.events):
            others = await in_steps(other_texts(frame))
            self.opaque = self.opaque or bool(others.opaque)
        if others is not None and EACH * len(others.texts) > LIGHT:
            step = await self._beside(partial(self._filter.read, frame, others))
        else:
            step = self._filter.read(frame, others)
        if step.weight <= LIGHT:
            return self._filter.take(step)
        if any(len(each.text.text) > SHEET for each in step.going):
            return await self._in_turns(step)
        return await self._beside(partial(self._filter.take, step))

    async def feed_all(self, frames: Sequence[Frame], now: Callable[[], float]) -> list[Frame]:
        """Take many frames; other tasks run in between."""
        turn = LoopTurn(now)
        turn.begin()
        released: list[Frame] = []
        for frame in frames:
            released += await self.feed(frame)
            if turn.is_over():
                await turn.rest()
        return released

    def flush(self) -> list[Frame]:
        """Return all frames that wait, because the stream has ended."""
        return self._filter.flush()

    async def _in_turns(self, step: FrameTexts) -> list[Frame]:
        """Return what a frame with long texts releases. Each piece of them has a deadline of its
        own, as it would have in a frame of its own."""
        coming = self._filter.take_in_turns(step)
        released: list[Frame] = []
        while (safe := await self._beside(partial(next, coming, None))) is not None:
            released += safe
        return released


class FirstContent:
    """Holds the first frames of a stream until one has content, or `MAX_OPENING` wait.

    A guard that blocks the first words can then answer with an error instead of ending a stream.
    Frames of a keep-alive pass.
    """

    __slots__ = ("_is_open", "_waiting")

    def __init__(self, *, waits: bool) -> None:
        self._is_open = not waits
        self._waiting: list[Frame] = []

    def feed(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Take frames, return those that may be sent."""
        if self._is_open or not frames:
            return frames
        alive = [frame for frame in frames if not frame.events and frame.doc is None]
        self._waiting += [frame for frame in frames if frame.events or frame.doc is not None]
        if len(self._waiting) <= MAX_OPENING and not any(map(_has_content, frames)):
            return alive
        self._is_open = True
        waited, self._waiting = self._waiting, []
        return [*alive, *waited]


def _has_content(frame: Frame) -> bool:
    return frame.last or any(map(_is_content, frame.events))


def _is_content(event: Event) -> bool:
    match event:
        case Delta(text=text):
            return bool(text)
        case Begin(part=part, call=call):
            return part.kind == "opaque" or call is not None
        case _:
            return isinstance(event, Finish | Fault | Stop)
