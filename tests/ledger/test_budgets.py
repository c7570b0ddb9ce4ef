"""Budgets that outlive the process that counted them, by what the ledger knows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from proxy.ledger.budgets import spent
from proxy.ledger.store import Unusable
from proxy.settings import LedgerAt
from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream, answer, legacy, usage
from tests.ledger.kept import ledgered
from tests.ledger.test_init import call

BUDGET = """
policies:
  default: {limits: [{name: month, usd: 0.0001 per month, unpriced: allow, per: [key, tag.team]}]}
"""


async def test_a_budget_goes_on_where_the_last_process_left_it(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    ledger = LedgerAt("sqlite", tmp_path / "ledger.db")
    policies = world(upstream.url) + BUDGET
    upstream.answer_with(answer(legacy(usage=usage(600, 0))))  # 90 of 100 micro-USD
    statuses = []
    for _ in range(2):
        async with (
            running_proxy(tmp_path / "policies", policies, ledger=ledger) as proxy,
            aiohttp.ClientSession(base_url=proxy.url) as client,
        ):
            statuses.append(await call(client, model="support-chat", max_tokens=20))

    assert statuses == [200, 429]
    assert len(upstream.requests) == 1


async def test_calls_that_come_while_a_budget_is_recalled_do_not_overtake_that(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    ledger = LedgerAt("sqlite", tmp_path / "ledger.db")
    policies = world(upstream.url) + BUDGET
    upstream.answer_with(answer(legacy(usage=usage(600, 0))))  # 90 of 100 micro-USD
    async with (
        running_proxy(tmp_path / "policies", policies, ledger=ledger) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        assert await call(client, model="support-chat", max_tokens=20) == 200

    async with (
        running_proxy(tmp_path / "policies", policies, ledger=ledger) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        asking = [call(client, model="support-chat", max_tokens=20) for _ in range(30)]
        statuses = await asyncio.gather(*asking)

    assert set(statuses) == {429}


@pytest.mark.parametrize(
    ("of", "nano_usd"),
    [
        ({}, 66_000),
        ({"key": "support-widget"}, 66_000),
        ({"key": "somebody"}, 0),
        ({"deployment": "resilient"}, 22_000),
        ({"tag.team": "support"}, 66_000),
        ({"tag.team": "search"}, 0),
        ({"tag.env": ""}, 22_000),
        ({"model": "gpt-4o-mini"}, 44_000),
        ({"key": "support-widget", "deployment": "resilient"}, 22_000),
        ({"user": "someone"}, None),
    ],
)
async def test_the_ledger_knows_whose_money_was_spent(
    of: dict[str, str], nano_usd: int | None, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with ledgered(tmp_path, upstream) as (proxy, client, path):
        for model in ("support-chat", "support-chat", "resilient"):
            await call(client, model=model)
        await proxy.sink.wait(3)

    assert await spent(path, 0, of) == nano_usd


async def test_a_ledger_that_is_not_there_cannot_tell(tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        await spent(tmp_path / "none.db", 0, {})
