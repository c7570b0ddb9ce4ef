"""Which budgets the ledger can be asked about, and what a real one then says."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from proxy.ledger import budgets as kept_budgets
from proxy.limits.drift import Budget
from proxy.policy.budgets import budgets, counted_by
from proxy.policy.snapshot import Snapshot
from proxy.policy.store import read_folder
from proxy.settings import LedgerAt
from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream, answer, legacy
from tests.ledger.kept import until
from tests.ledger.test_init import call

POLICIES = """
policies:
  default:
    match: all
    limits:
      - {name: month, usd: 5 per month, unpriced: allow, per: [key, tag.team]}
      - {name: all, usd: 50 per month, unpriced: allow}
      - {name: taken, usd: 5 per month, unpriced: allow}
      - {name: users, usd: 5 per month, unpriced: allow, per: user}
      - {name: calls, requests: 5 per minute}
    rules:
      - {name: free, when: {stream: true}, without: {limits: [taken]}}
      - name: more
        when: {stream: true}
        limits: [{name: brought, usd: 5 per month, unpriced: allow}]
  other: {limits: [{name: own, usd: 5 per day, unpriced: allow, per: deployment}]}
"""


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    text = world("http://127.0.0.1:9").replace(
        "  legacy-only:\n", "  legacy-only:\n    policy: other\n"
    )
    (tmp_path / "p.yaml").write_text(text + POLICIES)
    return read_folder(tmp_path, None)


def named(snapshot: Snapshot) -> dict[str, Budget]:
    return {budget.limit.name: budget for budget in budgets(snapshot)}


def test_budgets_that_count_every_call_of_their_deployments_are_given(snapshot: Snapshot) -> None:
    found = named(snapshot)

    assert sorted(found) == ["all", "month", "own", "users"]
    assert found["own"].deployments == {"legacy-only"}
    assert "legacy-only" not in found["all"].deployments
    assert counted_by(snapshot, "own") == frozenset({"legacy-only"})
    assert counted_by(snapshot, "taken") is None
    assert counted_by(snapshot, "brought") is None


def test_their_counters_are_those_whose_owner_no_caller_chooses(snapshot: Snapshot) -> None:
    found = named(snapshot)

    assert found["all"].scopes == {"": ()}
    assert found["users"].scopes == {}
    assert found["own"].scopes == {"deployment:legacy-only": ("legacy-only",)}
    assert found["month"].scopes == {
        "key:support-widget|tag.team:support": ("support-widget", "support"),
        "key:search-box|tag.team:": ("search-box", ""),
    }


async def test_the_ledger_tells_of_all_counters_of_a_budget_at_once(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    at = LedgerAt("sqlite", tmp_path / "ledger.db")
    policies = world(upstream.url) + POLICIES
    upstream.answer_with(answer(legacy()))
    async with (
        running_proxy(tmp_path / "policies", policies, ledger=at) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        for _ in range(3):
            await call(client, model="support-chat", max_tokens=20)
        snapshot = read_folder(tmp_path / "policies", None)
        month = named(snapshot)["month"]
        since = month.limit.calendar.around(time.time_ns() // 1_000_000)[1]
        await until(lambda: _rows(at.path) == 3)

        before = await kept_budgets.by(at.path, since, month.per, month.deployments)
        nobody = await kept_budgets.by(at.path, since, month.per, frozenset({"legacy-only"}))
        later = await kept_budgets.by(at.path, since * 2, month.per, month.deployments)

    assert before == {("support-widget", "support"): 3 * 2550}
    assert (nobody, later) == ({}, {})
    assert await kept_budgets.by(tmp_path / "none.db", 0, (), frozenset()) is None


def _rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        [(count,)] = file.execute("SELECT COUNT(*) FROM calls")
    return int(count)
