"""Connection pool: bounds, waiting, reuse and expiry."""

from __future__ import annotations

import asyncio
import socket

import pytest

from proxy.errors import StaleConnection, UpstreamTimeout, UpstreamUnavailable
from proxy.types import Timeouts
from proxy.upstream.client import KEEPALIVE_S, LINGER_S, HttpClient, Pool, PoolExhausted
from proxy.upstream.reply import do_nothing
from proxy.upstream.wire.connection import STALE_S, Connection
from proxy.upstream.wire.dialing import Dialer, DnsCache, Origin
from tests.doubles import (
    PATIENCE_S,
    TRUST,
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    hang,
    http_chunk,
    scripted_upstream,
    sends,
)
from tests.for_each import for_each
from tests.servers import eventually
from tests.upstream.wire.test_connection import OK, PATIENT, STREAM, ask


def pool_of(bound: int, keepalive_s: float = KEEPALIVE_S, linger_s: float = LINGER_S) -> Pool:
    return Pool(Dialer(None, DnsCache()), bound, keepalive_s, linger_s)


def origin_of(upstream: ScriptedUpstream) -> Origin:
    return Origin("127.0.0.1", int(upstream.url.rpartition(":")[2]), tls=False)


async def used(connection: Connection) -> None:
    connection.send(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n", b"", float("inf"), do_nothing)
    await connection.read_head(2)


async def test_last_used_connection_is_reused_first(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(sends(OK))
    pool, origin = pool_of(5), origin_of(upstream)
    first_connection, second = await pool.take(origin, 1), await pool.take(origin, 1)
    for connection in (first_connection, second):
        await used(connection)
        pool.return_connection(origin, connection)

    assert [await pool.take(origin, 1), await pool.take(origin, 1)] == [second, first_connection]
    pool.abort_all()


async def test_calls_wait_in_order_for_a_bounded_time(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(sends(OK))
    pool, origin = pool_of(1), origin_of(upstream)
    lent = await pool.take(origin, 1)
    with pytest.raises(PoolExhausted) as timeout_error:
        await pool.take(origin, 0.05)

    waiting = [asyncio.create_task(pool.take(origin, 1)) for _ in range(2)]
    await asyncio.sleep(0)
    await used(lent)
    pool.return_connection(origin, lent)

    assert await waiting[0] is lent
    assert not waiting[1].done()
    assert timeout_error.value.code == "upstream_connect_timeout"
    await used(lent)
    pool.return_connection(origin, lent)
    assert await waiting[1] is lent
    pool.abort_all()


async def test_idle_connection_is_closed_for_another_origin() -> None:
    async with (
        scripted_upstream() as upstream,
        scripted_upstream() as other_upstream,
        HttpClient(TRUST, connections=2) as http,
    ):
        upstream.answer_with(sends(OK))
        other_upstream.answer_with(hang())
        assert await ask(http, upstream.url) == b"ok"
        asking = [asyncio.create_task(ask(http, other_upstream.url)) for _ in range(2)]
        async with asyncio.timeout(PATIENCE_S):
            await upstream.requests[0].closed.wait()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def test_failed_connection_releases_its_slot() -> None:
    async with HttpClient(TRUST, connections=1) as http:
        for _ in range(3):
            with pytest.raises(UpstreamUnavailable):
                await http.request("http://127.0.0.1:9/", {}, b"", PATIENT)


async def test_cancelled_call_releases_its_slot(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    async with HttpClient(TRUST, connections=1) as http:
        for count in (1, 2, 3):
            upstream.arrived.clear()
            asking = asyncio.create_task(ask(http, upstream.url))
            await upstream.arrived.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert len(upstream.requests) == count


async def test_connection_is_released_once(upstream: ScriptedUpstream) -> None:
    pool, origin = pool_of(1), origin_of(upstream)
    lent = await pool.take(origin, 1)
    pool.return_connection(origin, lent)
    pool.return_connection(origin, lent)

    connection = await pool.take(origin, 1)
    with pytest.raises(UpstreamTimeout):
        await pool.take(origin, 0.05)

    assert connection is not lent
    pool.abort_all()


async def test_idle_connection_closed_by_the_server_is_dropped(upstream: ScriptedUpstream) -> None:
    async def answer_and_leave(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(OK)
        wire.keep = False

    upstream.answer_with(answer_and_leave)
    pool, origin = pool_of(5), origin_of(upstream)
    lent = await pool.take(origin, 1)
    await used(lent)
    pool.return_connection(origin, lent)

    await eventually(lambda: pool.idle == 0)
    assert await pool.take(origin, 1) is not lent
    pool.abort_all()


@for_each("delayed", [OK, b""], ids=["an answer to nothing", "the end"])
async def test_unread_close_of_an_idle_connection_is_noticed(delayed: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pool = pool_of(1)
        origin = Origin("127.0.0.1", int(listening.getsockname()[1]), tls=False)
        lent = await pool.take(origin, 1)
        peer, _ = listening.accept()
        with peer:
            peer.sendall(OK)
            await used(lent)
            pool.return_connection(origin, lent)
            peer.sendall(delayed)
            if not delayed:
                peer.shutdown(socket.SHUT_WR)

            assert pool.try_take_idle(origin) is None
            assert await pool.take(origin, 1) is not lent
    pool.abort_all()


async def test_idle_connection_expires(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(sends(OK))
    pool, origin = pool_of(5, keepalive_s=0.05), origin_of(upstream)
    lent = await pool.take(origin, 1)
    await used(lent)
    pool.return_connection(origin, lent)

    await eventually(lambda: pool.idle == 0)
    async with asyncio.timeout(PATIENCE_S):
        await upstream.requests[0].closed.wait()


async def test_stale_connection_sends_nothing_twice(upstream: ScriptedUpstream) -> None:
    async def leave(request: ReceivedRequest, wire: Wire) -> None:
        wire.cut()

    async with HttpClient(TRUST) as http:
        upstream.answer_with(leave)
        with pytest.raises(UpstreamUnavailable) as failed:
            await ask(http, upstream.url)
        assert not isinstance(failed.value, StaleConnection)

        upstream.answer_with(sends(OK))
        await ask(http, upstream.url)
        upstream.answer_with(leave)
        with pytest.raises(StaleConnection):
            await ask(http, upstream.url)
        assert (len(upstream.requests), upstream.connections) == (3, 2)


async def work_and_die(request: ReceivedRequest, wire: Wire) -> None:
    await asyncio.sleep(2 * STALE_S)  # the test measures a delay
    wire.cut()


async def start(request: ReceivedRequest, wire: Wire) -> None:
    await wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    wire.keep = False


@pytest.mark.parametrize("script", [work_and_die, start])
async def test_late_close_is_not_stale(script: Script, upstream: ScriptedUpstream) -> None:
    upstream.then(sends(OK), script)
    async with HttpClient(TRUST) as http:
        await ask(http, upstream.url)
        with pytest.raises(UpstreamUnavailable) as failed:
            await ask(http, upstream.url)

    assert not isinstance(failed.value, StaleConnection)
    assert (upstream.connections, len(upstream.requests)) == (1, 2)


async def test_response_does_not_wait_for_the_last_chunk(upstream: ScriptedUpstream) -> None:
    ends = asyncio.Event()

    async def late_end(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(STREAM, http_chunk(b"[DONE]"))
        await ends.wait()
        await wire.send(b"0\r\n\r\n")

    upstream.answer_with(late_end)
    origin, pool = origin_of(upstream), pool_of(1, linger_s=60)
    connection = await pool.take(origin, 2)
    await used(connection)
    assert await connection.read(2, 2) == b"[DONE]"

    pool.return_when_complete(origin, connection)
    assert (pool.in_use, pool.idle) == (1, 0)
    ends.set()
    await eventually(lambda: pool.idle == 1)
    assert await pool.take(origin, 2) is connection
    pool.abort_all()


@pytest.mark.parametrize(
    "remainder", [b"", b"4\r\nmore\r\n", b"garbage\r\n"], ids=["never", "more", "no chunk"]
)
async def test_endless_response_is_closed(remainder: bytes, upstream: ScriptedUpstream) -> None:
    async def endless(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(STREAM, http_chunk(b"[DONE]"), remainder)
        await request.closed.wait()

    upstream.answer_with(endless)
    async with HttpClient(TRUST, linger_s=0.05) as http:
        async with await http.request(upstream.url, {}, b"", PATIENT) as reply:
            await reply.read()
            reply.release_after_last_frame()
        await eventually(lambda: http.pool.in_use + http.pool.idle == 0)


async def test_closing_the_client_ends_every_connection(upstream: ScriptedUpstream) -> None:
    upstream.then(sends(OK), hang())
    async with HttpClient(TRUST) as http:
        await ask(http, upstream.url)
        asking = asyncio.create_task(ask(http, upstream.url, Timeouts()))
        await eventually(lambda: len(upstream.requests) == 2)

    async with asyncio.timeout(PATIENCE_S):
        await upstream.requests[1].closed.wait()
        with pytest.raises(UpstreamUnavailable):
            await asking
