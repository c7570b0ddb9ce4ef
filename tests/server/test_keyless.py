"""Requests without a key: health probes and CORS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import Proxy, Reply, policies_for, running_proxy
from tests.doubles import ScriptedUpstream, cut_before_head, legacy_events, stream
from tests.server.test_client_closes_first import connected, stoppable
from tests.test_pipeline import BEARER, ROUTES

PROBE = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("path", ["/health", "/health?verbose=1"])
async def test_probe_needs_no_key(path: str, proxy: Proxy) -> None:
    async with proxy.client.get(path) as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})
    output = {name.lower() for name in response.headers}
    async with proxy.client.head(path) as response:
        assert (response.status, await response.read()) == (200, b"")
        assert response.headers["content-length"] == "15"

    assert output == {"cache-control", "content-length", "content-type", "date", "server"}
    assert response.headers["server"] == "headrace"


async def test_probe_is_no_call(proxy: Proxy) -> None:
    for method in ("GET", "HEAD", "POST"):
        await proxy.send("/health", b"", method=method)
    await proxy.send("/v1/models", b"", method="GET")

    [record] = await proxy.sink.wait()
    assert record.head.route == "/v1/models"
    assert "/health" not in await proxy.metrics()


async def test_probe_method_error_lists_methods(proxy: Proxy) -> None:
    reply = await proxy.send("/health", {})

    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/health/", "/healthz", "/v1/health"])
async def test_only_the_exact_path_is_a_probe(path: str, proxy: Proxy) -> None:
    assert (await proxy.send(path, b"", method="GET")).status == 404


async def test_stopping_proxy_fails_its_probe(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stoppable(tmp_path / "p", upstream, grace=1.0) as (proxy, stop, serving):
        client = await connected(proxy)
        client.writer.write(PROBE)
        head, _ = await client.answer()
        assert b" 200 " in head
        stop.set()
        await asyncio.sleep(0.1)

        client.writer.write(PROBE)
        head, body = await client.answer()
        assert (b" 503 " in head, body) == (True, b'{"status":"not ready"}')
        assert b"connection: close" in head.lower()
        client.writer.close()
        await serving


ROUTE = ROUTES["openai"]
PAGE = "https://app.example.com"
OTHER_TEXT = "https://elsewhere.example.com"
CORS = "cors: {origins: ['https://app.example.com', 'vscode-webview://abc']}\n"
ASKING = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


@pytest.fixture
async def shared(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(tmp_path / "shared", CORS + policies_for(upstream.url)) as running:
        yield running


async def preflight(proxy: Proxy, path: str, origin: str, **headers: str) -> Reply:
    return await proxy.send(path, b"", {"origin": origin, **ASKING, **headers}, method="OPTIONS")


async def list_models(proxy: Proxy, origin: str) -> Reply:
    return await proxy.send("/v1/models", b"", {**BEARER, "origin": origin}, method="GET")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models/a/b", "/nowhere"])
@pytest.mark.parametrize("origin", [PAGE, "vscode-webview://abc"])
async def test_preflight_needs_no_key(path: str, origin: str, shared: Proxy) -> None:
    reply = await preflight(shared, path, origin)

    output = reply.headers
    assert (reply.status, reply.raw) == (204, b"")
    assert output["access-control-allow-origin"] == origin
    assert output["access-control-allow-methods"] == "*"
    assert output["access-control-allow-headers"] == ASKING["access-control-request-headers"]
    assert "origin" in output["vary"]
    assert "access-control-allow-credentials" not in output
    assert shared.records == []


@pytest.mark.parametrize(
    "origin",
    [OTHER_TEXT, "null", "https://app.example.com.evil.test", "http://app.example.com", ""],
)
async def test_other_origin_is_refused(origin: str, shared: Proxy) -> None:
    preflight_reply, read = (
        await preflight(shared, "/v1/models", origin),
        await list_models(shared, origin),
    )

    assert (preflight_reply.status, read.status) == (405, 200)
    names = {name.lower() for reply in (preflight_reply, read) for name in reply.headers}
    assert not [name for name in names if name.startswith("access-control")]
    assert [record.status for record in await shared.sink.wait(2)] == [405, 200]


async def test_pages_may_read_all_responses(shared: Proxy, upstream: ScriptedUpstream) -> None:
    headers = {**BEARER, "origin": PAGE}
    upstream.then(stream(legacy_events("Hi")), cut_before_head(), cut_before_head())
    calls = [
        ("POST", ROUTE.path, headers, ROUTE.body(streamed=True), 200),
        ("POST", ROUTE.path, headers, ROUTE.body(streamed=False), 502),
        ("POST", ROUTE.path, headers, {"model": 1}, 400),
        ("POST", "/nowhere", headers, {}, 404),
        ("GET", ROUTE.path, headers, None, 405),
        ("GET", "/v1/models", {"origin": PAGE}, None, 401),
        ("GET", "/v1/models", headers, None, 200),
    ]
    for method, path, sent_body, body, status in calls:
        reply = await shared.send(path, body, sent_body, method=method)
        output = reply.headers
        assert reply.status == status
        assert (output["access-control-allow-origin"], output["vary"]) == (PAGE, "origin")
        assert output["access-control-expose-headers"] == "*"


async def test_policy_opens_cors_to_any_page(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    text = "cors: {origins: ['*']}\n" + policies_for(upstream.url)
    async with running_proxy(tmp_path / "p", text) as proxy:
        read = await list_models(proxy, OTHER_TEXT)
        preflight_reply = await preflight(proxy, "/v1/models", OTHER_TEXT)

    for reply in (read, preflight_reply):
        assert reply.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in reply.headers


async def test_cors_is_off_by_default(proxy: Proxy) -> None:
    assert (await preflight(proxy, "/v1/models", PAGE)).status == 405


async def test_invalid_header_names_are_not_echoed(shared: Proxy) -> None:
    names = {"access-control-request-headers": "a, <b>"}
    reply = await preflight(shared, "/v1/models", PAGE, **names)

    assert reply.status == 204
    assert "access-control-allow-headers" not in reply.headers
