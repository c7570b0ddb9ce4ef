"""Callers without a key, or who choose what is seen of them: what they cannot do to others."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.telemetry.log import BURST
from tests.cli.test_init import serving
from tests.conftest import KEY, running_proxy, world
from tests.doubles import ScriptedUpstream
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]
STRANGER = {"Authorization": "Bearer hr-wrong"}
CROWD = 300


async def ask(client: ClientSession, url: str, headers: dict[str, str]) -> int:
    body = ROUTE.body(streamed=False)
    async with client.post(url + ROUTE.path, headers=headers, json=body) as response:
        await response.read()
        return response.status


async def stopped(served: Any) -> list[dict[str, Any]]:
    served.process.terminate()
    async with asyncio.timeout(20):
        out, _ = await served.process.communicate()
    lines = [*served.lines, *map(json.loads, out.splitlines())]
    return [line for line in lines if line["event"] == "call"]


async def test_counts_strangers_in_aggregate(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    ledger, decisions = tmp_path / "ledger.db", tmp_path / "decisions"
    stored = {"HEADRACE_LEDGER": f"sqlite:{ledger}", "HEADRACE_DECISION_LOG": str(decisions)}
    async with (
        serving(tmp_path / "p", world(upstream.url), **stored) as (served, url),
        ClientSession() as client,
    ):
        assert await ask(client, url, BEARER) == 200
        for _ in range(CROWD):
            assert await ask(client, url, STRANGER) == 401
        assert await ask(client, url, BEARER) == 200
        lines = await stopped(served)

    strangers = [line for line in lines if line["key"] is None]
    assert BURST <= len(strangers) <= BURST + 10
    assert len(lines) - len(strangers) == 2
    with closing(sqlite3.connect(ledger)) as rows:
        assert rows.execute("SELECT count(*) FROM calls").fetchone() == (len(lines),)
    sealed = [json.loads(line) for line in decisions.read_text().splitlines()]
    assert sum(entry["event"] == "call" for entry in sealed) == len(lines)


async def test_strangers_evict_no_explanation(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with running_proxy(tmp_path / "p", world(upstream.url)) as proxy:
        await ask(proxy.client, proxy.url, {**BEARER, "x-request-id": "known"})
        for _ in range(CROWD):
            await ask(proxy.client, proxy.url, {**STRANGER, "x-request-id": "known"})
        await proxy.sink.wait(CROWD + 1)
        explained = await proxy.read("/explain/known")
        metrics = await proxy.metrics()

    assert "success, status 200" in explained
    unknown = 'headrace_unauthenticated_requests_total{key="none",reason="unknown"}'
    assert f"{unknown} {CROWD}.0" in metrics


@pytest.mark.parametrize(("may", "count"), [("refresh", 0), ("trace", 5)])
async def test_a_callers_trace_chooses_nothing_unless_its_key_may(
    may: str, count: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    policies = world(upstream.url).replace("may: [refresh]", f"may: [{may}]")
    always_chosen = f"00-{'0' * 31}1-{'0' * 15}1-01"
    async with (
        serving(tmp_path / "p", policies, HEADRACE_LOG_RATIO="0.000001") as (served, url),
        ClientSession() as client,
    ):
        for _ in range(5):
            assert await ask(client, url, {**BEARER, "traceparent": always_chosen}) == 200
        lines = await stopped(served)

    assert len(lines) == count
    assert all(line["key"] == "support-widget" for line in lines)
    assert KEY not in str(lines)
