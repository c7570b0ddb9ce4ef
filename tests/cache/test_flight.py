"""An answer on its way to several: order, pace, and every end it may come to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from proxy.cache.flight import Flight, Listener
from proxy.call.record import Record
from proxy.errors import ProxyError, UpstreamInvalid, UpstreamUnavailable
from proxy.types import Call, Json, RequestHead, ResponseHead
from proxy.types.events import STOP, Frame
from tests.doubles import PATIENCE_S
from tests.for_each import for_each

CALL = Call(RequestHead("openai", "responses", "/v1/responses", "req_1"), {"user": "bertha"})
CHUNKS = [Frame((), "chat", {"n": n}) for n in range(5)] + [Frame((STOP,), "chat", last=True)]


async def collect(flight: Flight) -> list[Frame]:
    with flight.listen() as listener:
        return await collect_rest(listener)


async def turns(count: int = 10) -> None:
    """Let all tasks come as far as they can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_all_listeners_get_all_frames() -> None:
    flight = Flight()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(collect(flight))]
        for frame in CHUNKS:
            await flight.add(frame)
            tasks.append(group.create_task(collect(flight)))
            await turns(1)

    assert [task.result() for task in tasks] == [CHUNKS] * 7


async def test_error_follows_earlier_frames() -> None:
    flight = Flight()
    await flight.add(CHUNKS[0])
    flight.close(UpstreamInvalid("broken"))

    with flight.listen() as listener:
        assert await listener.next() == [CHUNKS[0]]
        with pytest.raises(UpstreamInvalid, match="broken"):
            await listener.next()


async def test_end_without_last_frame_is_an_error() -> None:
    flight = Flight()
    flight.close()

    with pytest.raises(UpstreamUnavailable):
        await collect(flight)


async def test_first_error_wins() -> None:
    flight = Flight()
    flight.close(ProxyError("first"))
    flight.close(ProxyError("second"))

    assert flight.failure().message == "first"


async def test_can_listen_from_first_frame_until_failure() -> None:
    flight, complete = Flight(), Flight()
    states = [flight.can_listen]
    await flight.add(CHUNKS[0])
    states.append(flight.can_listen)
    flight.close()
    await complete.add(CHUNKS[-1])
    complete.close()

    assert [*states, flight.can_listen, complete.can_listen] == [False, True, False, True]


async def test_start_waits_for_frame_or_end() -> None:
    flight, empty = Flight(), Flight()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        waiting = [group.create_task(pending.wait_started()) for pending in (flight, empty)]
        await turns()
        assert not any(task.done() for task in waiting)
        await flight.add(CHUNKS[0])
        empty.close()


async def test_flight_without_listeners_is_unneeded() -> None:
    flight = Flight()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        with flight.listen(), flight.listen():
            waiting = group.create_task(flight.wait_unneeded())
            await turns()
            assert not waiting.done()


async def test_complete_flight_is_needed_until_closed() -> None:
    flight = Flight()
    await flight.add(CHUNKS[-1])
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        waiting = group.create_task(flight.wait_unneeded())
        await turns()
        assert not waiting.done()
        flight.close()


async def test_oversize_flight_waits_for_slowest_listener() -> None:
    flight = Flight()

    async def fill() -> None:
        for number, frame in enumerate(CHUNKS):
            flight.is_oversize = number >= 2
            await flight.add(frame)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        with flight.listen() as slow:
            group.create_task(collect(flight))
            filling = group.create_task(fill())
            await turns()
            assert not flight.is_joinable
            assert len(flight.frames) == 3
            received = [*await slow.next(), *await slow.next(), *await slow.next()]
            await turns()
            assert not filling.done()  # until it comes back for more
            received += await collect_rest(slow)

    assert received == CHUNKS
    assert len(flight.frames) <= 1


async def collect_rest(listener: Listener) -> list[Frame]:
    frames = await listener.next()
    while not frames[-1].last:
        frames += await listener.next(2)
    return frames


async def test_leaving_listener_blocks_nobody() -> None:
    flight = Flight()
    flight.is_oversize = True
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        with flight.listen():
            adding = group.create_task(flight.add(CHUNKS[0]))
            await turns()
            assert not adding.done()


class Straight:
    """Where a listener shows frames at once, while it is ``ready``."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.ready = True

    async def start(self, head: ResponseHead, record: Record) -> None:
        """A head is not shown here."""

    async def send(self, frames: Sequence[Frame]) -> None:
        self.frames += frames

    def try_send(self, frames: Sequence[Frame]) -> bool:
        self.frames += frames if self.ready else ()
        return self.ready


async def play(flight: Flight, to: Straight, call: Call | None = None) -> int:
    """Show an answer, and return how often its listener had to be woken."""
    woken = 0
    with flight.listen(call) as listener:
        frames = await listener.next(64)
        listener.sink = to
        while True:
            woken += 1
            await to.send(frames)
            if frames[-1].last:
                return woken
            frames = await listener.next(64)


async def test_waiting_listener_gets_frames_directly() -> None:
    flight, to = Flight(), Straight()
    await flight.add(CHUNKS[0])
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        showing = group.create_task(play(flight, to))
        hearing = group.create_task(collect(flight))
        await turns()
        for frame in CHUNKS[1:-1]:
            flight.add_nowait(frame)
        assert to.frames == CHUNKS[:-1]  # at once: nobody had a turn
        await flight.add(CHUNKS[-1])

    assert to.frames == hearing.result() == CHUNKS
    assert showing.result() == 2


@for_each("position", range(1, 5))
async def test_busy_listener_is_woken_and_misses_nothing(position: int) -> None:
    flight, to = Flight(), Straight()
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


class Breaking(Straight):
    """One that cannot write what it is to show."""

    def try_send(self, frames: Sequence[Frame]) -> bool:
        raise KeyError("inside")


async def test_sink_error_affects_one_listener() -> None:
    flight, to = Flight(), Straight()
    await flight.add(CHUNKS[0])
    async with asyncio.timeout(PATIENCE_S):
        breaking = asyncio.ensure_future(play(flight, Breaking()))
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
    flight, to = Flight(), Straight()
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
