"""The store in Redis: a server that is away, slow, or empty is a miss and never an error."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cache.redis import CONNECTIONS, MAX_PENDING_BYTES, PREFIX, Redis
from proxy.runtime.redis import connect
from tests.cache.stores import Clock, Told
from tests.doubles import PATIENCE_S
from tests.servers import Cluster, Server, running_server

KEY, OTHER = b"k" * 32, b"o" * 32


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "redis") as running:
        yield running


def store(server: Server | Cluster, told: Told, clock: Clock, timeout_s: float = 1.0) -> Redis:
    return Redis(connect(server.at.urls, timeout_s, cluster=server.at.cluster), clock, told)


async def test_processes_share_a_server(server: Server) -> None:
    clock = Clock()
    async with store(server, Told(), clock) as one, store(server, Told(), clock) as two:
        one.put(KEY, b"value", 60)
        await one.written()

        assert await two.get(KEY) == b"value"


async def test_what_waits_is_written_on_the_way_out(server: Server) -> None:
    async with store(server, Told(), Clock()) as opened:
        opened.put(KEY, b"value", 60)

    async with store(server, Told(), Clock()) as again:
        assert await again.get(KEY) == b"value"


async def test_a_key_on_the_server_is_a_hash_that_expires(server: Server) -> None:
    async with store(server, Told(), Clock()) as opened:
        opened.put(KEY, b"value", 60)
        await opened.written()

        with server.admin as admin:
            assert admin.keys("*") == [PREFIX + KEY.hex().encode()]
            assert 0 < int(admin.pttl(PREFIX + KEY.hex().encode())) <= 60_000


async def test_a_server_that_is_away_is_left_alone_for_a_while_and_found_again(
    server: Server,
) -> None:
    clock, told = Clock(), Told()
    async with store(server, told, clock) as opened:
        opened.put(KEY, b"value", 60)
        await opened.written()
        server.kill()

        assert [await opened.get(KEY) for _ in range(5)] == [None] * 5
        opened.put(OTHER, b"value", 60)
        assert told.failures == 1
        assert told.gone["dropped"] == 1

        server.start()
        assert await opened.get(OTHER) is None
        clock.now += 1
        opened.put(OTHER, b"value", 60)
        await opened.written()
        assert await opened.get(OTHER) == b"value"
    assert told.failures == 1


async def test_a_server_that_hangs_costs_a_call_no_more_than_the_timeout(
    server: Server,
) -> None:
    told = Told()
    async with store(server, told, Clock(), timeout_s=1) as opened:
        opened.put(KEY, b"value", 60)
        await opened.written()
        server.signal(signal.SIGSTOP)

        async with asyncio.timeout(PATIENCE_S):  # one after the other they would take 50 s
            assert await asyncio.gather(*(opened.get(KEY) for _ in range(50))) == [None] * 50
        server.signal(signal.SIGCONT)


async def test_who_waited_for_a_turn_at_a_server_that_hangs_does_not_ask_it(
    server: Server,
) -> None:
    told = Told()
    async with store(server, told, Clock(), timeout_s=0.1) as opened:
        server.signal(signal.SIGSTOP)

        await asyncio.gather(*(opened.get(KEY) for _ in range(10 * CONNECTIONS)))

        server.signal(signal.SIGCONT)
    assert told.failures <= CONNECTIONS


async def test_writes_that_fail_are_told(server: Server) -> None:
    told = Told()
    async with store(server, told, Clock()) as opened:
        server.kill()
        opened.put(KEY, b"value", 60)
        await opened.written()

    assert (told.failures, told.gone["dropped"]) == (1, 1)


async def test_a_server_that_was_never_there_hinders_nobody(tmp_path: Path) -> None:
    told = Told()
    absent = Server(tmp_path)
    async with store(absent, told, Clock(), timeout_s=0.2) as opened:
        assert await opened.get(KEY) is None
    assert told.failures == 1


async def test_more_than_may_wait_is_dropped(server: Server) -> None:
    told = Told()
    async with store(server, told, Clock()) as opened:
        for number in range(20):
            opened.put(number.to_bytes(32, "big"), bytes(MAX_PENDING_BYTES // 10), 60)
        await opened.written()

    assert told.gone["dropped"] == 10


@pytest.mark.parametrize("reply", [b"!!\r\n\xff\xfe", b"$-5\r\n", b"*1\r\n:x\r\n", b""])
async def test_a_server_that_speaks_nonsense_is_a_miss(reply: bytes, tmp_path: Path) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply)
        writer.close()

    told = Told()
    async with await asyncio.start_server(speak, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        async with store(Server(tmp_path, port), told, Clock()) as opened:
            opened.put(KEY, b"value", 60)
            await opened.written()

            assert await opened.get(KEY) is None
    assert told.gone["dropped"] == 1
