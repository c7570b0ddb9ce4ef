"""Five hundred calls at one proxy and at two, while the store goes away in their middle."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import aiohttp
import pytest
from aiohttp import ClientSession

from tests.conftest import Proxy, metric_total
from tests.doubles import ScriptedUpstream
from tests.limits.conftest import replicas, with_limits
from tests.limits.test_init import ask
from tests.servers import Server, eventually

CALLS, FIRST, AT_ONCE, BATCH = 500, 150, 50, 64
MONEY = "{name: money, usd: 1000 per month, unpriced: allow}"
PLACES = "{name: places, concurrency: 1000}"


@dataclass
class Instances:
    proxies: list[Proxy]
    clients: list[ClientSession]
    upstream: ScriptedUpstream

    async def calls(self, count: int) -> Counter[int]:
        calls = [ask(self.clients[n % len(self.clients)]) for n in range(count)]
        return Counter(status for status, _, _ in await asyncio.gather(*calls))

    async def calls_and(self, later: Callable[[], None]) -> Counter[int]:
        calling = asyncio.ensure_future(self.calls(CALLS))
        target_count = len(self.upstream.requests) + FIRST
        await eventually(lambda: len(self.upstream.requests) >= target_count or calling.done())
        later()
        return await calling

    async def metric(self, name: str, **labels: str) -> list[Decimal]:
        texts = [await proxy.metrics() for proxy in self.proxies]
        return [metric_total(text, name, **labels) for text in texts]

    async def recovered(self) -> None:
        async with asyncio.timeout(30):
            while any(await self.metric("headrace_limit_store_degraded")):  # noqa: ASYNC110
                await asyncio.sleep(0.25)  # over the wire there is no event, and to look costs

    def spent(self) -> int:
        records = [record for proxy in self.proxies for record in proxy.sink.records]
        return sum(bill.cost or 0 for record in records for bill in record.billing.bills)


@asynccontextmanager
async def instances(
    folder: Path, upstream: ScriptedUpstream, server: Server, number: int, *limits: str
) -> AsyncIterator[Instances]:
    policies = with_limits(upstream, *limits)
    async with (
        replicas(folder, policies, server, number, ledgers=True) as proxies,
        AsyncExitStack() as opened,
    ):
        clients = []
        for proxy in proxies:
            connector = aiohttp.TCPConnector(limit=AT_ONCE)
            client = ClientSession(base_url=proxy.url, connector=connector)
            clients.append(await opened.enter_async_context(client))
        yield Instances(proxies, clients, upstream)


def used(server: Server, name: str) -> int:
    """What the server has of a limit: money that is spent, places that are taken."""
    total = 0
    with server.admin as admin:
        for key in admin.keys(f"headrace:*:{name}:*"):
            if admin.type(key) == b"zset":
                total += int(admin.zcard(key))
            else:
                fields = admin.hgetall(key)
                total += sum(int(value) for field, value in fields.items() if field.isdigit())
    return total


ONE_AND_TWO = pytest.mark.parametrize("number", [1, 2], ids=["one", "two"])


@ONE_AND_TWO
async def test_a_server_that_hangs_loses_no_money_and_holds_no_place(
    number: int, tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    async with instances(tmp_path, upstream, server, number, MONEY, PLACES) as cluster:
        statuses = await cluster.calls_and(lambda: server.signal(signal.SIGSTOP))
        assert statuses == {200: CALLS}
        assert any(await cluster.metric("headrace_limit_store_degraded"))
        server.signal(signal.SIGCONT)
        await cluster.recovered()

        await eventually(lambda: used(server, "concurrency:places") == 0)
        await eventually(lambda: used(server, "nano_usd:money") == cluster.spent() > 0)
        assert sum(await cluster.metric("headrace_budget_lost_total", limit="money")) == 0


@ONE_AND_TWO
@pytest.mark.parametrize("dies", [True, False], ids=["dies", "flushed"])
async def test_ledgers_refill_lost_budget(
    dies: bool, number: int, tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    def lose() -> None:
        if dies:
            return server.kill()
        with server.admin as admin:
            admin.flushall()

    async with instances(tmp_path, upstream, server, number, MONEY, PLACES) as cluster:
        assert await cluster.calls(CALLS) == {200: CALLS}
        await eventually(lambda: used(server, "concurrency:places") == 0)
        count_before = cluster.spent()
        assert await cluster.calls_and(lose) == {200: CALLS}
        if dies:
            server.start()
            await cluster.recovered()
            assert await cluster.calls(number * 2) == {200: number * 2}

        await eventually(lambda: used(server, "concurrency:places") == 0)
        assert (
            used(server, "nano_usd:money") >= count_before
        )  # each has added what its ledger knows
        losses = sum(await cluster.metric("headrace_budget_lost_total", limit="money"))
        assert losses >= 1 if dies else losses == number


@ONE_AND_TWO
@pytest.mark.parametrize(
    ("says", "allowed"),
    [("local", range(125, 251)), ("open", range(CALLS, CALLS + 1)), ("closed", range(251))],
    ids=["local", "open", "closed"],
)
async def test_calls_in_the_middle_of_an_outage_are_let_as_the_limit_says(
    number: int,
    says: str,
    allowed: range,
    tmp_path: Path,
    upstream: ScriptedUpstream,
    server: Server,
) -> None:
    """Of 500 calls 250 fit. What was admitted when nobody heard it any more is not used twice."""
    limit = f"{{name: calls, requests: 250 per day, on_store_error: {says}}}"
    async with instances(tmp_path, upstream, server, number, limit) as cluster:
        statuses = await cluster.calls_and(server.kill)
        server.start()  # or each would wait for it at its end, to tell it what is owed

    refusals = {429, 503} if says == "closed" else {429}
    assert statuses.keys() <= {200} | refusals
    assert statuses.total() == CALLS
    unheard = BATCH if number == 2 and says == "local" else 0  # what the other was let last
    assert statuses[200] in range(allowed.start, allowed.stop + unheard)


async def test_few_store_trips(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    async with instances(tmp_path, upstream, server, 2, MONEY, PLACES) as cluster:
        await cluster.calls_and(server.kill)
        server.start()
        await cluster.recovered()
        trips = server.trips()
        assert await cluster.calls(CALLS) == {200: CALLS}

    assert trips <= 100  # what 500 calls owe fits a few trips
    assert server.trips() - trips <= 2 * CALLS
