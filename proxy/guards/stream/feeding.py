"""Feeds frames to a filter: light ones at once, heavy ones in a thread, long texts piece by piece.

A frame is as heavy as the text that its inspection reads. That includes what filters hold, and all
of a text at its end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import Protocol, TypeVar

from proxy.guards.findings import RuleTally
from proxy.guards.stream.filter import StreamFilter
from proxy.guards.stream.frame_texts import other_texts
from proxy.guards.text.documents import LIGHT, SHEET, TEXT_WEIGHT, in_steps
from proxy.runtime.fair_queue import TimeSlice
from proxy.runtime.frozen import frozen
from proxy.types.events import Attach, Begin, Extension, Frame, Native, Start

WALKED = (Start, Begin, Attach, Extension, Native)
"""Events whose texts no delta carries."""
T = TypeVar("T")


class JobRunner(Protocol):
    """Runs a job where it delays no other call."""

    def __call__(self, job: Callable[[], T]) -> Awaitable[T]: ...


@frozen
class WithDeadlines:
    """Runs one heavy inspection at a time in a thread. Each rule has its deadline."""

    tallies: Sequence[RuleTally]
    run_job: JobRunner

    async def __call__(self, job: Callable[[], T]) -> T:
        def bounded() -> T:
            for tally in self.tallies:
                tally.until = tally.clock() + tally.rule.deadline_s
            try:
                return job()
            finally:
                for tally in self.tallies:
                    tally.until = inf

        return await self.run_job(bounded)


class Feeding:
    """Feeds the frames of one stream to a filter. `opaque`: one had a value without text."""

    __slots__ = ("_filter", "_run_job", "opaque")

    def __init__(self, frames: StreamFilter, run_job: JobRunner) -> None:
        self._filter = frames
        self._run_job = run_job
        self.opaque = False

    def try_inspect(self, frame: Frame) -> list[Frame] | None:
        """Take a frame that is little work, return the frames it releases. Return None, and take
        nothing, for any other. Raises ``GuardBlocked``."""
        return self._filter.go_on(frame)

    async def feed(self, frame: Frame) -> list[Frame]:
        """Take the next frame, return the frames it releases. Raises ``GuardBlocked``."""
        walked_texts = None
        if any(isinstance(event, WALKED) for event in frame.events):
            walked_texts = await in_steps(other_texts(frame))
            self.opaque = self.opaque or bool(walked_texts.opaque)
        if walked_texts is not None and TEXT_WEIGHT * len(walked_texts.texts) > LIGHT:
            texts = await self._run_job(partial(self._filter.read, frame, walked_texts))
        else:
            texts = self._filter.read(frame, walked_texts)
        if texts.weight <= LIGHT:
            return self._filter.take(texts)
        if all(len(going.text.text) <= SHEET for going in texts.going):
            return await self._run_job(partial(self._filter.take, texts))
        # Each piece of a long text has a deadline of its own, as it would have in its own frame.
        steps = self._filter.take_in_turns(texts)
        released: list[Frame] = []
        while (frames := await self._run_job(partial(next, steps, None))) is not None:
            released += frames
        return released

    async def feed_all(self, frames: Sequence[Frame], now: Callable[[], float]) -> list[Frame]:
        """Take many frames; other tasks run in between."""
        turn = TimeSlice(now)
        turn.begin()
        released: list[Frame] = []
        for frame in frames:
            released += await self.feed(frame)
            if turn.is_over():
                await turn.rest()
        return released

    def close(self) -> list[Frame]:
        """Return all frames that wait, because the stream has ended."""
        return self._filter.close()
