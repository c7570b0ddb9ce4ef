"""Redis store: an unavailable, slow or empty server is a miss and never an error."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cache.redis import KEY_PREFIX, MAX_CONNECTIONS, RedisAnswerStore
from proxy.runtime.redis import create_client
from tests.cache.stores import Clock, StoreEventLog, flush
from tests.doubles import PATIENCE_S
from tests.servers import Cluster, Server, running_server

KEY, OTHER_KEY = b"k" * 32, b"o" * 32


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "redis") as running:
        yield running


def store(
    server: Server | Cluster, events: StoreEventLog, clock: Clock, timeout_s: float = 1.0
) -> RedisAnswerStore:
    client = create_client(server.at.urls, timeout_s, cluster=server.at.cluster)
    return RedisAnswerStore(client, clock, events)


async def write(opened: RedisAnswerStore, key: bytes = KEY) -> None:
    opened.save(key, b"value", 60)
    await flush(opened)


async def test_exit_writes_pending_values(server: Server) -> None:
    async with store(server, StoreEventLog(), Clock()) as opened:
        opened.save(KEY, b"value", 60)

    async with store(server, StoreEventLog(), Clock()) as reopened:
        assert await reopened.get(KEY) == b"value"


async def test_redis_key_is_a_hash_and_expires(server: Server) -> None:
    async with store(server, StoreEventLog(), Clock()) as opened:
        await write(opened)

        with server.admin as admin:
            assert admin.keys("*") == [KEY_PREFIX + KEY.hex().encode()]
            assert 0 < int(admin.pttl(KEY_PREFIX + KEY.hex().encode())) <= 60_000


async def test_unreachable_server_is_skipped_until_pause_ends(server: Server) -> None:
    clock, events = Clock(), StoreEventLog()
    async with store(server, events, clock) as opened:
        await write(opened)
        server.kill()

        assert [await opened.get(KEY) for _ in range(5)] == [None] * 5
        opened.save(OTHER_KEY, b"value", 60)
        assert events.failures == 1
        assert events.evictions["dropped"] == 1

        server.start()
        assert await opened.get(OTHER_KEY) is None
        clock.now += 1
        await write(opened, OTHER_KEY)
        assert await opened.get(OTHER_KEY) == b"value"
    assert events.failures == 1


async def test_hanging_server_costs_one_timeout(server: Server) -> None:
    events, count = StoreEventLog(), 100 * MAX_CONNECTIONS
    async with store(server, events, Clock(), timeout_s=0.5) as opened:
        await write(opened)
        server.signal(signal.SIGSTOP)

        async with asyncio.timeout(PATIENCE_S):  # in sequence they would take 50 s
            assert await asyncio.gather(*(opened.get(KEY) for _ in range(count))) == [None] * count
        server.signal(signal.SIGCONT)
    assert events.failures <= MAX_CONNECTIONS


async def test_failed_writes_are_reported(server: Server) -> None:
    events = StoreEventLog()
    async with store(server, events, Clock()) as opened:
        server.kill()
        await write(opened)

    assert (events.failures, events.evictions["dropped"]) == (1, 1)


async def test_missing_server_blocks_no_call(tmp_path: Path) -> None:
    events = StoreEventLog()
    absent = Server(tmp_path)
    async with store(absent, events, Clock(), timeout_s=0.2) as opened:
        assert await opened.get(KEY) is None
    assert events.failures == 1


@pytest.mark.parametrize("reply", [b"!!\r\n\xff\xfe", b"$-5\r\n", b"*1\r\n:x\r\n", b""])
async def test_invalid_reply_is_a_miss(reply: bytes, tmp_path: Path) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply)
        writer.close()

    events = StoreEventLog()
    async with await asyncio.start_server(speak, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        async with store(Server(tmp_path, port), events, Clock()) as opened:
            await write(opened)

            assert await opened.get(KEY) is None
    assert events.evictions["dropped"] == 1
