"""Two proxies and one Redis: together they admit what is allowed, also while it is away."""

from __future__ import annotations

import asyncio
import signal
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


async def admitted(*clients: ClientSession, calls: int) -> int:
    asking = [ask(client) for client in clients for _ in range(calls)]
    return sum(status == 200 for status, _, _ in await asyncio.gather(*asking))


async def test_admits_exact(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    limits = (
        "{name: calls, requests: 41 per day}",
        "{name: money, usd: 1 per month, unpriced: allow}",
    )
    async with two(tmp_path, upstream, server, *limits) as (
        (first_proxy, session),
        (second, other_session),
    ):
        assert await admitted(session, other_session, calls=250) == 41
        records = [*await first_proxy.sink.wait(250), *await second.sink.wait(250)]

    assert len(upstream.requests) == 41
    assert sum(record.billing.tokens.total for record in records) == 41 * 8


async def test_outage_share(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    limits = ("{name: calls, requests: 20 per day}",)
    async with two(tmp_path, upstream, server, *limits) as (
        (first_proxy, session),
        (_, other_session),
    ):
        assert await admitted(session, calls=1) == 1
        server.kill()
        assert 1 <= await admitted(session, other_session, calls=30) <= 20
        assert "headrace_limit_store_degraded 1.0" in await first_proxy.metrics()

        server.start()

        async def recovered() -> bool:
            return "headrace_limit_store_degraded 0.0" in await first_proxy.metrics()

        async with asyncio.timeout(30):
            while not await recovered():  # noqa: ASYNC110  # over the wire there is no event
                await asyncio.sleep(0.25)


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


async def test_stop_settles(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    limit = "{name: money, usd: 1 per month, unpriced: allow}"
    async with two(tmp_path, upstream, server, limit) as ((first_proxy, session), _second):
        assert await admitted(session, calls=1) == 1
        server.signal(signal.SIGSTOP)
        for _ in range(8):
            assert (await ask(session))[0] == 200
        assert "headrace_limit_store_degraded 1.0" in await first_proxy.metrics()
        records = await first_proxy.sink.wait(9)
        asyncio.get_running_loop().call_later(0.5, server.signal, signal.SIGCONT)
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


async def test_starts_alone(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    server.kill()
    async with two(tmp_path, upstream, server, "{name: calls, requests: 9 per day}") as (
        (_, session),
        _second,
    ):
        assert (await ask(session))[0] == 200


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
