"""A response with several listeners: order, pace, and all ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from proxy.cache.flight import Flight, FlightListener
from proxy.call.record import Record
from proxy.types import Call, Json, RequestHead, ResponseHead
from proxy.types.events import RESPONSE_END, Frame
from tests.doubles import PATIENCE_S
from tests.for_each import for_each

CALL = Call(RequestHead("openai", "responses", "/v1/responses", "req_1"), {"user": "bertha"})
LAST = Frame((RESPONSE_END,), "chat", last=True)
CHUNKS = [*(Frame((), "chat", {"n": n}) for n in range(5)), LAST]


async def collect(flight: Flight) -> list[Frame]:
    with FlightListener(flight) as listener:
        return await collect_rest(listener)


async def turns(count: int = 10) -> None:
    """Run the event loop for ``count`` iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


async def collect_rest(listener: FlightListener) -> list[Frame]:
    frames = await listener.next_frames()
    while not frames[-1].last:
        frames += await listener.next_frames(2)
    return frames


class ImmediateSink:
    """A sink that accepts frames without waiting while it is ``ready``."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.ready = True

    async def set_response_head(self, head: ResponseHead, record: Record) -> None:
        """The head is ignored."""

    async def send(self, frames: Sequence[Frame]) -> None:
        self.frames += frames

    def try_send(self, frames: Sequence[Frame]) -> bool:
        self.frames += frames if self.ready else ()
        return self.ready


async def play(flight: Flight, to: ImmediateSink, call: Call | None = None) -> int:
    """Play a response and return how often its listener was woken."""
    woken = 0
    with FlightListener(flight, call) as listener:
        frames = await listener.next_frames(64)
        listener.sink = to
        while True:
            woken += 1
            await to.send(frames)
            if frames[-1].last:
                return woken
            frames = await listener.next_frames(64)


async def test_waiting_listener_gets_frames_directly() -> None:
    flight, to = Flight(), ImmediateSink()
    await flight.add(CHUNKS[0])
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        showing = group.create_task(play(flight, to))
        hearing = group.create_task(collect(flight))
        await turns()
        for frame in CHUNKS[1:-1]:
            flight.add_nowait(frame)
        assert to.frames == CHUNKS[:-1]  # sent without another loop iteration
        await flight.add(CHUNKS[-1])

    assert to.frames == hearing.result() == CHUNKS
    assert showing.result() == 2


@for_each("position", range(1, 5))
async def test_busy_listener_is_woken_and_misses_nothing(position: int) -> None:
    flight, to = Flight(), ImmediateSink()
    await flight.add(CHUNKS[0])
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(play(flight, to))
        await turns()
        for number, frame in enumerate(CHUNKS[1:-1], 1):
            to.ready = number != position
            flight.add_nowait(frame)
            assert to.frames == CHUNKS[: number + 1 if number < position else position]
        await turns()
        assert to.frames == CHUNKS[:-1]
        await flight.add(CHUNKS[-1])

    assert to.frames == CHUNKS


class FailingSink(ImmediateSink):
    """A sink that raises on write."""

    def try_send(self, frames: Sequence[Frame]) -> bool:
        raise KeyError("inside")


async def test_sink_error_affects_one_listener() -> None:
    flight, to = Flight(), ImmediateSink()
    await flight.add(CHUNKS[0])
    async with asyncio.timeout(PATIENCE_S):
        breaking = asyncio.ensure_future(play(flight, FailingSink()))
        showing = asyncio.ensure_future(play(flight, to))
        await turns()
        for frame in CHUNKS[1:-1]:
            flight.add_nowait(frame)
        await flight.add(CHUNKS[-1])
        with pytest.raises(KeyError):
            await breaking
        await showing

    assert to.frames == CHUNKS
    assert flight.listeners == set()


def repeating(user: str, n: int) -> Frame:
    nobody: Json = {"metadata": {}, "safety_identifier": None}
    response = {"n": n, "user": user, **nobody}
    raw = b"anna's" if user == "anna" else None
    return Frame((), "responses", {"type": "response.created", "response": response}, raw)


async def test_listener_gets_its_own_request_echoed() -> None:
    flight, to = Flight(), ImmediateSink()
    received = [*(repeating("anna", n) for n in range(3)), CHUNKS[-1]]
    await flight.add(received[0])
    async with asyncio.timeout(PATIENCE_S):
        showing = asyncio.ensure_future(play(flight, to, CALL))
        leading = asyncio.ensure_future(collect(flight))
        await turns()
        for frame in received[1:-1]:
            flight.add_nowait(frame)
        await flight.add(received[-1])
        await showing

    assert await leading == received
    assert to.frames == [*(repeating("bertha", n) for n in range(3)), CHUNKS[-1]]
