"""Framing of requests: one host, one known coding, and chunks of reasonable size.

Anything else is refused and closes the connection, because the start of the next request is
unknown.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from types import FrameType

import pytest
from aiohttp import web

from proxy.dialects import ROUTES as DIALECT_ROUTES
from proxy.server.server import PARSE_BYTES
from proxy.types.passthrough import make_sample_request
from tests.conftest import KEY, Proxy
from tests.doubles import ScriptedUpstream, http_chunk
from tests.for_each import for_each
from tests.server.http import http_server
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
BODY = json.dumps(ROUTE.body(streamed=False)).encode()
LENGTH = f"Content-Length: {len(BODY)}"
CHUNKED = "Transfer-Encoding: chunked"
CHUNKS = http_chunk(BODY) + b"0\r\n\r\n"
MOST_SENT = 16 * 1024 * 1024


def head(*lines: str, host: str = "Host: x", version: str = "1.1") -> bytes:
    fixed = (f"Authorization: Bearer {KEY}", "Content-Type: application/json")
    names = [line for line in (host, *fixed, *lines) if line]
    return "\r\n".join((f"POST {ROUTE.path} HTTP/{version}", *names, "", "")).encode("latin-1")


async def exchange(proxy: Proxy, pieces: Iterable[bytes]) -> tuple[int, bytes]:
    """Send pieces until a response comes; return its status and all bytes up to the end."""
    reader, writer = await proxy.connect()
    async with asyncio.timeout(10):
        answering = asyncio.ensure_future(reader.readline())
        sent_value = 0
        for piece in pieces:
            if answering.done():
                break
            writer.write(piece)
            await writer.drain()
            sent_value += len(piece)
            assert sent_value < MOST_SENT, "nobody minds how much is sent"
        first_data = await answering
        remainder = await reader.read()
    writer.close()
    return int(first_data.split()[1]), first_data + remainder


def endless(begin: bytes, extra: bytes) -> Iterable[bytes]:
    yield begin
    while True:
        yield extra * (64 * 1024 // len(extra))


ONE_BYTE = b"1;" + b"a" * 8000 + b"\r\n \r\n"
ENDLESS = {
    "an extension": endless(head(CHUNKED) + b"5", b";aaaa"),
    "an extension of the last chunk": endless(head(CHUNKED) + CHUNKS[:-4], b";aaaa"),
    "long extensions of many chunks": endless(head(CHUNKED), ONE_BYTE),
    "chunks of a byte": endless(head(CHUNKED), b"1\r\nx\r\n"),
    "zeros": endless(head(CHUNKED), b"0"),
    "trailers": endless(head(CHUNKED) + CHUNKS[:-2], b"a: b\r\n"),
    "a trailer": endless(head(CHUNKED) + CHUNKS[:-2] + b"a: ", b"b"),
}
BROKEN = {
    "a size that is none": [head(CHUNKED) + b"zz\r\n"],
    "a size that is none, later": [head(CHUNKED) + b"1\r\n{\r\n", b"zz\r\n"],
    "more than a chunk": [head(CHUNKED), b"1\r\n{}}\r\n"],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_invalid_framing_is_refused(
    name: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    status, body = await exchange(proxy, BROKEN[name])

    assert status == 400
    assert body.count(b"HTTP/1.") == 1
    assert upstream.requests == []
    for record in proxy.records:
        assert (record.outcome, record.is_internal_error) == ("client_error", False)


@for_each("name", ENDLESS)
async def test_endless_framing_is_cut(name: str, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    """A sender may find the connection reset before it reads the response."""
    with suppress(ConnectionError):
        status, _ = await exchange(proxy, ENDLESS[name])
        assert status == 400

    for record in proxy.records:
        assert (record.status, record.outcome, record.is_internal_error) == (
            400,
            "client_error",
            False,
        )
    assert upstream.requests == []


@pytest.mark.parametrize("path", [ROUTE.path, "/v1/models", "/nothing"])
async def test_head_response_has_no_body(path: str, proxy: Proxy) -> None:
    """A body would be read as the response to the next request on the connection."""
    request_body = head("Content-Length: 0", "Connection: close").replace(
        f"POST {ROUTE.path}".encode(), f"HEAD {path}".encode()
    )

    status, answer = await exchange(proxy, [request_body])

    assert status == {ROUTE.path: 405, "/v1/models": 200}.get(path, 404)
    fields, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-length: 0" not in fields.lower()
    assert body == b""


async def test_small_chunks_and_trailers_are_read(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    chunks = b"".join(b"%x;a=b\r\n%c\r\n" % (1, number) for number in BODY)

    status, _ = await exchange(
        proxy, [head(CHUNKED, "Connection: close"), chunks, b"0;c\r\nd: e\r\n\r\n"]
    )

    assert status == 200
    assert upstream.requests[0].json["prompt"] == ROUTE.content["prompt"]


CODINGS = {
    "Transfer-Encoding: gzip, chunked": 501,
    "Transfer-Encoding: gzip": 400,
    "Transfer-Encoding: chunked, gzip": 400,
    "Transfer-Encoding: chunked, chunked": 400,
    "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked": 400,
    f"Transfer-Encoding: chunked\r\n{LENGTH}": 400,
    f"Transfer-Encoding:\r\n{LENGTH}": 501,
}


@for_each("coding", CODINGS)
async def test_other_transfer_coding_is_refused(
    coding: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    status, body = await exchange(proxy, [head(coding) + (BODY if LENGTH in coding else CHUNKS)])

    assert status == CODINGS[coding]
    assert (b'"code":"transfer_encoding_not_supported"' in body) == (status == 501)
    assert upstream.requests == []


async def test_chunks_in_http_1_0_are_refused(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    status, body = await exchange(proxy, [head(CHUNKED, version="1.0") + CHUNKS])

    assert (status, upstream.requests) == (400, [])
    assert b'"param":"transfer-encoding"' in body


GOOD_HOSTS = ("", "a.example:8080", "[::1]:80", "[::1]", "my_service.space:80", "a:")
BAD_HOSTS = ("a b", "a,b", "u@a", "a/b", "a:8x", "a:1:2", "[::1", "::1", "\xe9", "a?b")


@for_each("host", BAD_HOSTS)
async def test_invalid_host_is_refused(host: str, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    status, body = await exchange(
        proxy, [head(LENGTH, "Connection: close", host=f"Host: {host}") + BODY]
    )

    assert (status, upstream.requests) == (400, [])
    assert b'"param":"host"' in body


@for_each("host", GOOD_HOSTS)
async def test_valid_host_is_accepted(host: str, proxy: Proxy) -> None:
    status, _ = await exchange(
        proxy, [head(LENGTH, "Connection: close", host=f"Host: {host}") + BODY]
    )

    assert status == 200


@for_each(
    ("host", "version", "status"),
    [
        ("", "1.1", 400),
        ("Host: a\r\nHost: b", "1.1", 400),
        ("Host: a\r\nHost: a", "1.1", 400),
        ("Host: a\r\nhost:", "1.1", 400),
        ("Host: a\r\nHost: a", "1.0", 400),
        ("", "1.0", 200),
    ],
)
async def test_exactly_one_host_is_required(
    host: str, version: str, status: int, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    response, _ = await exchange(
        proxy, [head(LENGTH, "Connection: close", host=host, version=version) + BODY]
    )

    assert response == status
    assert len(upstream.requests) == (status == 200)


LARGE = b"{" + b"u" * 300_000 + b"}"
SLICES = len(LARGE) // PARSE_BYTES


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server that responds with the length of the body."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=f"{len(await request.read())} ")

    async with http_server(answer) as connect:
        reader, writer = await connect()
        yield reader, writer
        writer.close()


async def test_body_of_known_length_is_not_inspected() -> None:
    entered = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal entered
        entered += event == "call" and frame.f_code.co_qualname == "ConnectionHandler._parse"

    async with echoing() as (reader, writer):
        sys.setprofile(note)
        writer.write(head(f"Content-Length: {len(LARGE)}") + LARGE)
        answer = await reader.readuntil(f"{len(LARGE)} ".encode())
        sys.setprofile(None)

    assert answer.startswith(b"HTTP/1.1 200")
    assert 0 < entered < SLICES / 2


@for_each("cut", [1, 1000, PARSE_BYTES, PARSE_BYTES + 1, 70_000, 10**9])
async def test_request_after_a_body_of_known_length_is_read(cut: int) -> None:
    """The bytes are cut within the second request's head and within its chunks."""
    body = LARGE[:20_000] if cut == 1 else LARGE
    sent_data = (
        head(f"Content-Length: {len(body)}") + body + head(CHUNKED) + http_chunk(b"12345") * 900
    )
    sent_data += b"0\r\n\r\n"

    async with echoing() as (reader, writer):
        for index in range(0, len(sent_data), cut):
            writer.write(sent_data[index : index + cut])
            await asyncio.sleep(0)
        answers = await reader.read()

    lengths = re.findall(rb"\r\n\r\n(\d+) ", answers)
    assert lengths == [b"%d" % len(body), b"4500"]


async def test_endless_framing_after_a_body_is_cut() -> None:
    started = head(f"Content-Length: {len(LARGE)}") + LARGE + head(CHUNKED)
    sent_value = 0

    async with echoing() as (reader, writer):
        with suppress(ConnectionError):
            for data in endless(started, ONE_BYTE):
                writer.write(data)
                await writer.drain()
                sent_value += len(data)
                if reader.at_eof() or sent_value > MOST_SENT:
                    break

    assert sent_value < MOST_SENT, "nobody minds how much is sent"


PATHS = sorted({make_sample_request(route).path for _, route in DIALECT_ROUTES})


async def upgrade(proxy: Proxy, path: str, protocol: str) -> tuple[int, str, str]:
    request = (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    head, _, body = (await proxy.send_bytes(request.encode())).decode().partition("\r\n\r\n")
    return int(head.split()[1]), head.lower(), body


async def test_websocket_upgrade_of_served_path_is_refused(proxy: Proxy) -> None:
    for path in PATHS:
        status, head, body = await upgrade(proxy, path, "websocket")

        assert status == 426, path
        assert "\r\nx-headrace-error: websocket_not_supported\r\n" in head, path
        assert "\r\nupgrade: http/1.1\r\n" in head, path
        assert "\r\nconnection: close" in head, path
        error = json.loads(body)["error"]
        assert error["message"] == "WebSocket is not supported. Send HTTP requests instead.", path


@for_each(
    ("path", "protocol", "status"),
    [
        ("/v1/responses", "WebSocket", 426),
        ("/v1/responses", "h2c, websocket", 426),
        ("/v1/responses", "h2c", 405),
        ("/v1/realtime", "websocket", 404),
    ],
)
async def test_only_websocket_of_a_served_path_is_answered_with_426(
    path: str, protocol: str, status: int, proxy: Proxy
) -> None:
    assert (await upgrade(proxy, path, protocol))[0] == status
