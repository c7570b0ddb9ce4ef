"""Responses and passthrough bodies on the wire: backpressure, stalls, and internal errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient
from pytest_aiohttp.plugin import AiohttpClient, AiohttpRawServer

from proxy import server
from proxy.cache import NullCache
from proxy.call.record import new_record
from proxy.errors import RequestTimeout
from proxy.pipeline import Pipeline
from proxy.server import Calls
from proxy.server.request import BodyShare, Bounds, IncomingRequest, RequestUpload
from proxy.telemetry import Emitters
from proxy.telemetry.metrics import Metrics
from proxy.upstream import Upstreams
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health
from tests.conftest import Proxy
from tests.doubles import (
    TRUST,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    event,
    hang,
    head,
    http_chunk,
    legacy_events,
    respond,
)
from tests.fakes import Unguarded, unlimited
from tests.for_each import for_each
from tests.passthrough.listed_policies import running
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]


async def test_slow_client_slows_the_upstream(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    sent_value = 0

    async def endless(request: ReceivedRequest, wire: Wire) -> None:
        nonlocal sent_value
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        chunk = http_chunk(event(legacy_events("x" * 10_000)[0]))
        while not request.closed.is_set():
            await wire.send(chunk)
            sent_value += len(chunk)

    upstream.answer_with(endless)
    async with ClientSession(base_url=proxy.url, read_bufsize=1024) as client:
        response = await client.post(ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=True))
        steady = await stable_value(lambda: sent_value)
        response.close()

    assert steady < 32 * 1024 * 1024
    [record] = await proxy.sink.wait()
    assert record.outcome == "client_abort"


async def stable_value(measure: Any) -> int:
    """Wait until a number stops growing, and return it."""
    last_value = -1
    async with asyncio.timeout(20):
        while (now := measure()) != last_value or now == 0:
            last_value = now
            await asyncio.sleep(0.3)
    return int(last_value)


async def test_internal_error_is_a_500_with_only_its_id(
    aiohttp_raw_server: AiohttpRawServer, aiohttp_client: AiohttpClient
) -> None:
    class Broken:
        def get_active_policy(self) -> Any:
            raise KeyError("hr-secret-inside")

        async def reload_if_requested(self, head: Any) -> Any:
            return self.get_active_policy()

    bugs: list[tuple[BaseException, str]] = []
    metrics = Metrics("1")
    pipeline = Pipeline(
        policies=Broken(),
        limits=unlimited(),
        guards=Unguarded(),
        cache=NullCache(),
        upstreams=Upstreams(HttpClient(TRUST), "via", Health(time.monotonic, metrics.set_circuit)),
        emitter=Emitters((metrics,), lambda sink, error: None),
        start_record=new_record,
    )
    handler = server.make_data_handler(
        pipeline,
        server.ListenerState(via="via", new_id=lambda: "bug-1", bounds=Bounds(), calls=Calls()),
        on_bug=lambda bug, request_id: bugs.append((bug, request_id)),
    )
    client: TestClient[web.BaseRequest, None]
    client = await aiohttp_client(await aiohttp_raw_server(handler))
    async with client.post(ROUTE.path, headers=BEARER, json={}) as response:
        text = await response.text()

    assert response.status == 500
    assert "bug-1" in text
    assert "secret" not in text
    assert [(type(bug), number) for bug, number in bugs] == [(KeyError, "bug-1")]
    assert b'outcome="proxy_error"' in metrics.render()[0]


async def test_available_events_share_one_write(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    events = legacy_events("Wells", " rise", " here", with_usage=False)

    async def together(request: ReceivedRequest, wire: Wire) -> None:
        fields = b"".join(map(event, events)) + event(b"[DONE]")
        begin = head(200, "text/event-stream", "transfer-encoding: chunked")
        await wire.send(begin + http_chunk(fields) + b"0\r\n\r\n")

    upstream.answer_with(together)
    body = ROUTE.body(streamed=True)
    async with proxy.client.post(ROUTE.path, headers=BEARER, json=body) as response:
        chunks = [data async for data, ends in response.content.iter_chunks() if data or ends]

    assert b"".join(chunks) == b"".join(map(event, events)) + event(b"[DONE]")
    # The final event is written separately.
    assert [chunk.count(b"data: ") for chunk in chunks] == [len(events), 1]


HEAD = f"host: x\r\nauthorization: {BEARER['Authorization']}\r\n"


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    upstream.answer_with(respond({}))
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
        ("content-type: text/x\r\ncontent-encoding: gzip", 415),
        ("content-type: application/json\r\ncontent-encoding: br", 415),
        ("content-type: text/x\r\ncontent-type: text/y", 400),
        ("content-type: " + "a" * 300, 400),
        ("x-none: 1", 400),
        ("content-type: text/x\r\ncontent-length: 2", 400),
        ("content-type: text/x\r\ntransfer-encoding: chunked", 400),
    ],
)
async def test_invalid_head_is_refused(
    fields: str, status: int, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    assert await raw_response(proxy, f"{fields}\r\ncontent-length: 3\r\n\r\nabc") == status
    assert upstream.requests == []


async def test_get_has_no_body(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    with_body = "content-type: text/x\r\ncontent-length: 3\r\n\r\nabc"
    assert await raw_response(proxy, with_body, method="GET") == 400
    chunked = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    assert await raw_response(proxy, f"{chunked}2\r\n{{}}\r\n0\r\n\r\n", method="GET") == 400
    assert upstream.requests == []


async def test_json_is_read_with_any_framing(proxy: Proxy, upstream: ScriptedUpstream) -> None:
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
    upstream.then(respond({}))
    fields = "content-type: text/x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
    writer.write(f"POST /v1/files HTTP/1.1\r\n{HEAD}{fields}".encode())
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    assert upstream.requests[0].body == b"abc"


async def test_stalled_upload_times_out() -> None:
    class Silent:
        headers: ClassVar[dict[str, str]] = {"content-length": "9"}
        raw_path = "/v1/files"

        class content:  # noqa: N801  # as aiohttp calls it
            @staticmethod
            async def readany() -> bytes:
                await asyncio.Event().wait()
                return b""

    bounds = Bounds(body_s=0.01)
    incoming = IncomingRequest(cast("Any", Silent()), bounds, BodyShare(bounds.bodies))
    upload = RequestUpload(incoming, incoming.read_length_unless_chunked())

    assert (upload.length, upload.has_begun) == (9, False)
    with pytest.raises(RequestTimeout):
        await upload.read_chunk()
    assert upload.has_begun


async def test_broken_chunks_end_an_upload(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.then(hang())
    reader, writer = await proxy.connect()
    fields = "content-type: text/x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"
    writer.write(f"POST /v1/files HTTP/1.1\r\n{HEAD}{fields}".encode())
    await upstream.arrived.wait()
    writer.write(b"zz\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 400")
    writer.close()
    [record] = await proxy.sink.wait()
    assert record.outcome == "client_error"
    assert record.attempts[0].error == "bad_request"
