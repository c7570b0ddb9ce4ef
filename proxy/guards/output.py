"""Guards of one response: inspects frames, and restores values that the request masked.

Guards inspect the response as the upstream sent it; only released frames get the values back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Protocol, TypeVar

from proxy.call.record import Record
from proxy.guards.capture import CallCapture
from proxy.guards.engine import Engine, bind_to_prompt, split_by_enforcement
from proxy.guards.findings import GuardRetryRequested, RuleTally
from proxy.guards.inspector import restore_masked_values
from proxy.guards.services.stage import StreamServiceInspector
from proxy.guards.signed_thoughts import ThoughtRecorder
from proxy.guards.stream.filter import JobRunner, StreamFilter
from proxy.guards.stream.placeholders import Masks
from proxy.runtime.deferred_free import drop_tracebacks
from proxy.runtime.fair_queue import TimeSlice
from proxy.types import Call, Json
from proxy.types.events import Delta, Event, Fault, Finish, Frame, PartStart, ResponseEnd
from proxy.types.guard import GuardResult, StageRules

T = TypeVar("T")

MAX_OPENING_FRAMES = 16
"""Frames that wait for the first content."""


class FrameInspector(Protocol):
    """Inspects the frames of one response. Raises ``GuardBlocked``."""

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        """Inspect a frame if that needs no ``await``. Otherwise take nothing and return None."""

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        """Inspect a frame and return the released frames."""


def _is_content_or_end(event: Event) -> bool:
    match event:
        case Delta(text=text):
            return bool(text)
        case PartStart(part=part, call=call):
            return part.kind == "opaque" or call is not None
        case _:
            return isinstance(event, Finish | Fault | ResponseEnd)


@dataclass(slots=True)
class DeadlineJobRunner:
    """Runs heavy inspections in threads. Each rule has its deadline."""

    threads: JobRunner
    tallies: Sequence[RuleTally]

    async def __call__(self, job: Callable[[], T]) -> T:
        def bounded() -> T:
            for tally in self.tallies:
                tally.deadline_at = tally.clock() + tally.rule.deadline_s
            try:
                return job()
            finally:
                for tally in self.tallies:
                    tally.deadline_at = inf

        return await self.threads(bounded)


class StreamInspector:
    """Inspects the frames of one stream. Raises ``GuardBlocked``.

    If a rule enforces, up to ``MAX_OPENING_FRAMES`` frames wait until one has content. A guard that
    blocks the first words can then send an error status instead of ending a stream. Keepalives
    pass.
    """

    def __init__(self, engine: Engine, rules: StageRules, body: Json, record: Record) -> None:
        rules = bind_to_prompt(rules, body)
        threads, max_texts = engine.get_threads(record.key), engine.max_texts
        tally = partial(RuleTally, clock=engine.clock, max_texts=max_texts)
        self._tallies = [tally(rule) for rule in rules.detectors]
        calls = engine.build_service_caller(body, record) if rules.services else None
        self._stages = [
            StreamServiceInspector(group, calls, threads, max_texts)
            for group in split_by_enforcement(rules.services)
            if group and calls is not None
        ]
        waits = any(tally.rule.enforces for tally in self._tallies)
        waits = waits or any(stage.holds_frames for stage in self._stages)
        self._opening: list[Frame] | None = [] if waits else None
        run_job = DeadlineJobRunner(threads, self._tallies)
        self._frames = StreamFilter.for_rules(self._tallies, run_job=run_job)

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        released = None if self._stages else self._frames.try_inspect(frame)
        if not released or self._opening is None:
            return released
        return self._hold_until_content(released)

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        released: Sequence[Frame] = await self._frames.inspect(frame)
        if self._frames.opaque:
            for tally in self._tallies:
                tally.opaque = True
        for stage in self._stages:
            released = await stage.inspect(released)
        return self._hold_until_content(released)

    def _hold_until_content(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Hold frames until one has content or ends. Return the frames that may be sent."""
        if self._opening is None or not frames:
            return frames
        alive = [frame for frame in frames if not frame.events and frame.doc is None]
        self._opening += [frame for frame in frames if frame.events or frame.doc is not None]
        has_content = any(f.last or any(map(_is_content_or_end, f.events)) for f in frames)
        if len(self._opening) <= MAX_OPENING_FRAMES and not has_content:
            return alive
        opening, self._opening = self._opening, None
        return [*alive, *opening]

    def get_results(self) -> tuple[GuardResult, ...]:
        """Return the results of all rules so far."""
        service_results = [result for stage in self._stages for result in stage.get_results()]
        return (*(tally.to_result() for tally in self._tallies), *service_results)


class ValueRestorer:
    """Puts the values that were masked in the request back into its response."""

    def __init__(self, masks: Masks, engine: Engine, caller: object, call: Call) -> None:
        self._masks = masks
        self._clock = engine.clock
        self._threads = engine.get_threads(caller)
        self._call = call
        self._frames = StreamFilter(masks, self._threads) if call.stream else None

    async def restore(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Return the frames with values in place of placeholders. Partial placeholders are held.

        The raw bytes are dropped, because they still contain the placeholders.
        """
        frames = list(map(remove_raw_bytes, frames))
        if self._frames is not None:
            return await self._frames.inspect_all(frames, self._clock)
        jobs = [partial(restore_masked_values, frame, self._masks, self._call) for frame in frames]
        return [await self._threads(job) for job in jobs]

    def release_partial_placeholder(self) -> Sequence[Frame]:
        """Return the frames that were held for an incomplete placeholder."""
        return self._frames.close() if self._frames is not None else ()


@dataclass(slots=True, eq=False, repr=False)
class OutputInspector:
    """The output guards of one response.

    With ``holds_response``, all frames wait until the end, because a guard may request another
    response. Then ``is_retry_requested`` is True and no frame of this response is sent. With
    ``drops_raw_bytes``, documents are sent instead of the bytes they were read from: the bytes may
    have a member twice, of which guards read one.
    """

    inspector: FrameInspector
    restorer: ValueRestorer | None
    call_capture: CallCapture | None
    thoughts: ThoughtRecorder | None
    holds_response: bool
    drops_raw_bytes: bool
    is_retry_requested: bool = False
    _held: list[Frame] = field(default_factory=list)
    _was_shown: bool = False

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        if self.holds_response or self.restorer is not None or self.call_capture is not None:
            return None
        released = self.inspector.try_inspect(frame)
        if not released:
            return released
        self._was_shown = True
        return self._record_thoughts_and_drop_bytes(released)

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        try:
            released = await self.inspector.inspect(frame)
        except GuardRetryRequested as error:
            drop_tracebacks(error)  # the guard's result refers to the error
            self.is_retry_requested = True
            return ()
        if self.call_capture is not None:
            await self._capture_frames(released, self.call_capture)
        released = self._record_thoughts_and_drop_bytes(released)
        if self.holds_response:
            self._held += released
            released = self._held if frame.last else ()
        if self.restorer is not None:
            released = await self.restorer.restore(released)
        self._was_shown = self._was_shown or bool(released)
        return released

    async def _capture_frames(self, frames: Sequence[Frame], call_capture: CallCapture) -> None:
        turn = TimeSlice(call_capture.clock)
        turn.start()
        for frame in frames:  # all frames that were held may be released at once
            call_capture.feed(frame)
            if turn.is_over():
                await turn.pause()

    def _record_thoughts_and_drop_bytes(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        if self.thoughts is not None:
            for frame in frames:
                self.thoughts.feed(frame)
        return [*map(remove_raw_bytes, frames)] if self.drops_raw_bytes else frames

    def release_partial_placeholder(self) -> Sequence[Frame]:
        """Return the frames that were held for an incomplete placeholder.

        Return nothing if nothing was sent, so that the client gets an error response.
        """
        if self.restorer is None or not self._was_shown:
            return ()
        return self.restorer.release_partial_placeholder()


def remove_raw_bytes(frame: Frame) -> Frame:
    """Return a frame whose document is sent instead of its bytes."""
    return frame if frame.doc is None or frame.raw is None else frame._replace(raw=None)
