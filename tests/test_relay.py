"""The relay meters, inspects and sends each frame once, whichever task runs it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.call.record import Record, new_record
from proxy.errors import GuardBlocked, ProxyError, UpstreamInvalid
from proxy.pipeline import relay
from proxy.ports import Feed
from proxy.runtime.fair_queue import TIME_SLICE_S, PauseScheduler
from proxy.types import ResponseHead, Target, Upstream
from proxy.types.events import Delta, Frame, Part
from tests.fakes import Unguarded

TEXT = Part("text", 0)
TARGET = Target(Upstream("openai", "openai", "http://127.0.0.1:9"), "gpt-4o-mini")
ACTIONS = ("pass", "pass", "pass", "hold", "wait", "block")
Batch = tuple[bool, list[str]]
"""Whether the frames are fed while the reader waits, and the guard's action for each frame."""


class BatchResponse:
    """Upstream response that delivers frames in batches. Without ``ends`` it then breaks off."""

    def __init__(self, batches: Sequence[tuple[bool, Sequence[Frame]]], *, ends: bool) -> None:
        self.head = ResponseHead(streamed=True)
        self.batches = batches
        self.ends = ends
        self.wakes = 0

    async def frames(self, feed: Feed | None = None) -> AsyncIterator[Sequence[Frame]]:
        for is_fed, frames in self.batches:
            if not is_fed or feed is None:
                self.wakes += 1
                yield frames
            elif (pending := feed(frames)) is not None:
                self.wakes += 1
                await pending
        if not self.ends:
            raise UpstreamInvalid("The stream broke off.")
        yield (Frame((), last=True),)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        return None


class ScriptedGuards(Unguarded):
    """Output guards that do what each frame says. A frame that waits needs ``answer``."""

    def __init__(self) -> None:
        self.held: list[Frame] = []
        self.waiting = asyncio.Event()
        self.answer = asyncio.Event()
        self.answer.set()

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        action = "pass" if frame.doc is None else frame.doc["action"]
        return None if action == "wait" else self._act(frame, action)

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        self.waiting.set()
        await self.answer.wait()
        return self._act(frame, "pass")

    def _act(self, frame: Frame, action: str) -> Sequence[Frame]:
        if action == "block":
            raise GuardBlocked("Blocked.", guard="house", kind="word")
        self.held.append(frame)
        if action == "hold":
            return ()
        released, self.held = self.held, []
        return released

    def release_partial_placeholder(self) -> Sequence[Frame]:
        return self.held


class ClientSink:
    """Collects the sent frames. ``try_results`` are the results of ``try_send``, then True."""

    def __init__(self, try_results: Sequence[bool] = ()) -> None:
        self.frames: list[Frame] = []
        self.try_results = list(try_results)

    async def set_response_head(self, head: ResponseHead, record: Record) -> None:
        """The head is not collected."""

    async def send(self, frames: Sequence[Frame]) -> None:
        self.frames += frames

    def try_send(self, frames: Sequence[Frame]) -> bool:
        is_sent = self.try_results.pop(0) if self.try_results else True
        self.frames += frames if is_sent else ()
        return is_sent


def frame_with(action: str, length: int = 1) -> Frame:
    return Frame((Delta(TEXT, "x" * length),), "chat", {"action": action})


async def relay_response(
    response: BatchResponse, sink: ClientSink
) -> tuple[list[Frame], int, str | None]:
    """Return the sent frames, the metered output and the error code."""
    record = new_record()
    attempt = record.start_attempt(TARGET, 0)
    record.use_attempt(0, attempt)
    error_code = None
    try:
        await relay(response, ScriptedGuards(), record, sink, PauseScheduler())
    except ProxyError as error:
        error_code = error.code
    return sink.frames, attempt.meter.output_quarters, error_code


async def test_sends_frames_that_a_guard_cleared_before_it_blocks() -> None:
    frames = [frame_with("pass"), frame_with("pass"), frame_with("block")]

    frames_sent, metered, error = await relay_response(
        BatchResponse([(False, frames)], ends=True), ClientSink()
    )

    assert (frames_sent, metered, error) == (frames[:2], 3, "guardrail_blocked")


async def test_relays_clear_frames_without_waking_the_reader() -> None:
    batches = [(True, [frame_with("pass")]), (True, [frame_with("hold"), frame_with("pass")])]
    response = BatchResponse(batches, ends=True)

    frames_sent, metered, error = await relay_response(response, ClientSink())

    assert (len(frames_sent), metered, error) == (4, 3, None)
    assert response.wakes == 0


@pytest.mark.parametrize(
    ("action", "expected"), [("wait", (4, 3, None)), ("block", (1, 2, "guardrail_blocked"))]
)
async def test_wakes_the_reader_for_a_slow_or_blocking_guard(
    action: str, expected: tuple[int, int, str | None]
) -> None:
    frames = [frame_with("pass"), frame_with(action), frame_with("pass")]
    response = BatchResponse([(True, frames)], ends=True)

    frames_sent, metered, error = await relay_response(response, ClientSink())

    assert response.wakes == 1
    assert (len(frames_sent), metered, error) == expected


async def test_call_cancelled_during_inspection_sends_nothing_more() -> None:
    record, guards, sink = new_record(), ScriptedGuards(), ClientSink()
    guards.answer.clear()
    attempt = record.start_attempt(TARGET, 0)
    record.use_attempt(0, attempt)
    frames = [frame_with("pass"), frame_with("wait"), frame_with("pass")]
    response = BatchResponse([(True, frames)], ends=True)

    task = asyncio.ensure_future(relay(response, guards, record, sink, PauseScheduler()))
    await guards.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (sink.frames, attempt.meter.output_quarters) == ([], 2)


batches = st.lists(
    st.tuples(st.booleans(), st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=4)), max_size=6
)


@given(actions=batches, try_results=st.lists(st.booleans(), max_size=8), ends=st.booleans())
async def test_fed_frames_give_the_same_result_as_returned_frames(
    actions: list[Batch], try_results: list[bool], ends: bool
) -> None:
    lengths = itertools.count(1)
    fed: list[tuple[bool, Sequence[Frame]]] = [
        (is_fed, [frame_with(action, next(lengths)) for action in batch])
        for is_fed, batch in actions
    ]
    returned: list[Any] = [(False, frames) for _, frames in fed]

    result = await relay_response(BatchResponse(fed, ends=ends), ClientSink(try_results))

    assert result == await relay_response(BatchResponse(returned, ends=ends), ClientSink())


def slow_record(key: str) -> Record:
    """Return the record of a call that uses up a time slice with each frame."""
    clock = itertools.count(0, 2 * TIME_SLICE_S)
    record = replace(new_record(), now=lambda: float(next(clock)))
    record.key = key
    record.use_attempt(0, record.start_attempt(TARGET, 0))
    return record


async def test_streams_of_one_key_delay_another_key_by_one_stream() -> None:
    slices, many_sink, single_sink = PauseScheduler(), ClientSink(), ClientSink()
    batches = [(False, [frame_with("pass")])] * 20

    async def relay_slowly(key: str, sink: ClientSink) -> None:
        response = BatchResponse(batches, ends=True)
        await relay(response, ScriptedGuards(), slow_record(key), sink, slices)

    tasks = [asyncio.ensure_future(relay_slowly("search", many_sink)) for _ in range(50)]
    await relay_slowly("support", single_sink)

    assert len(single_sink.frames) == 21
    assert len(many_sink.frames) <= 50 + 21 + 2  # the first frames, then one per round
    await asyncio.gather(*tasks)
    assert len(many_sink.frames) == 50 * 21
