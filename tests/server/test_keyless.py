"""What the data port answers without a key: probes, which are no calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from proxy.server import EXPOSED
from tests.conftest import Proxy, running_proxy, world
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


async def test_a_probe_is_no_call(proxy: Proxy) -> None:
    for method in ("GET", "HEAD", "POST"):
        async with proxy.client.request(method, "/health") as response:
            await response.read()
    async with proxy.client.get("/v1/models", headers=BEARER) as response:
        await response.read()

    [record] = await proxy.sink.wait()
    assert record.head.route == "/v1/models"
    assert "/health" not in await proxy.metrics()


async def test_probe_method_error_lists_methods(client: ClientSession) -> None:
    async with client.post("/health", json={}) as response:
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/health/", "/healthz", "/v1/health"])
async def test_only_the_very_path_is_a_probe(path: str, client: ClientSession) -> None:
    async with client.get(path) as response:
        assert response.status == 404


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
PAGE_OF_HEADERS = Path(__file__).parents[2] / "docs" / "headers.md"


@pytest.fixture
async def shared(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(tmp_path / "shared", CORS + world(upstream.url)) as running:
        yield running


@pytest.fixture
async def browser(shared: Proxy) -> AsyncIterator[ClientSession]:
    async with ClientSession(base_url=shared.url) as session:
        yield session


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models/a/b", "/nowhere"])
@pytest.mark.parametrize("origin", [PAGE, "vscode-webview://abc"])
async def test_a_browser_is_told_without_a_key_that_a_page_may_ask(
    path: str, origin: str, shared: Proxy, browser: ClientSession
) -> None:
    async with browser.options(path, headers={"origin": origin, **ASKING}) as response:
        assert (response.status, await response.read()) == (204, b"")
        output = response.headers

    assert output["access-control-allow-origin"] == origin
    assert {"GET", "HEAD", "POST"} <= set(output["access-control-allow-methods"].split(", "))
    assert output["access-control-allow-headers"] == ASKING["access-control-request-headers"]
    assert "origin" in output["vary"]
    assert "access-control-allow-credentials" not in output
    assert shared.records == []


@pytest.mark.parametrize(
    "origin",
    [OTHER_TEXT, "null", "https://app.example.com.evil.test", "http://app.example.com", ""],
)
async def test_other_origin_is_refused(origin: str, shared: Proxy, browser: ClientSession) -> None:
    async with browser.options("/v1/models", headers={"origin": origin, **ASKING}) as response:
        requests = response.status, set(response.headers)
    async with browser.get("/v1/models", headers={**BEARER, "origin": origin}) as response:
        read = response.status, set(response.headers)

    assert (requests[0], read[0]) == (405, 200)
    assert not [name for name in requests[1] | read[1] if name.lower().startswith("access-control")]
    assert [record.status for record in await shared.sink.wait(2)] == [405, 200]


async def test_page_reads_all_replies(browser: ClientSession, upstream: ScriptedUpstream) -> None:
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
        async with browser.request(method, path, headers=sent_body, json=body) as response:
            await response.read()
        output = response.headers
        assert response.status == status
        assert (output["access-control-allow-origin"], output["vary"]) == (PAGE, "origin")
        assert output["access-control-expose-headers"].split(", ") == list(EXPOSED)


async def test_policy_opens_cors_to_any_page(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    text = "cors: {origins: ['*']}\n" + world(upstream.url)
    async with running_proxy(tmp_path / "p", text) as proxy:
        async with proxy.client.get(
            "/v1/models", headers={**BEARER, "origin": OTHER_TEXT}
        ) as response:
            output = response.headers
        async with proxy.client.options(
            "/v1/models", headers={"origin": OTHER_TEXT, **ASKING}
        ) as response:
            request = response.headers

    for headers in (output, request):
        assert headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in headers


async def test_cors_is_off_by_default(proxy: Proxy) -> None:
    async with proxy.client.options("/v1/models", headers={"origin": PAGE, **ASKING}) as response:
        assert response.status == 405


async def test_names_that_are_none_are_not_given_back(browser: ClientSession) -> None:
    headers = {"origin": PAGE, **ASKING, "access-control-request-headers": "a, <b>"}
    async with browser.options("/v1/models", headers=headers) as response:
        assert response.status == 204
        assert "access-control-allow-headers" not in response.headers


def test_all_headers_of_ours_are_for_pages_to_read() -> None:
    listed = re.findall(r"^\| (`.*?) \|", PAGE_OF_HEADERS.read_text(), re.MULTILINE)
    names = {name for cell in listed for name in re.findall(r"`([a-z-]+)`", cell)}

    assert names <= set(EXPOSED)
