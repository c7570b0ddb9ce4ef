"""Listening addresses, and old and unusual HTTP over raw sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing

import pytest
import uvloop
from aiohttp import web

from proxy.server.listening import listen, require_free_addresses
from proxy.server.server import HttpServer
from proxy.settings import Address, BadSetting
from tests.conftest import KEY, Proxy
from tests.doubles import PATIENCE_S, ScriptedUpstream, legacy_events, stream
from tests.for_each import for_each
from tests.server.http import Connect, http_server
from tests.servers import free_port
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
BODY = json.dumps(ROUTE.body(streamed=False))
STREAMED = json.dumps(ROUTE.body(streamed=True))
HEAD = f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
READ_S = 0.02
"""Time in which the server reads a part alone."""


def request(line: str, *fields: str, body: str = BODY) -> bytes:
    text = "".join(f"{field}\r\n" for field in fields)
    return f"{line}\r\n{text}{HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@for_each(
    ("head", "code"),
    [
        (request(f"POST {ROUTE.path} HTTP/0.9", "Host: x"), b'"http_version_not_supported"'),
        (request(f"POST {ROUTE.path} HTTP/2.0", "Host: x"), b'"http_version_not_supported"'),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"null"),
        (b"GET / HTTP/1.2\r\n\r\n", b"null"),
    ],
)
async def test_other_http_version_is_refused(
    head: bytes, code: bytes, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    body = await proxy.send_bytes(head)

    assert body.split()[1] == b"505"
    assert b'"code":' + code in body
    assert b"The HTTP version is not supported" in body
    assert upstream.requests == []


@pytest.mark.parametrize("keep", [(), ("Connection: keep-alive",)])
async def test_http_1_0_stream_ends_with_its_connection(
    keep: tuple[str, ...], proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(legacy_events(" Par", "is.")))
    request_body = request(f"POST {ROUTE.path} HTTP/1.0", *keep, body=STREAMED)

    fields = await proxy.send_bytes(request_body)

    head, _, body = fields.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    assert b"transfer-encoding" not in head.lower()
    assert b"keep-alive" not in head.lower()
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")


async def test_http_1_0_gets_no_100_continue(proxy: Proxy) -> None:
    body = await proxy.send_bytes(request(f"POST {ROUTE.path} HTTP/1.0", "Expect: 100-continue"))

    assert body.startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize("target", ["http://any.example:80{}", "HTTPS://any.example{}?a=b"])
async def test_absolute_request_target_is_accepted(target: str, proxy: Proxy) -> None:
    line = f"POST {target.format(ROUTE.path)} HTTP/1.1"

    body = await proxy.send_bytes(request(line, "Host: x", "Connection: close"))

    assert body.startswith(b"HTTP/1.1 200 ")


AGENTS = ("User-Agent: one", "user-agent: two")


async def test_repeated_user_agent_is_accepted(proxy: Proxy) -> None:
    line = f"POST {ROUTE.path} HTTP/1.1"
    last = request(line, "Host: x", "Connection: close", *AGENTS)
    reader, writer = await proxy.connect()
    writer.write(request(line, "Host: x", *AGENTS))
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        for part in (last[:60], last[60:150], last[150:]):
            writer.write(part)
            await asyncio.sleep(READ_S)
        remaining = await reader.read()
    writer.close()

    assert (head + remaining).count(b"HTTP/1.1 200 ") == 2


async def test_body_may_look_like_a_head(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    odd = '{"model": "gpt-4o-mini",\r\n\r\n"prompt": "user-agent: a\\r\\nuser-agent: b"}'
    request_body = request(f"POST {ROUTE.path} HTTP/1.1", "Host: x", "Connection: close", body=odd)

    body = await proxy.send_bytes(request_body[:-40], request_body[-40:], pause_s=READ_S)

    assert body.startswith(b"HTTP/1.1 200 ")
    assert upstream.requests[0].json["prompt"] == "user-agent: a\r\nuser-agent: b"


async def test_unfinished_head_is_bounded(proxy: Proxy) -> None:
    _, writer = await proxy.connect()
    writer.write(b"GET /v1/models HTTP/1.1\r\n")
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"x-more: %s\r\n" % (b"y" * 4000))
                await writer.drain()
    writer.close()


GET = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\n"


@asynccontextmanager
async def serving(requests: list[str], linger_s: float = 10.0) -> AsyncIterator[Connect]:
    """A server that records paths and reads no bodies."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        requests.append(request.path)
        if request.path == "/bug":
            raise KeyError("hr-secret-inside")
        return web.Response(text="served")

    async with http_server(handle, lingering_time=linger_s) as connect:
        yield connect


async def test_pipelined_requests_delay_no_other_connection() -> None:
    requests = list[str]()
    async with serving(requests) as connected:
        (reader, asks_much), (single_reader, asks_once) = await connected(), await connected()
        asks_much.write(GET % b"many" * 20)
        asks_once.write(GET % b"one")
        for _ in range(20):
            await reader.readuntil(b"served")
        await single_reader.readuntil(b"served")

        assert requests.count("/many") == 20
        assert requests.index("/one") <= 3
        for writer in (asks_much, asks_once):
            writer.close()


async def test_rest_of_an_unread_body_is_no_request() -> None:
    requests = list[str]()
    async with serving(requests) as connected:
        reader, writer = await connected()
        writer.write(POST + b"GET")
        await reader.readuntil(b"served")
        writer.write(b" /x" + GET % b"next")
        await reader.readuntil(b"served")
        writer.close()

    assert requests == ["/unread", "/next"]


@for_each("count", range(29, 40))
async def test_body_after_its_head_delays_no_later_request(count: int) -> None:
    """aiohttp's parser stops at 32 requests that were not taken, and counts one early."""
    requests = list[str]()
    async with serving(requests) as connected:
        reader, writer = await connected()
        writer.write(POST)
        await reader.readuntil(b"served")
        writer.write(b"GET /x" + GET % b"next" * count)
        for _ in range(count):
            await reader.readuntil(b"served")
        writer.close()

    assert requests == ["/unread", *["/next"] * count]


CHANGES = [
    b"GET /%%b HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: %b\r\n\r\n" % protocol
    for protocol in (b"h2c", b"websocket", b"nothing-known")
]


@for_each("wish", [*CHANGES, b"CONNECT x:443 HTTP/1.1\r\nHost: %b\r\n\r\n"])
async def test_upgrade_request_is_the_last_of_its_connection(wish: bytes) -> None:
    """aiohttp's parser would read bytes of the other protocol as a request."""
    requests = list[str]()
    async with serving(requests) as connected:
        reader, writer = await connected()
        writer.write(wish % b"first" + GET % b"behind")
        body = await reader.readuntil(b"\r\n\r\n")
        writer.close()

    assert b"connection: close" in body.lower()
    assert len(requests) == 1


async def test_unfinished_unread_body_closes_the_connection() -> None:
    requests = list[str]()
    async with serving(requests, linger_s=0.05) as connected:
        reader, writer = await connected()
        writer.write(POST + b"GET")

        assert (await reader.read()).endswith(b"served")
        writer.close()

    assert requests == ["/unread"]


async def test_internal_error_closes_the_connection_silently() -> None:
    requests = list[str]()
    async with serving(requests) as connected:
        reader, writer = await connected()
        writer.write(GET % b"bug" + GET % b"next")
        body = await reader.read()
        writer.close()

    assert body.startswith(b"HTTP/1.1 500 ")
    assert b"connection: close" in body.lower()
    assert b"secret" not in body
    assert requests == ["/bug"]


MANY_CLIENTS, FEW_CLIENTS = 64, 12


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="here")


async def _answer_pid(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    connected = request.transport.get_extra_info("socket")
    at_once = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    return web.Response(text=f"{request.remote} {at_once}")


async def _loop_iterations_until_connected() -> int:
    async with AsyncExitStack() as opened:
        server = HttpServer(_answer)
        address, _ = await listen(opened, server, Address("127.0.0.1", 0))
        for _ in range(MANY_CLIENTS):
            opened.enter_context(closing(socket.create_connection((address.host, address.port))))
        rounds = 0
        while len(server.connections) < MANY_CLIENTS:
            await asyncio.sleep(0)
            rounds += 1
        return rounds


def test_simultaneous_connections_share_an_iteration() -> None:
    assert uvloop.run(_loop_iterations_until_connected()) <= FEW_CLIENTS


async def _answers() -> list[bytes]:
    async with AsyncExitStack() as opened:
        address, _ = await listen(opened, HttpServer(_answer_pid), Address("127.0.0.1", 0))
        clients = [
            opened.enter_context(closing(socket.create_connection((address.host, address.port))))
            for _ in range(MANY_CLIENTS)
        ]
        loop = asyncio.get_running_loop()
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
            client.setblocking(False)
        return [await loop.sock_recv(client, 4096) for client in clients]


def test_simultaneous_connections_are_all_served() -> None:
    answers = uvloop.run(_answers())

    assert [answer.rpartition(b"\r\n")[2] for answer in answers] == [b"127.0.0.1 1"] * MANY_CLIENTS


async def test_stopped_server_accepts_no_connection() -> None:
    async with AsyncExitStack() as opened:
        address, stop = await listen(opened, HttpServer(_answer), Address("127.0.0.1", 0))
        await stop()
        await asyncio.sleep(0)

        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port))


async def test_address_in_use_is_named() -> None:
    async with AsyncExitStack() as opened:
        address, _ = await listen(opened, HttpServer(_answer), Address("127.0.0.1", 0))

        with pytest.raises(OSError, match=f"{address}: Address already in use"):
            await listen(opened, HttpServer(_answer), address)


def test_foreign_address_error_names_the_option() -> None:
    with pytest.raises(BadSetting, match=r"^192.0.2.1:80 \(--listen\): Cannot assign requested"):
        require_free_addresses({"--listen": Address("192.0.2.1", 80)})


def test_two_options_with_one_address_are_refused() -> None:
    address = Address("127.0.0.1", free_port())

    with pytest.raises(BadSetting, match=r"\(--admin-listen\): Address already in use"):
        require_free_addresses({"--listen": address, "--admin-listen": address})

    require_free_addresses({"--listen": address, "--admin-listen": Address("127.0.0.1", 0)})
