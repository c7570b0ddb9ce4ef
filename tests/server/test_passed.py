"""Reading and refusal of request bodies on passthrough paths."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from proxy.errors import RequestTimeout
from proxy.server.request import BodyShare, Bounds, Incoming
from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream, answer, hang
from tests.for_each import for_each
from tests.passthrough.world import BEARER, running

HEAD = f"host: x\r\nauthorization: {BEARER['authorization']}\r\n"


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    upstream.answer_with(answer({}))
    async with running(tmp_path, upstream.url) as proxy:
        yield proxy


async def raw_response(
    proxy: Proxy, request: str, *, path: str = "/v1/files", method: str = "POST"
) -> int:
    reader, writer = await proxy.connect()
    writer.write(f"{method} {path} HTTP/1.1\r\n{HEAD}{request}".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split(b" ")[1])


@for_each(
    ("fields", "status"),
    [
        pytest.param("content-type: text/x\r\ncontent-encoding: gzip", 415, id="encoded"),
        pytest.param("content-type: application/json\r\ncontent-encoding: br", 415, id="so JSON"),
        pytest.param("content-type: text/x\r\ncontent-type: text/y", 400, id="two types"),
        pytest.param("content-type: " + "a" * 300, 400, id="a long type"),
        pytest.param("x-none: 1", 400, id="no type"),
        pytest.param("content-type: text/x\r\ncontent-length: 2", 400, id="two lengths"),
        pytest.param("content-type: text/x\r\ntransfer-encoding: chunked", 400, id="two framings"),
        pytest.param("content-type: text/x\r\nexpect: magic", 417, id="a wish"),
    ],
)
async def test_an_odd_head_is_refused(
    fields: str, status: int, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    assert await raw_response(proxy, f"{fields}\r\ncontent-length: 3\r\n\r\nabc") == status
    assert upstream.requests == []


async def test_a_get_has_no_body(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    with_body = "content-type: text/x\r\ncontent-length: 3\r\n\r\nabc"
    assert await raw_response(proxy, with_body, method="GET") == 400
    chunked = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    assert await raw_response(proxy, f"{chunked}2\r\n{{}}\r\n0\r\n\r\n", method="GET") == 400
    assert upstream.requests == []


async def test_json_is_read_however_it_comes(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    parts = 'transfer-encoding: chunked\r\n\r\n5\r\n{"a":\r\n2\r\n1}\r\n0\r\n\r\n'
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        assert await raw_response(proxy, f"content-type: {kind}\r\n{parts}") == 200
    nothing = "content-type: application/json\r\ncontent-length: 0\r\n\r\n"
    assert await raw_response(proxy, nothing, path="/v1/batches/b/cancel") == 200
    empty = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    assert await raw_response(proxy, empty, path="/v1/batches/b/cancel") == 200

    assert [request.body for request in upstream.requests] == [b'{"a":1}'] * 2 + [b""] * 2


async def test_upload_waits_for_100_continue(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    reader, writer = await proxy.connect()
    upstream.then(answer({}))
    fields = "content-type: text/x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
    writer.write(f"POST /v1/files HTTP/1.1\r\n{HEAD}{fields}".encode())
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    assert upstream.requests[0].body == b"abc"


async def test_an_upload_that_stops_is_not_waited_for() -> None:
    class Silent:
        headers: ClassVar[dict[str, str]] = {"content-length": "9"}
        raw_path = "/v1/files"

        class content:  # noqa: N801  # as aiohttp calls it
            @staticmethod
            async def readany() -> bytes:
                await asyncio.Event().wait()
                return b""

    bounds = Bounds(body_s=0.01)
    incoming = Incoming(cast("Any", Silent()), bounds, BodyShare(bounds.bodies))
    upload = incoming.upload(incoming.length())

    assert (upload.length, upload.begun) == (9, False)
    with pytest.raises(RequestTimeout):
        await upload.read()
    assert upload.begun


async def test_broken_chunks_end_an_upload(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.then(hang())
    reader, writer = await proxy.connect()
    fields = "content-type: text/x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"
    writer.write(f"POST /v1/files HTTP/1.1\r\n{HEAD}{fields}".encode())
    await upstream.came.wait()
    writer.write(b"zz\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 400")
    writer.close()
    [record] = await proxy.sink.wait()
    assert record.outcome == "client_error"
    assert record.attempts[0].error == "bad_request"
