"""Two proxies and one Redis: together they admit what is allowed, also while it is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream
from tests.ledger.kept import kept, until
from tests.limits.conftest import replicas, with_limits
from tests.limits.test_init import ask
from tests.servers import Server
from tests.test_pipeline import ROUTES

Instance = tuple[Proxy, ClientSession]


@asynccontextmanager
async def two(
    folder: Path, upstream: ScriptedUpstream, server: Server, *limits: str
) -> AsyncIterator[tuple[Instance, Instance]]:
    async with replicas(folder, with_limits(upstream, *limits), server) as (proxy, other_proxy):
        yield (proxy, proxy.client), (other_proxy, other_proxy.client)


@pytest.mark.parametrize("name", ROUTES)
async def test_a_limit_that_says_closed_is_unavailable_while_its_store_is_away(
    name: str, tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    limit = "{name: money, usd: 1 per month, unpriced: allow, on_store_error: closed}"
    route = ROUTES[name]
    body = route.body(streamed=route.streams)
    async with two(tmp_path, upstream, server, limit) as ((proxy, session), _second):
        server.kill()
        async with session.post(route.path, headers=route.credential, json=body) as response:
            fields = await response.json()
        [record] = await proxy.sink.wait()
        server.start()  # or each would wait for it at its end, to tell it what is owed

    assert response.status == 503
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["x-headrace-error"] == "limit_store_unavailable"
    assert "money" in fields["error"]["message"]
    assert "reached" not in fields["error"]["message"]
    assert (record.outcome, record.attempts) == ("proxy_error", [])


COST = 5 * 150 + 3 * 600  # nano-USD of a call
BUDGET = 40 * COST


async def test_lost_budget(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    """Replicas have spent 36 of 40 calls when Redis comes back empty, and take turns afterwards."""
    limit = f"{{name: month, usd: {BUDGET / 1e9:.9f} per month, unpriced: allow}}"
    policies = with_limits(upstream, limit)
    async with replicas(tmp_path, policies, server, 3, ledgers=True) as proxies:
        for _ in range(12):
            for proxy in proxies:
                assert (await ask(proxy.client, max_tokens=3))[0] == 200
        for number in range(3):
            path = tmp_path / f"{number}.db"
            await until(partial(lambda path: len(kept(path)) == 12, path))
        server.admin.flushall()

        turns = [proxy for _ in range(12) for proxy in proxies]
        statuses = [(await ask(proxy.client, max_tokens=3))[0] for proxy in turns]
        total_spend = sum(record.billing.cost for proxy in proxies for record in proxy.records)

    assert statuses[-3:] == [429] * 3
    assert total_spend <= BUDGET
