"""Two proxies with one Redis charge a background response once, also during an outage."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import ClientSession

from proxy.settings import LedgerAt
from proxy.types.limit import LEASE_S
from tests.cli.test_init import serving
from tests.conftest import KEY
from tests.dialects.test_leaning import SECRET, House, house, policy
from tests.doubles import ScriptedUpstream, answer, response
from tests.ledger.kept import kept, until
from tests.servers import Server

PRICED = 11_000
QUEUED = response(status="queued", background=True, output=[], usage=None)
RESULT = response(background=True)


@asynccontextmanager
async def two(
    folder: Path, upstream: ScriptedUpstream, server: Server, limit: str = ""
) -> AsyncIterator[tuple[House, House]]:
    policy_text = policy(upstream.url)
    if limit:
        policy_text = policy_text.replace(
            "policies:\n", f"policies:\n  default: {{limits: [{limit}]}}\n"
        )
    shared: Any = {"redis": server.at, "cache_secret": "a secret of tests", "replicas": 2}
    async with AsyncExitStack() as opened:
        single_house, other_house = [
            await opened.enter_async_context(house(folder / name, upstream, policy_text, **shared))
            for name in ("one", "two")
        ]
        yield single_house, other_house


async def ask_for(house: House, response_id: str) -> int:
    headers = {"authorization": f"Bearer {KEY}"}
    async with house.session.get(f"/v1/responses/{response_id}", headers=headers) as response:
        json.loads(await response.read())
        return response.status


async def costs(*requests: tuple[House, int]) -> list[list[int]]:
    """Return what the calls of each house have cost, once there are so many."""
    return [
        [record.billing.cost for record in await house.proxy.sink.wait(count)]
        for house, count in requests
    ]


async def test_bills_once(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    async with two(tmp_path, upstream, server) as (single_house, other_house):
        upstream.answer_with(answer(QUEUED))
        response_id = [
            await single_house.id_of(background=True),
            await other_house.id_of(background=True),
        ]
        assert response_id[0] == response_id[1]
        upstream.answer_with(answer(RESULT))

        asking = [
            ask_for(house, response_id[0])
            for house in (single_house, other_house)
            for _ in range(6)
        ]
        assert await asyncio.gather(*asking) == [200] * 12

        local_value, context = await costs((single_house, 7), (other_house, 7))
        assert sorted(local_value + context) == [0] * 13 + [PRICED]


async def test_bills_in_outage(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    async with two(tmp_path, upstream, server) as (single_house, other_house):
        upstream.answer_with(answer(QUEUED))
        response_id = await single_house.id_of(background=True)
        server.kill()
        upstream.answer_with(answer(RESULT))

        for house in (single_house, single_house, other_house, other_house):
            assert await ask_for(house, response_id) == 200

        assert await costs((single_house, 3), (other_house, 2)) == [[0, PRICED, 0], [PRICED, 0]]
        server.start()


async def test_closed_limit(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    limit = "{name: money, usd: 1 per month, on_store_error: closed}"
    async with two(tmp_path, upstream, server, limit) as (single_house, other_house):
        upstream.answer_with(answer(QUEUED))
        response_id = await single_house.id_of(background=True)
        upstream.answer_with(answer(RESULT))
        server.signal(signal.SIGSTOP)  # it stops, and keeps what it has
        assert await ask_for(other_house, response_id) == 503
        server.signal(signal.SIGCONT)

        async with asyncio.timeout(30):
            while await ask_for(other_house, response_id) != 200:  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.1)
        assert await ask_for(single_house, response_id) == 200

        [local_value] = await costs((single_house, 2))
        context = [record.billing.cost for record in other_house.proxy.sink.records]
        assert sum(cost or 0 for cost in local_value + context) == PRICED


def billed(server: Server) -> list[tuple[str, int]]:
    """The state of each bill, and for how many seconds it is kept."""
    with server.admin as admin:
        keys = list(admin.keys("*:billed:*"))
        return [(admin.get(key).decode().split()[0], admin.ttl(key)) for key in keys]


def costs_in(*ledgers: Path) -> list[int]:
    rows = [row for path in ledgers if path.exists() for row in kept(path, "attempts")]
    return [row["cost_nano_usd"] for row in rows if row["cost_nano_usd"]]


@pytest.mark.parametrize("is_same", [True, False], ids=["same ledger", "another replica"])
@pytest.mark.parametrize("is_written", [False, True], ids=["before its row", "after its row"])
async def test_a_kill_after_the_answer_loses_no_charge_and_makes_no_second(
    is_written: bool, is_same: bool, tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    first_path, second = tmp_path / "first.db", tmp_path / ("first.db" if is_same else "second.db")
    environ = {
        "HEADRACE_REDIS_URL": server.url,
        "HEADRACE_SECRET": SECRET,
        "HEADRACE_LEDGER": f"sqlite:{first_path}",
        "UPSTREAM_KEY": "sk",
    }
    policy_text = policy(upstream.url)
    upstream.answer_with(answer(QUEUED))
    async with (
        serving(tmp_path / "one", policy_text, **environ) as (served, url),
        ClientSession(base_url=url) as session,
    ):
        response_id = await House(cast(Any, None), session, upstream).id_of(background=True)
        upstream.answer_with(answer(RESULT))
        await until(lambda: len(kept(first_path)) == 1)
        with closing(sqlite3.connect(first_path, isolation_level=None)) as lock:
            if not is_written:
                lock.execute("BEGIN IMMEDIATE")
            assert await ask_for(House(cast(Any, None), session, upstream), response_id) == 200
            if is_written:
                await until(lambda: [state for state, _ in billed(server)] == ["booked"])
            served.process.kill()
            await served.process.wait()
    if not (is_same or is_written):  # nobody renews the lease of the process that has died
        assert [(state, 0 < ttl <= LEASE_S) for state, ttl in billed(server)] == [("charged", True)]
        with server.admin as admin:
            admin.delete(*admin.keys("*:billed:*"))
    environ["HEADRACE_LEDGER"] = f"sqlite:{second}"
    async with (
        serving(tmp_path / "two", policy_text, **environ) as (two, url),
        ClientSession(base_url=url) as session,
    ):
        for _ in range(2):
            assert await ask_for(House(cast(Any, None), session, upstream), response_id) == 200
        two.process.terminate()
        await two.process.wait()

    assert costs_in(*{first_path, second}) == [PRICED]
    [(state, ttl)] = billed(server)
    assert (state, ttl > 39 * 86_400) == ("booked", True)


async def test_stop_books_last(tmp_path: Path, upstream: ScriptedUpstream, server: Server) -> None:
    ledger = LedgerAt("sqlite", tmp_path / "ledger.db")
    shared: Any = {"redis": server.at, "cache_secret": "a secret of tests", "ledger": ledger}
    upstream.answer_with(answer(QUEUED))
    async with house(tmp_path / "one", upstream, policy(upstream.url), **shared) as single_house:
        response_id = await single_house.id_of(background=True)
        upstream.answer_with(answer(RESULT))
        assert await ask_for(single_house, response_id) == 200

    assert costs_in(ledger.path) == [PRICED]
    assert [state for state, _ in billed(server)] == ["booked"]
