"""How the ledger is asked about the budgets of a revision."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.policy.catalog import ActiveBudgets, budgets
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import read_folder
from tests.conftest import world
from tests.guards.growth import lines
from tests.policy.review.test_check_growth import SIZES, folder

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


def test_budget_lists_deployments_unless_rules_decide(snapshot: Snapshot) -> None:
    result = budgets(snapshot)

    assert sorted(result) == ["all", "brought", "month", "own", "taken", "users"]
    assert result["own"].deployments == frozenset({"legacy-only"})
    assert "legacy-only" not in (result["all"].deployments or ())
    assert (result["taken"].deployments, result["brought"].deployments) == (None, None)


def test_their_counters_are_those_whose_owner_no_caller_chooses(snapshot: Snapshot) -> None:
    result = budgets(snapshot)

    assert result["all"].scopes == {""} == result["brought"].scopes == result["taken"].scopes
    assert result["users"].scopes == set()
    assert result["own"].scopes == {"deployment:legacy-only"}
    assert result["month"].scopes == {
        "key:support-widget|tag.team:support",
        "key:search-box|tag.team:",
    }


async def test_they_are_found_once_for_each_snapshot(snapshot: Snapshot, tmp_path: Path) -> None:
    now = [snapshot]
    in_force = ActiveBudgets(lambda: now[0])
    first_item, same_value = await asyncio.gather(in_force.all(), in_force.all())
    now[0] = read_folder(tmp_path, None)
    other_item = await in_force.all()

    assert first_item is same_value
    assert first_item is not other_item
    assert first_item == other_item == budgets(snapshot)


def test_they_are_found_off_the_event_loop(tmp_path: Path) -> None:
    def steps(times: int) -> int:
        sizes = {name: size * times for name, size in SIZES.items()}
        snapshot = read_folder(folder(tmp_path / str(times), **sizes), None)
        in_force = ActiveBudgets(lambda: snapshot)
        return lines(lambda: asyncio.run(in_force.all()))

    assert steps(4) < 1.25 * steps(1)
