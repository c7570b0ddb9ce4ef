"""All accounts agree on the cost of passthrough calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import ClientSession

from proxy.ledger.audit import audit
from proxy.settings import LedgerAt
from proxy.telemetry.log import canonical
from tests.conftest import running_proxy
from tests.doubles import Asked, Script, ScriptedUpstream, Wire, answer, cut_before_head, hang, head
from tests.ledger.kept import kept
from tests.passthrough.world import BEARER, RANKED, RERANK, policies
from tests.test_conservation import summed

LIMITS = """{match: all, limits: [
  {name: month, usd: 900 per month}, {name: tokens, tokens: 100M per day},
  {name: at-once, concurrency: 500}]}"""
FORM = {**BEARER, "content-type": "multipart/form-data; boundary=x"}
MODEL = b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nrerank-1\r\n--x--'
TIMES = 6
REPORTED = 21_000  # nano-USD of 7 tokens at 3 USD per million


async def broken(request: Asked, wire: Wire) -> None:
    await wire.send(head(200, "audio/mpeg", "content-length: 10"), b"abc")
    wire.cut()


EVENTS = b'data: {"usage": {"total_tokens": 7}}\n\n'
WAYS: dict[str, Script] = {
    "priced": answer(RANKED),
    "events": answer(EVENTS, media_type="text/event-stream"),
    "without usage": answer({}),
    "bytes": answer(b"\xff", media_type="audio/mpeg"),
    "refused": answer({}, 400),
    "overloaded": answer({}, 503),
    "garbled": answer(b"{"),
    "gone": cut_before_head(),
    "cut": broken,
    "left": hang(),
}


async def ask(client: ClientSession, way: str, *, form: bool) -> None:
    body: dict[str, Any] = {"headers": FORM, "data": MODEL} if form else {"headers": BEARER}
    if not form:
        body["json"] = {**RERANK, "query": "q" * 40}
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(0.3 if way == "left" else 30):
            async with client.post("/v1/moderations", **body) as response:
                await response.read()


async def test_every_account_says_the_same(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path, result = tmp_path / "ledger", 0
    world = policies(upstream.url, policy=LIMITS)
    world = world.replace("    timeouts:", "    breaker: off\n    timeouts:")
    async with running_proxy(
        tmp_path / "policies", world, ledger=LedgerAt("sqlite", path)
    ) as proxy:
        for way, script in WAYS.items():
            for form in (False, True):
                upstream.then(*[script] * TIMES)
                await asyncio.gather(*(ask(proxy.client, way, form=form) for _ in range(TIMES)))
                result += TIMES
                await proxy.sink.wait(result)
        records = proxy.records
        metrics = await proxy.metrics()
    assert audit(path).violations == ()
    calls, attempts, charges = kept(path), kept(path, "attempts"), kept(path, "charges")

    assert len(records) == len(calls) == result == summed(metrics, "headrace_requests_total")
    assert len(upstream.requests) == len(attempts) == result  # none of them was sent twice
    unknown = [record for record in records if record.billing.source == "unknown"]
    assert all(record.billing.cost is None and record.charges for record in unknown)
    money = sum(record.billing.cost or 0 for record in records)
    lines = [canonical(record) for record in records]
    assert {(line["endpoint"], line["route"]) for line in lines} == {
        ("passthrough", "/v1/moderations")
    }
    assert money == sum(Decimal(str(line["cost_usd"] or 0)) for line in lines) * 10**9
    assert money == round(summed(metrics, "headrace_cost_usd_total") * 10**9)
    assert money == sum(row["cost_nano_usd"] or 0 for row in attempts)
    estimated = sum(charge.cost for record in unknown for charge in record.charges)
    assert money + estimated == sum(row["cost_nano_usd"] for row in charges)
    assert {row["tokens_in"] for row in attempts if row["usage_source"] == "unknown"} == {None}
    assert len(unknown) == summed(metrics, "headrace_unpriced_requests_total") == 10 * TIMES
    assert money >= 4 * TIMES * REPORTED
    tokens = sum(record.billing.tokens.total for record in records)
    assert tokens == summed(metrics, "headrace_tokens_total")


async def test_repeated_lookups_are_free(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    world = policies(upstream.url).replace("price: {input: 0,", "price: {input: 3,")
    upstream.answer_with(answer({"id": "batch_1", "usage": {"total_tokens": 7}}))
    async with running_proxy(tmp_path / "policies", world) as proxy:
        for method in ("GET", "GET", "DELETE"):
            async with proxy.client.request(method, "/v1/files/a", headers=BEARER) as response:
                assert response.headers["x-headrace-cost-usd"] == "0"
        records = await proxy.sink.wait(3)

    events = [(record.billing.cost, record.billing.source) for record in records]
    assert events == [(0, "none")] * 3
