"""What goes the short way is what aiohttp's parser makes of it, or goes the long way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import HttpVersion11, http_parser, web
from aiohttp.base_protocol import BaseProtocol
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.edge.plain import PlainRequest, plain_request
from proxy.edge.server import HttpServer
from tests.conftest import KEY, Proxy
from tests.doubles import ScriptedUpstream
from tests.edge.test_server import BODY, HEAD, ROUTE, until_closed

PATH = "/v1/chat/completions"
FIELDS = (
    *("Host: x", "host: y:80", "Accept: */*", "User-Agent: A/1 (b; c)  d", "X-Empty:", "X-Tab:\ta"),
    *("Connection: keep-alive", "Connection: close", "Content-Length: 2", "Content-Length: 02"),
    *("content-length: 2, 2", "Transfer-Encoding: chunked", "Expect: 100-continue", "Upgrade: h2c"),
    *(
        "X-A: \xe9",
        "X-A:1",
        "X-A:  1",
        "X-A: 1 ",
        " folded",
        "x-a : 1",
        "X_A: 1",
        "TE: trailers",
    ),
    *("Content-Type: application/json", "Authorization: Bearer k", "proxy-connection: close", ""),
)
RESTS = (b"{}", b"", b"{", b"{} ", b"{}POST / HTTP/1.1\r\n\r\n", b"\xff\xfe")
PUT_IN = (b"", b" ", b"\r", b"\n", b"\r\n", b"\0", b":", b"\t", b"\x80", b"a")
LINES = (
    f"POST {PATH} HTTP/1.1",
    f"post {PATH} HTTP/1.1",
    f"POST {PATH}?a=b HTTP/1.1",
    f"POST http://x{PATH} HTTP/1.1",
    f"POST {PATH} HTTP/1.0",
    f"POST  {PATH} HTTP/1.1",
    f"GET {PATH} HTTP/1.1",
    "POST /v1/elsewhere HTTP/1.1",
)
USUAL = ("Host: x", "Content-Type: application/json", "Content-Length: 2")


def written(line: str, fields: tuple[str, ...], rest: bytes) -> bytes:
    return "\r\n".join((line, *fields, "", "")).encode("latin-1") + rest


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Requests, most of them almost usual, some with a byte put in, changed or left out."""
    fields = draw(st.permutations([*USUAL, *draw(st.lists(st.sampled_from(FIELDS), max_size=3))]))
    rest = draw(
        st.sampled_from([b"{}", b"", b"{", b"{} ", b"{}POST / HTTP/1.1\r\n\r\n", b"\xff\xfe"])
    )
    raw = written(draw(st.sampled_from(LINES[:1] * 6 + LINES)), tuple(fields), rest)
    if draw(st.booleans()):
        return raw
    at = draw(st.integers(0, len(raw) - 1))
    put = draw(
        st.sampled_from([b"", b" ", b"\r", b"\n", b"\r\n", b"\0", b":", b"\t", b"\x80", b"a"])
    )
    return raw[:at] + put + raw[at + draw(st.sampled_from([0, 1, 2])) :]


def short_way(raw: bytes, loop: asyncio.AbstractEventLoop) -> PlainRequest | None:
    async def nobody(request: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError

    server = HttpServer(nobody, loop=loop)
    return plain_request(raw, server(), server)


@settings(max_examples=600, deadline=None)
@given(requests())
@example(written(LINES[0], USUAL, b"{}"))
@example(written(LINES[0], (*USUAL, "Transfer-Encoding: chunked"), b"{}"))
def test_what_goes_the_short_way_is_what_the_parser_makes_of_it(raw: bytes) -> None:
    loop = asyncio.new_event_loop()
    try:
        request = short_way(raw, loop)
        if request is None:
            return
        parser = http_parser.HttpRequestParser(
            BaseProtocol(loop), loop, 2**16, auto_decompress=False, max_field_size=8190
        )
        messages, upgraded, tail = parser.feed_data(raw)
        [(message, payload)] = messages
        assert (upgraded, tail) == (False, b"")
        assert (message.method, message.path) == (request.method, request.target)
        assert message.version == request.version == HttpVersion11
        assert not any((message.should_close, message.chunked, message.upgrade))
        assert message.compression is None
        found = [(name.lower(), value) for name, value in message.headers.items()]
        assert found == list(request.fields.items())
        assert payload.is_eof()
        assert (payload.read_nowait() if request.whole else b"") == request.whole
    finally:
        loop.close()


@pytest.mark.parametrize(
    "fields",
    [
        USUAL,
        (*USUAL, "Connection: keep-alive", "Accept-Encoding: gzip, deflate", "Accept: */*"),
        (*USUAL, "User-Agent: OpenAI/Python 1.55.0", "x-stainless-lang: python"),
    ],
    ids=str,
)
async def test_usual_requests_go_the_short_way(fields: tuple[str, ...]) -> None:
    request = short_way(written(LINES[0], fields, b"{}"), asyncio.get_running_loop())

    assert request is not None
    assert (request.target, request.whole) == (PATH, b"{}")


async def test_for_who_wants_more_a_request_is_whole() -> None:
    raw = written(LINES[0], USUAL, b"{}")
    request = short_way(raw, asyncio.get_running_loop())

    assert isinstance(request, PlainRequest)
    assert (request.path, request.headers["Host"], request.content_type) == (
        PATH,
        "x",
        "application/json",
    )
    assert await request.read() == b"{}"
    with pytest.raises(AttributeError):
        _ = cast_any(request).no_such_thing


def cast_any(value: Any) -> Any:
    return value


async def test_both_ways_follow_each_other_on_one_connection(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    length = f"Content-Length: {len(BODY)}\r\n"
    plain = f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\n{HEAD}{length}\r\n{BODY}".encode()
    odd = f"POST {ROUTE.path} HTTP/1.1\r\nHost:   x\r\n{HEAD}{length}\r\n{BODY}".encode()
    last = plain.replace(b"Host: x", b"Host: x\r\nConnection: close")

    came = await until_closed(proxy, plain, plain, odd, plain, odd[:90], odd[90:], last)

    assert came.count(b"HTTP/1.1 200 OK\r\n") == 6
    assert len(upstream.requests) == 6
    assert KEY.encode() not in came
