"""250 concurrent calls never exceed a limit, and every end settles actual usage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Proxy, running_proxy, world
from tests.doubles import Asked, Script, ScriptedUpstream, Wire, answer, hang, legacy
from tests.ledger.kept import until
from tests.limits.test_init import ask

CALLS, ALLOWED = 250, 40
TOKENS, NANO_USD = 30, 13_500  # what one call claims: 10 tokens in, 20 out
WIDE = {
    "calls": "requests: 100k per day",
    "tokens": "tokens: 100k per day",
    "money": "usd: 900 per month, unpriced: allow",
    "at-once": "concurrency: 10000",
}
NARROW = {
    "calls": f"requests: {ALLOWED} per day",
    "tokens": f"tokens: {ALLOWED * TOKENS} per day",
    "money": f"usd: {Decimal(ALLOWED * NANO_USD).scaleb(-9):f} per month, unpriced: allow",
    "at-once": f"concurrency: {ALLOWED}",
}


@asynccontextmanager
async def bounded(
    folder: Path, upstream: ScriptedUpstream, narrow: str, extra: str = ""
) -> AsyncIterator[tuple[Proxy, ClientSession]]:
    body = {**WIDE, narrow: NARROW[narrow]}
    limits = ", ".join(f"{{name: {name}, {amount}}}" for name, amount in body.items())
    policies = f"{world(upstream.url)}\npolicies:\n  default:\n    limits: [{limits}]\n{extra}"
    policies = policies.replace(
        "  resilient:\n", "  resilient:\n    retry: {times: 1, wait: 1ms, max_wait: 2ms}\n"
    )
    async with (
        running_proxy(folder / "policies", policies) as proxy,
        ClientSession(base_url=proxy.url, connector=aiohttp.TCPConnector(limit=0)) as client,
    ):
        yield proxy, client


def held(go: asyncio.Event, later: Script) -> Script:
    async def script(request: Asked, wire: Wire) -> None:
        await go.wait()
        await later(request, wire)

    return script


async def gauges(proxy: Proxy) -> dict[str, float]:
    """Where the limits stand: money in nano-USD as spent, the rest as the share that is left."""
    text = await proxy.metrics()
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    remaining = {
        s.labels["limit"]: s.value for s in samples if s.name == "headrace_limit_remaining_ratio"
    }
    spend = [s.value for s in samples if s.name == "headrace_budget_spent_usd"]
    return {**remaining, "money": round(spend[0] * 1e9)}


def really_spent(records: Sequence[Any]) -> int:
    return sum(bill.cost or 0 for record in records for bill in record.billing.bills)


@pytest.mark.parametrize("narrow", NARROW)
async def test_admits_at_once(narrow: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    go = asyncio.Event()
    upstream.answer_with(held(go, answer(legacy())))
    async with bounded(tmp_path, upstream, narrow) as (proxy, client):
        asking = [asyncio.ensure_future(ask(client)) for _ in range(CALLS)]
        await until(lambda: len(proxy.records) >= CALLS - ALLOWED)
        refused = len(proxy.records)
        go.set()
        statuses = [status for status, _, _ in await asyncio.gather(*asking)]
        await until(lambda: len(proxy.records) == CALLS)
        standing = await gauges(proxy)

    assert refused == CALLS - ALLOWED
    assert (statuses.count(200), statuses.count(429)) == (ALLOWED, CALLS - ALLOWED)
    assert len(upstream.requests) == ALLOWED
    assert standing["money"] == really_spent(proxy.records) == ALLOWED * 2550
    assert standing["at-once"] == 1.0


GUARD = "    output: [{guard: keywords, words: [Paris]}]\n"
CACHE = "    cache: {ttl: 1h}\n"
Way = tuple[Script, dict[str, Any], str]
WAYS: dict[str, Way] = {
    "done": (answer(legacy()), {}, ""),
    "cancelled": (hang(), {}, ""),
    "upstream error": (answer({}, 500), {}, ""),
    "blocked": (answer(legacy()), {}, GUARD),
    "cache hit": (answer(legacy()), {}, CACHE),
    "retry": (answer(legacy()), {"model": "resilient"}, ""),
    "fallback": (answer(legacy()), {"model": "resilient"}, ""),
}


def failing(first_names: set[int], later: Script) -> Script:
    """An upstream whose requests of these numbers fail, and that answers the others."""
    count = 0

    async def script(request: Asked, wire: Wire) -> None:
        nonlocal count
        count += 1
        await (answer({}, 503) if count in first_names else later)(request, wire)

    return script


async def left(asking: Sequence[asyncio.Future[Any]], proxy: Proxy, received: list[Any]) -> None:
    """Have every client leave once all that were admitted wait for the upstream."""
    await until(lambda: len(proxy.records) == CALLS - ALLOWED and len(received) == ALLOWED)
    for item in asking:
        item.cancel()


@pytest.mark.parametrize("way", WAYS)
async def test_every_end_settles(way: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    script, fields, extra = WAYS[way]
    if way == "retry":
        script = failing(set(range(1, 9)), script)
    elif way == "fallback":
        upstream.by_model = {"primary": answer({}, 503), "spare": script}
    upstream.answer_with(script)
    async with bounded(tmp_path, upstream, "calls", extra) as (proxy, client):
        asking = [asyncio.ensure_future(ask(client, **fields)) for _ in range(CALLS)]
        if way == "cancelled":
            await left(asking, proxy, upstream.requests)
        await asyncio.gather(*asking, return_exceptions=True)
        await until(lambda: len(proxy.records) == CALLS)
        standing = await gauges(proxy)

    admitted = [record for record in proxy.records if record.outcome != "limited"]
    attempts = [attempt for record in admitted for attempt in record.attempts]
    assert len(admitted) == ALLOWED
    assert standing["money"] == really_spent(admitted)
    assert standing["at-once"] == 1.0
    used = sum(record.billing.tokens.total for record in admitted)
    assert standing["tokens"] == pytest.approx(1 - used / 100_000, abs=3e-4)  # it drains
    outcomes = {record.outcome for record in admitted}
    assert outcomes == {OUTCOMES.get(way, "success")}
    assert {attempt.reason for attempt in attempts} >= WHY.get(way, set())
    assert len(upstream.requests) == (1 if way == "cache hit" else len(attempts))


OUTCOMES = {"cancelled": "client_abort", "upstream error": "upstream_error", "blocked": "blocked"}
WHY = {"retry": {"retry"}, "fallback": {"fallback"}}
