"""Responses made in the background, asked for at two proxies with one Redis: one call is charged,
also while that is away."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conftest import KEY
from tests.dialects.test_leaning import House, house, policy
from tests.doubles import ScriptedUpstream, answer, response
from tests.servers import Server

PRICED = 11_000
QUEUED = response(status="queued", background=True, output=[], usage=None)
MADE = response(background=True)


@asynccontextmanager
async def two(
    folder: Path, upstream: ScriptedUpstream, server: Server, limit: str = ""
) -> AsyncIterator[tuple[House, House]]:
    told = policy(upstream.url)
    if limit:
        told = told.replace("policies:\n", f"policies:\n  default: {{limits: [{limit}]}}\n")
    shared: Any = {"redis": server.at, "cache_secret": "a secret of tests", "replicas": 2}
    async with AsyncExitStack() as opened:
        one, other = [
            await opened.enter_async_context(house(folder / name, upstream, told, **shared))
            for name in ("one", "two")
        ]
        yield one, other


async def ask_for(house: House, given: str) -> int:
    headers = {"authorization": f"Bearer {KEY}"}
    async with house.session.get(f"/v1/responses/{given}", headers=headers) as got:
        json.loads(await got.read())
        return got.status


async def costs(*asked: tuple[House, int]) -> list[list[int]]:
    """Return what the calls of each house have cost, once there are so many."""
    return [
        [record.billing.cost for record in await house.proxy.sink.wait(count)]
        for house, count in asked
    ]


async def test_of_all_who_ask_both_at_once_one_is_charged(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    async with two(tmp_path, upstream, server) as (one, other):
        upstream.answer_with(answer(QUEUED))
        given = [await one.id_of(background=True), await other.id_of(background=True)]
        assert given[0] == given[1]
        upstream.answer_with(answer(MADE))

        asking = [ask_for(house, given[0]) for house in (one, other) for _ in range(6)]
        assert await asyncio.gather(*asking) == [200] * 12

        here, there = await costs((one, 7), (other, 7))
        assert sorted(here + there) == [0] * 13 + [PRICED]


async def test_while_the_store_is_away_each_charges_once_and_nothing_is_lost(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    async with two(tmp_path, upstream, server) as (one, other):
        upstream.answer_with(answer(QUEUED))
        given = await one.id_of(background=True)
        server.kill()
        upstream.answer_with(answer(MADE))

        for house in (one, one, other, other):
            assert await ask_for(house, given) == 200

        assert await costs((one, 3), (other, 2)) == [[0, PRICED, 0], [PRICED, 0]]
        server.start()


async def test_a_limit_that_is_closed_without_its_store_lets_nobody_ask_and_nothing_is_lost(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    limit = "{name: money, usd: 1 per month, on_store_error: closed}"
    async with two(tmp_path, upstream, server, limit) as (one, other):
        upstream.answer_with(answer(QUEUED))
        given = await one.id_of(background=True)
        upstream.answer_with(answer(MADE))
        server.signal(signal.SIGSTOP)  # it stops, and keeps what it has
        assert await ask_for(other, given) == 503
        server.signal(signal.SIGCONT)

        async with asyncio.timeout(30):
            while await ask_for(other, given) != 200:  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.1)
        assert await ask_for(one, given) == 200

        [here] = await costs((one, 2))
        there = [record.billing.cost for record in other.proxy.sink.records]
        assert sum(cost or 0 for cost in here + there) == PRICED
