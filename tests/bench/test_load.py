"""The load generator, against the benchmark's upstream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from bench import bodies
from bench.load import CallFailed, Job, LoadRun
from bench.upstream import Provider, document, stream

TOO_MANY_REQUESTS = b"HTTP/1.1 429 Too Many\r\ncontent-length: 2\r\n\r\n{}"


class RejectingUpstream(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(TOO_MANY_REQUESTS)


class SlowStart(Provider):
    """Delays the first request of each connection by 0.3 s."""

    is_first = True

    def data_received(self, data: bytes) -> None:
        if self.is_first:
            self.is_first = False
            self.loop.call_later(0.3, super().data_received, data)
        else:
            super().data_received(data)


@asynccontextmanager
async def serving(kind: type[asyncio.Protocol] = Provider) -> AsyncIterator[int]:
    arguments = () if kind is RejectingUpstream else (document(500), stream(3), 0.001)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(kind, *arguments), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.sockets
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
async def test_total_is_the_number_of_calls(is_stream: bool) -> None:
    async with serving() as port:
        run = LoadRun(Job(port=port, total=20, connections=4, stream=is_stream, seed=5))
        result = await run.run()

    assert result.calls == 20
    assert run.seed == 25
    assert 0 < result.first_p50 <= result.p50 <= result.p99


@pytest.mark.sockets
async def test_open_loop_charges_for_the_queue() -> None:
    """All requests that are due during the first 0.3 s wait for the only connection."""
    async with serving(SlowStart) as port:
        result = await LoadRun(Job(port=port, seconds=0.2, rate=50, connections=1)).run()

    assert result.calls == 10
    assert result.p50 > 100_000


@pytest.mark.sockets
async def test_error_response_fails_the_run() -> None:
    async with serving(RejectingUpstream) as port:
        with pytest.raises(CallFailed, match="429 Too Many"):
            await LoadRun(Job(port=port, total=1)).run()


def test_seeds_make_bodies_of_equal_length_unique() -> None:
    incomplete = bodies.chat(1000, seed=True, stream=True)
    first_body, second_body = (incomplete + bodies.number(seed) for seed in (1, 2_000_000))

    assert json.loads(first_body)["seed"] != json.loads(second_body)["seed"]
    assert json.loads(first_body)["stream"]
    assert len(first_body) == len(second_body)
