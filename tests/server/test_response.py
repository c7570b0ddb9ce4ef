"""What leaves is what aiohttp's own responses send, byte by byte, and no header ends itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpRawServer

from proxy.errors import ClientDisconnected
from proxy.server.response import PIECE, ResponseWriter

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
FIELDS = {"content-type": "application/json", "server": "headrace", "x-name": "\u00e9\tb"}
LARGE = bytes(range(256)) * (PIECE // 128 + 1)
DATE = re.compile(rb"Date: [^\r]+")
HEADS = {
    "usual": ("POST", "1.1", ""),
    "closing": ("POST", "1.1", "Connection: close\r\n"),
    "old": ("POST", "1.0", ""),
    "old and kept": ("POST", "1.0", "Connection: keep-alive\r\n"),
    "head alone": ("HEAD", "1.1", ""),
}
BODIES = {
    "one": [b"{}"],
    "none": [b""],
    "three": [b"a", b"bc", b"d"],
    "an empty one last": [b"abc", b""],
    "large": [LARGE],
    "two pieces": [LARGE[: 2 * PIECE]],
}


async def response_bytes(
    server: AiohttpRawServer, answer: Answer, head: tuple[str, str, str]
) -> bytes:
    async def answer_once(request: web.BaseRequest) -> web.StreamResponse:
        request.protocol.close()
        return await answer(request)

    method, version, fields = head
    host = (await server(answer_once)).make_url("/")
    reader, writer = await asyncio.open_connection(host.host, host.port)
    writer.write(f"{method} / HTTP/{version}\r\nHost: x\r\n{fields}\r\n".encode())
    async with asyncio.timeout(10):
        raw = await reader.read()
    writer.close()
    return DATE.sub(b"Date: now", raw)


@pytest.mark.parametrize("status", [200, 446, 503])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
async def test_a_whole_response_is_that_of_aiohttp(
    status: int, head: tuple[str, str, str], aiohttp_raw_server: AiohttpRawServer
) -> None:
    for body in (b"{}", b"", LARGE):

        async def theirs(request: web.BaseRequest) -> web.StreamResponse:
            response = web.StreamResponse(status=status, headers=FIELDS)
            response.content_length = len(body)  # noqa: B023
            await response.prepare(request)
            await response.write_eof(body if request.method != "HEAD" else b"")  # noqa: B023
            return response

        async def ours(request: web.BaseRequest) -> web.StreamResponse:
            out = ResponseWriter(request, 10)
            out.begin(status, dict(FIELDS), len(body))  # noqa: B023
            await out.write(body, last=True)  # noqa: B023
            return out.outcome

        expected = await response_bytes(aiohttp_raw_server, theirs, head)
        assert await response_bytes(aiohttp_raw_server, ours, head) == expected


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("head", list(HEADS.values())[:4], ids=list(HEADS)[:4])
async def test_a_stream_is_that_of_aiohttp(
    name: str, head: tuple[str, str, str], aiohttp_raw_server: AiohttpRawServer
) -> None:
    pieces = BODIES[name]

    async def theirs(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers=FIELDS)
        if request.version < (1, 1):
            response.force_close()
        await response.prepare(request)
        for piece in pieces[:-1]:
            await response.write(piece)
        remainder = pieces[-1]
        while len(remainder) > PIECE:
            await response.write(remainder[:PIECE])
            remainder = remainder[PIECE:]
        await response.write_eof(remainder)
        return response

    async def ours(request: web.BaseRequest) -> web.StreamResponse:
        out = ResponseWriter(request, 10)
        out.begin(200, dict(FIELDS))
        for index, piece in enumerate(pieces):
            await out.write(piece, last=index + 1 == len(pieces))
        return out.outcome

    expected = await response_bytes(aiohttp_raw_server, theirs, head)
    assert await response_bytes(aiohttp_raw_server, ours, head) == expected


async def test_unsafe_header_is_not_sent(aiohttp_raw_server: AiohttpRawServer) -> None:
    started = []

    async def ours(request: web.BaseRequest) -> web.StreamResponse:
        for name, value in (("x-a", "b\r\nx-c: d"), ("x-a\nb", "c"), ("x-a", "\x00")):
            out = ResponseWriter(request, 10)
            with pytest.raises(ValueError, match="header"):
                out.begin(200, {name: value}, 0)
            started.append(out.begun)
        return web.Response()

    await response_bytes(aiohttp_raw_server, ours, HEADS["usual"])

    assert started == [False] * 3


async def test_client_that_stopped_reading_is_gone(aiohttp_raw_server: AiohttpRawServer) -> None:
    ended: asyncio.Future[type[BaseException]] = asyncio.get_running_loop().create_future()

    async def ours(request: web.BaseRequest) -> web.StreamResponse:
        out = ResponseWriter(request, 0.2)
        out.begin(200, dict(FIELDS))
        try:
            while True:
                await out.write(LARGE)
        except ClientDisconnected as gone:
            ended.set_result(type(gone))
        assert (out.gone, out.served) == (True, False)
        return out.outcome

    url = (await aiohttp_raw_server(ours)).make_url("/")
    _, writer = await asyncio.open_connection(url.host, url.port, limit=1)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(10):
        assert await ended is ClientDisconnected
    writer.close()


async def test_unfinished_response_closes_connection(aiohttp_raw_server: AiohttpRawServer) -> None:
    async def ours(request: web.BaseRequest) -> web.StreamResponse:
        out = ResponseWriter(request, 10)
        out.begin(200, dict(FIELDS))
        await out.write(b"abc")
        return out.outcome

    url = (await aiohttp_raw_server(ours)).make_url("/")
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(10):
        assert (await reader.read()).endswith(b"\r\n\r\n3\r\nabc\r\n")
    writer.close()
