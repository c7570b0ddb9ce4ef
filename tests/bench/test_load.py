"""The client of measurements, against the provider of measurements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from bench import bodies
from bench.load import Asking, Failed, Job
from bench.upstream import Provider, document, stream

REFUSED = b"HTTP/1.1 429 Too Many\r\ncontent-length: 2\r\n\r\n{}"


class Refuser(asyncio.Protocol):
    """Answers everything with a refusal."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(REFUSED)


class Slow(Provider):
    """Answers each connection's first request after a while, all others at once."""

    first = True

    def data_received(self, data: bytes) -> None:
        if self.first:
            self.first = False
            self.loop.call_later(0.3, super().data_received, data)
        else:
            super().data_received(data)


@asynccontextmanager
async def serving(kind: type[asyncio.Protocol] = Provider) -> AsyncIterator[int]:
    arguments = () if kind is Refuser else (document(500), stream(3), 0.001)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(kind, *arguments), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.sockets
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
async def test_so_many_calls_are_asked_as_are_wanted(streamed: bool) -> None:
    async with serving() as port:
        asking = Asking(Job(port=port, total=20, connections=4, stream=streamed, seed=5))
        result = await asking.run()

    assert result.calls == 20
    assert asking.next == 25
    assert 0 < result.first_p50 <= result.p50 <= result.p99


@pytest.mark.sockets
async def test_a_large_call_and_answer_come_whole() -> None:
    async with serving() as port:
        result = await Asking(Job(port=port, total=3, connections=1, size=300_000)).run()

    assert result.calls == 3


@pytest.mark.sockets
async def test_for_so_many_seconds_there_is_a_call_under_way() -> None:
    async with serving() as port:
        result = await Asking(Job(port=port, seconds=0.2, connections=2)).run()

    assert result.seconds >= 0.2
    assert result.calls > 2


@pytest.mark.sockets
async def test_in_open_loop_a_call_that_waits_for_its_turn_is_late_by_that() -> None:
    """One connection stands still for 0.3 s at first: whoever is due meanwhile pays for it."""
    async with serving(Slow) as port:
        result = await Asking(Job(port=port, seconds=0.2, rate=50, connections=1)).run()

    assert result.calls == 10
    assert result.p50 > 100_000


@pytest.mark.sockets
async def test_an_answer_that_is_a_refusal_is_no_answer() -> None:
    async with serving(Refuser) as port:
        with pytest.raises(Failed, match="429 Too Many"):
            await Asking(Job(port=port, total=1)).run()


@pytest.mark.parametrize("size", [1000, 10_000, 200_000])
def test_a_body_is_as_large_as_is_wanted(size: int) -> None:
    body = bodies.chat(size)

    assert json.loads(body)["messages"][0]["content"] == bodies.SYSTEM
    assert len(body) == pytest.approx(size, rel=0.05)


def test_calls_with_seeds_differ_and_are_as_long() -> None:
    started = bodies.chat(1000, seed=True, stream=True)
    first_value, second = (json.loads(started + bodies.number(seed)) for seed in (1, 2_000_000))

    assert first_value["seed"] != second["seed"]
    assert first_value["stream"]
    assert len(bodies.number(1)) == len(bodies.number(2_000_000))
