"""The way back to the client: back-pressure, stalls, and bugs that show no insides."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient
from pytest_aiohttp.plugin import AiohttpClient, AiohttpRawServer

from proxy import server
from proxy.app.context import new_record, new_span_id
from proxy.cache import NullCache
from proxy.pipeline import Pipeline
from proxy.server import Calls
from proxy.server.request import Bounds
from proxy.telemetry import Emitters
from proxy.telemetry.metrics import Metrics
from proxy.upstream import Upstreams
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health
from tests.conftest import Proxy
from tests.doubles import (
    TRUST,
    Asked,
    ScriptedUpstream,
    Unguarded,
    Wire,
    event,
    head,
    legacy_events,
    piece,
    unlimited,
)
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]


async def test_slow_client_holds_upstream_back(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    sent_value = 0

    async def endless(request: Asked, wire: Wire) -> None:
        nonlocal sent_value
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        chunk = piece(event(legacy_events("x" * 10_000)[0]))
        while not request.closed.is_set():
            await wire.send(chunk)
            sent_value += len(chunk)

    upstream.answer_with(endless)
    async with ClientSession(base_url=proxy.url, read_bufsize=1024) as client:
        response = await client.post(ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=True))
        steady = await settled(lambda: sent_value)
        response.close()

    assert steady < 32 * 1024 * 1024
    [record] = await proxy.sink.wait()
    assert record.outcome == "client_abort"


async def settled(measure: Any) -> int:
    """Wait until a number has stopped growing for a while, and give it."""
    last_value = -1
    async with asyncio.timeout(20):
        while (now := measure()) != last_value or now == 0:
            last_value = now
            await asyncio.sleep(0.3)
    return int(last_value)


async def test_a_bug_is_a_500_that_names_its_number_only(
    aiohttp_raw_server: AiohttpRawServer, aiohttp_client: AiohttpClient
) -> None:
    class Broken:
        def active(self) -> Any:
            raise KeyError("hr-secret-inside")

        async def read(self, head: Any) -> Any:
            return self.active()

    bugs: list[tuple[BaseException, str]] = []
    metrics = Metrics("1")
    pipeline = Pipeline(
        policies=Broken(),
        limits=unlimited(),
        guards=Unguarded(),
        cache=NullCache(),
        upstreams=Upstreams(
            HttpClient(TRUST), "via", new_span_id, Health(time.monotonic, metrics.circuit)
        ),
        emitter=Emitters((metrics,), lambda sink, error: None),
        start_record=new_record,
    )
    handler = server.data_handler(
        pipeline,
        server.DataPort(via="via", new_id=lambda: "bug-1", bounds=Bounds(), calls=Calls()),
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


async def test_events_leave_together(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    events = legacy_events("Wells", " rise", " here", with_usage=False)

    async def together(request: Asked, wire: Wire) -> None:
        fields = b"".join(map(event, events)) + event(b"[DONE]")
        begin = head(200, "text/event-stream", "transfer-encoding: chunked")
        await wire.send(begin + piece(fields) + b"0\r\n\r\n")

    upstream.answer_with(together)
    body = ROUTE.body(streamed=True)
    async with proxy.client.post(ROUTE.path, headers=BEARER, json=body) as response:
        chunks = [data async for data, ends in response.content.iter_chunks() if data or ends]

    assert b"".join(chunks) == b"".join(map(event, events)) + event(b"[DONE]")
    assert [chunk.count(b"data: ") for chunk in chunks] == [len(events), 1]  # the end by itself
