"""What the data port answers without a key: probes, which are no calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream
from tests.edge.test_drain import connected, stoppable
from tests.test_pipeline import BEARER

PROBE = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("path", ["/health", "/health?verbose=1"])
async def test_a_probe_needs_no_key_and_learns_nothing_of_the_inside(
    path: str, proxy: Proxy, client: aiohttp.ClientSession
) -> None:
    async with client.get(path) as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})
    shown = {name.lower() for name in response.headers}
    async with client.head(path) as response:
        assert (response.status, await response.read()) == (200, b"")
        assert response.headers["content-length"] == "15"

    assert shown == {"cache-control", "content-length", "content-type", "date", "server"}
    assert response.headers["server"] == "headrace"


async def test_a_probe_is_no_call(proxy: Proxy, client: aiohttp.ClientSession) -> None:
    for method in ("GET", "HEAD", "POST"):
        async with client.request(method, "/health") as response:
            await response.read()
    async with client.get("/v1/models", headers=BEARER) as response:
        await response.read()

    [record] = await proxy.sink.wait()
    assert record.head.route == "/v1/models"
    async with client.get(f"{proxy.admin}/metrics") as response:
        assert "/health" not in await response.text()


async def test_a_probe_by_another_method_is_told_which_would_do(
    client: aiohttp.ClientSession,
) -> None:
    async with client.post("/health", json={}) as response:
        assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/health/", "/healthz", "/v1/health"])
async def test_only_the_very_path_is_a_probe(path: str, client: aiohttp.ClientSession) -> None:
    async with client.get(path) as response:
        assert response.status == 404


async def test_a_proxy_that_stops_tells_who_probes_it_while_it_still_serves(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
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
