"""250 concurrent calls never exceed a limit, also while its store is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.test_init import serving
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import ScriptedUpstream, gated, legacy_completion, respond
from tests.ledger.records import stored_rows
from tests.limits.conftest import replicas, with_limits
from tests.limits.test_init import ask
from tests.servers import Server, eventually
from tests.test_pipeline import BEARER, ROUTES

CALLS, ALLOWED = 250, 40
TOKENS, NANO_USD = 30, 13_500  # claim of one call: 10 input and 20 output tokens
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
async def proxy_with_limits(
    folder: Path, upstream: ScriptedUpstream, narrow: str, extra: str = ""
) -> AsyncIterator[tuple[Proxy, ClientSession]]:
    body = {**WIDE, narrow: NARROW[narrow]}
    limits = ", ".join(f"{{name: {name}, {amount}}}" for name, amount in body.items())
    policies = (
        f"{policies_for(upstream.url)}\npolicies:\n  default:\n    limits: [{limits}]\n{extra}"
    )
    policies = policies.replace(
        "  resilient:\n", "  resilient:\n    retry: {times: 1, wait: 1ms, max_wait: 2ms}\n"
    )
    async with (
        running_proxy(folder / "policies", policies) as proxy,
        ClientSession(base_url=proxy.url, connector=aiohttp.TCPConnector(limit=0)) as client,
    ):
        yield proxy, client


async def read_gauges(proxy: Proxy) -> dict[str, float]:
    """Return spent money in nano-USD, and the remaining share of other limits."""
    text = await proxy.metrics()
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    remaining = {
        s.labels["limit"]: s.value for s in samples if s.name == "headrace_limit_remaining_ratio"
    }
    spend = [s.value for s in samples if s.name == "headrace_budget_spent_usd"]
    return {**remaining, "money": round(spend[0] * 1e9)}


def total_cost(records: Sequence[Any]) -> int:
    return sum(bill.cost or 0 for record in records for bill in record.billing.bills)


@pytest.mark.parametrize("narrow", NARROW)
async def test_concurrent_calls_stay_within_a_limit(
    narrow: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    go = asyncio.Event()
    upstream.answer_with(gated(go, respond(legacy_completion())))
    async with proxy_with_limits(tmp_path, upstream, narrow) as (proxy, client):
        asking = [asyncio.ensure_future(ask(client)) for _ in range(CALLS)]
        await eventually(lambda: len(proxy.records) >= CALLS - ALLOWED)
        refused = len(proxy.records)
        go.set()
        statuses = [status for status, _, _ in await asyncio.gather(*asking)]
        await eventually(lambda: len(proxy.records) == CALLS)
        standing = await read_gauges(proxy)

    assert refused == CALLS - ALLOWED
    assert (statuses.count(200), statuses.count(429)) == (ALLOWED, CALLS - ALLOWED)
    assert len(upstream.requests) == ALLOWED
    assert standing["money"] == total_cost(proxy.records) == ALLOWED * 2550
    assert standing["at-once"] == 1.0


Instance = tuple[Proxy, ClientSession]


@asynccontextmanager
async def two_replicas(
    folder: Path, upstream: ScriptedUpstream, server: Server, *limits: str
) -> AsyncIterator[tuple[Instance, Instance]]:
    async with replicas(folder, with_limits(upstream, *limits), server) as (proxy, other_proxy):
        yield (proxy, proxy.client), (other_proxy, other_proxy.client)


@pytest.mark.parametrize("name", ROUTES)
async def test_closed_limit_is_503_while_its_store_is_away(
    name: str, tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    limit = "{name: money, usd: 1 per month, unpriced: allow, on_store_error: closed}"
    route = ROUTES[name]
    body = route.body(streamed=route.streams)
    async with two_replicas(tmp_path, upstream, server, limit) as ((proxy, session), _second):
        server.kill()
        async with session.post(route.path, headers=route.credential, json=body) as response:
            fields = await response.json()
        [record] = await proxy.sink.wait()
        server.start()  # so that each proxy can send its settlements on exit

    assert response.status == 503
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["x-headrace-error"] == "limit_store_unavailable"
    assert "money" in fields["error"]["message"]
    assert "reached" not in fields["error"]["message"]
    assert (record.outcome, record.attempts) == ("proxy_error", [])


COST = 5 * 150 + 3 * 600  # nano-USD per call
BUDGET = 40 * COST


async def test_lost_budget_is_restored_from_ledgers(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    """Replicas have spent 36 of 40 calls when Redis restarts empty. They alternate afterwards."""
    limit = f"{{name: month, usd: {BUDGET / 1e9:.9f} per month, unpriced: allow}}"
    policies = with_limits(upstream, limit)
    async with replicas(tmp_path, policies, server, 3, ledgers=True) as proxies:
        for _ in range(12):
            for proxy in proxies:
                assert (await ask(proxy.client, max_tokens=3))[0] == 200
        for number in range(3):
            path = tmp_path / f"{number}.db"
            await eventually(partial(lambda path: len(stored_rows(path)) == 12, path))
        server.admin.flushall()

        turns = [proxy for _ in range(12) for proxy in proxies]
        statuses = [(await ask(proxy.client, max_tokens=3))[0] for proxy in turns]
        total_spend = sum(record.billing.cost for proxy in proxies for record in proxy.records)

    assert statuses[-3:] == [429] * 3
    assert total_spend <= BUDGET


ROUTE = ROUTES["openai"]
LIMITS = """
policies:
  default:
    limits:
      - {name: money, usd: 5 per month, per: [key, user], unpriced: allow}
      - {name: calls, requests: 1 per hour, per: [key, user], warn_at: 100%}
"""


async def test_events_of_new_budgets_name_no_users(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(legacy_completion()))
    users = ["alice-of-sales", "alice-of-sales", "bob-of-sales", "carol-of-sales"]
    async with serving(tmp_path / "p", policies_for(upstream.url) + LIMITS) as (served, url):
        async with ClientSession() as client:
            for user in users:
                body = {**ROUTE.body(streamed=False), "user": user}
                async with client.post(url + ROUTE.path, headers=BEARER, json=body) as response:
                    await response.read()
        for _ in users:
            await served.line("call")

    begins = [line for line in served.lines if line["event"] == "budget.begins"]
    warned = [line for line in served.lines if line["event"] == "limit.warned"]
    assert (len(begins), len(warned)) == (3, 3)
    for line in (*begins, *warned):
        assert line["whose"] == {"key": "support-widget"}
        assert "of-sales" not in str(line)
