"""Limits on passthrough paths follow the policy while Redis is away or slow."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from tests.conftest import Proxy, running_proxy
from tests.doubles import Asked, ScriptedUpstream, Wire, answer
from tests.passthrough.world import BEARER, RANKED, RERANK, policies
from tests.servers import Server, eventually

FORM = "multipart/form-data; boundary=x"
PART = b'content-disposition: form-data; name="file"; filename="a"\r\n\r\nhippo'
BODIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "json": ("POST", "/v1/rerank", {"json": RERANK}),
    "form": ("POST", "/v1/files", {"data": b"--x\r\n%b\r\n--x--\r\n" % PART, "kind": FORM}),
    "bytes": ("GET", "/v1/files/file-1/content", {}),
}
MONEY = "{name: money, usd: 1 per month, unpriced: allow}"
PLACE = "{name: place, concurrency: 1}"


@asynccontextmanager
async def shared(
    folder: Path, upstream: ScriptedUpstream, server: Server, *limits: str
) -> AsyncIterator[tuple[Proxy, ClientSession]]:
    rules = policies(upstream.url, policy=f"{{limits: [{', '.join(limits)}]}}")
    sharing = {"redis": server.at, "cache_secret": "a secret of tests", "replicas": 2}
    async with running_proxy(folder / "policies", rules, **sharing) as proxy:
        yield proxy, proxy.client


async def sent(client: ClientSession, name: str) -> tuple[int, str | None]:
    method, path, body = BODIES[name]
    body = dict(body)
    headers = {**BEARER, **({"content-type": body.pop("kind")} if "kind" in body else {})}
    async with client.request(method, path, headers=headers, **body) as response:
        await response.read()
        return response.status, response.headers.get("x-headrace-error")


async def reply(request: Asked, wire: Wire) -> None:
    is_bytes = request.path.endswith("/content")
    kind = "application/octet-stream" if is_bytes else "application/json"
    document = RANKED if request.path.endswith("/rerank") else {"id": "file-1"}
    raw = b"\0" * 100_000 if is_bytes else json.dumps(document).encode()
    await answer(raw, media_type=kind)(request, wire)


ROUNDS = 8
RULES = {"local": 9, "open": ROUNDS * len(BODIES), "closed": 0}
"""How many calls pass while the server is away: the half of 18, all, or none."""
REFUSED = {"local": (429, "rate_limit_exceeded"), "closed": (503, "limit_store_unavailable")}


async def test_store_error(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    upstream.then(*[reply] * sum(RULES.values()))
    server.kill()

    async def follow(rule: str) -> None:
        limit = f"{{name: few, requests: 18 per day, on_store_error: {rule}}}"
        async with shared(tmp_path / rule, upstream, server, limit) as (proxy, client):
            observed = [await sent(client, name) for _ in range(ROUNDS) for name in BODIES]
            records = await proxy.sink.wait(len(observed))
        maximum = RULES[rule]
        assert observed[:maximum] == [(200, None)] * maximum
        assert set(observed[maximum:]) == ({REFUSED[rule]} if rule in REFUSED else set())
        assert [record.status for record in records] == [status for status, _ in observed]

    for rule in RULES:
        (tmp_path / rule).mkdir()
    async with asyncio.timeout(20):
        await asyncio.gather(*map(follow, RULES))

    assert len(upstream.requests) == sum(RULES.values())


async def test_outage_spend(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    upstream.then(*[reply] * 7)
    async with shared(tmp_path, upstream, server, MONEY, PLACE) as (proxy, client):
        assert await sent(client, "json") == (200, None)
        server.signal(signal.SIGSTOP)
        async with asyncio.timeout(20):
            during = [await sent(client, name) for _ in range(2) for name in BODIES]
        assert during == [(200, None)] * len(during)
        assert "headrace_limit_store_degraded 1.0" in await proxy.metrics()
        records = await proxy.sink.wait(1 + len(during))
        asyncio.get_running_loop().call_later(0.3, server.signal, signal.SIGCONT)
    server.signal(signal.SIGCONT)

    [budget] = [key for key in server.told("KEYS", "*").split() if "usd:money" in key]
    with server.admin as admin:
        total_spend = sum(
            int(value) for name, value in admin.hgetall(budget).items() if name.isdigit()
        )
    assert (
        total_spend
        == sum(bill.cost or 0 for record in records for bill in record.billing.bills)
        > 0
    )


async def test_upload_outage(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    upstream.then(reply, reply)
    begin, middle, end = b"--x\r\n" + PART, b"hippo" * 100_000, b"\r\n--x--\r\n"

    async def pieces() -> AsyncIterator[bytes]:
        yield begin
        await eventually(lambda: upstream.connections > 0)  # it was admitted
        server.kill()
        yield middle
        yield end

    async with shared(tmp_path, upstream, server, PLACE) as (proxy, client):
        length = str(len(begin + middle + end))
        headers = {**BEARER, "content-type": FORM, "content-length": length}
        async with client.post("/v1/files", headers=headers, data=pieces()) as response:
            assert (response.status, await response.json()) == (200, {"id": "file-1"})
        async with asyncio.timeout(20):
            values_after = await sent(client, "form")
        server.start()  # a stop waits for one that is away
        first_value, second = await proxy.sink.wait(2)

    assert upstream.requests[0].body == begin + middle + end
    assert values_after == (200, None)
    assert (first_value.outcome, second.outcome) == ("success", "success")
