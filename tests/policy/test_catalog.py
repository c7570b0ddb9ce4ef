"""Label values and counters of a policy folder that metrics may use."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from proxy.policy.catalog import (
    ActiveBudgets,
    list_budgets,
    list_deployments_by_cache_store,
    list_labels,
    list_upstreams_storing_for_several_keys,
)
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import read_folder
from proxy.types.label_catalog import LabelCatalog
from tests.cli.test_init import serving
from tests.conftest import policies_for
from tests.for_each import for_each
from tests.guards.growth import lines
from tests.policy.decisions import read_text
from tests.policy.review.test_check import SIZES, folder

DIGEST = hashlib.sha256(b"k").hexdigest()
OTHER_VALUE = hashlib.sha256(b"o").hexdigest()
WORLD = f"""
price_table: {{as_of: 2026-11-21}}
upstreams:
  openai: {{dialect: openai, base_url: 'http://here/v1'}}
  local: {{dialect: openai, base_url: 'http://there/v1'}}
tags:
  team: [support, search]
  feature: {{pattern: '[a-z]+', caller: true}}
  env: {{values: [prod, staging], caller: true}}
  beta: {{flag: true}}
keys:
  support-widget: {{sha256: {DIGEST}, deployments: [support-chat], tags: {{team: support}}}}
  search-box: {{sha256: {OTHER_VALUE}, deployments: [support-chat], tags: {{team: search}}}}
policies:
  default:
    input: [{{guard: secrets, action: block}}]
    limits:
      - {{name: per-key, requests: 10 per minute, per: key}}
      - {{name: per-team, usd: 5 per day, unpriced: allow, per: tag.team}}
      - {{name: per-env, requests: 10 per minute, per: tag.env}}
      - {{name: per-feature, requests: 10 per minute, per: tag.feature}}
      - {{name: per-user, requests: 10 per minute, per: user}}
    rules:
      - {{name: cheap, when: {{stream: true}}, targets: [{{upstream: local, model: smol}}]}}
deployments:
  support-chat:
    targets: [{{upstream: openai, model: gpt-4o-mini}}]
    fallback: [{{upstream: local, model: spare}}]
"""


def catalog_of(tmp_path: Path) -> LabelCatalog:
    return list_labels(read_text(tmp_path, WORLD, {}))


def test_all_targets_of_a_deployment_are_listed(tmp_path: Path) -> None:
    listed = catalog_of(tmp_path).deployments["support-chat"]

    assert {t.model for t in listed.targets} == {"gpt-4o-mini", "smol", "spare"}
    assert listed.rules == ("default/cheap",)
    assert listed.guards == (("input", "secrets"),)


def test_tag_lists_values_closed_by_policies(tmp_path: Path) -> None:
    assert catalog_of(tmp_path).tags == {
        "team": {"support", "search"}, "feature": set(), "env": {"prod", "staging"},
        "beta": {"true"}
    }  # fmt: skip


def test_counters_with_scopes_of_callers_are_not_listed(tmp_path: Path) -> None:
    result = catalog_of(tmp_path)

    scopes = {(limit.name, scope) for limit, scope in result.counters}
    assert scopes == {
        ("per-key", "key:support-widget"),
        ("per-key", "key:search-box"),
        ("per-team", "tag.team:support"),
        ("per-team", "tag.team:search"),
        *(
            ("per-env", f"key:{key}|tag.env:{env}")
            for key in ("support-widget", "search-box")
            for env in ("", "prod", "staging")
        ),
        ("per-feature", "key:support-widget|tag.feature:"),
        ("per-feature", "key:search-box|tag.feature:"),
    }
    assert result.prices_as_of is not None


def test_keys_and_their_tags_are_listed(tmp_path: Path) -> None:
    result = catalog_of(tmp_path)

    assert result.keys == ("search-box", "support-widget")
    assert result.deployments["support-chat"].tags == {("team", "support"), ("team", "search")}


@for_each(
    ("rule", "caller"),
    [
        ("output: [{guard: bias, name: fair, deployment: inner}]", "guard/fair"),
        ("cache: {semantic: {embeddings: inner}}", "cache/support-chat"),
    ],
)
def test_guards_and_semantic_caches_are_listed_as_callers(
    rule: str, caller: str, tmp_path: Path
) -> None:
    (tmp_path / "more.yaml").write_text(
        f"""
deployments: {{inner: {{targets: [{{upstream: local, model: smol}}], policy: own}}}}
policies:
  own: {{limits: [{{name: own, usd: 5 per day, unpriced: allow, per: key}}]}}
  other:
    extends: default
    rules: [{{name: r, {rule}}}]
"""
    )
    snapshot = list_labels(read_text(tmp_path, WORLD + "    policy: other\n", {}))

    assert snapshot.keys == (caller, "search-box", "support-widget")
    assert ("own", f"key:{caller}") in {(limit.name, scope) for limit, scope in snapshot.counters}


CACHES = f"""\
upstreams: {{up: {{dialect: openai, base_url: 'https://api.example.test'}}}}
keys: {{widget: {{sha256: {"0" * 64}, deployments: [bare, kept, ruled]}}}}
policies:
  keeping: {{cache: {{ttl: 1h, store: sqlite}}}}
  ruling:
    match: all
    rules:
      - {{name: shared, when: {{stream: true}}, cache: {{ttl: 1h, store: redis}}}}
      - {{name: never, when: {{stream: false}}, cache: off}}
    extends: keeping
deployments:
  bare: {{targets: [{{upstream: up, model: m}}]}}
  kept: {{policy: keeping, targets: [{{upstream: up, model: m}}]}}
  ruled: {{policy: ruling, targets: [{{upstream: up, model: m}}]}}
"""


def test_cache_stores_of_deployments_and_rules_are_listed(tmp_path: Path) -> None:
    assert list_deployments_by_cache_store(read_text(tmp_path, CACHES)) == {
        "sqlite": ["kept", "ruled"],
        "redis": ["ruled"],
    }


ROUTED = "rules: [{name: r, when: {stream: true}, targets: [{upstream: up, model: m}]}]"
RESPONSES = f"""\
upstreams:
  up: {{dialect: openai, base_url: 'https://api.example.test'}}
  spare: {{dialect: openai, base_url: 'https://spare.example.test'}}
  claude: {{dialect: anthropic, base_url: 'https://claude.example.test'}}
policies: {{routing: {{{ROUTED}}}}}
deployments:
  chats: {{targets: [{{upstream: up, model: m, endpoint: chat}}]}}
  messages: {{targets: [{{upstream: claude, model: m}}]}}
  keeps: {{targets: [{{upstream: up, model: m}}]}}
  falls: {{targets: [{{upstream: claude, model: m}}], fallback: [{{upstream: spare, model: m}}]}}
  routed: {{policy: routing, targets: [{{upstream: claude, model: m}}]}}
keys:
  widget: {{sha256: {"0" * 64}, deployments: [ONE]}}
  search: {{sha256: {"1" * 64}, deployments: [OTHER]}}
"""


@for_each(
    ("single", "other_item", "shared"),
    [
        ("keeps", "keeps", ["up"]),
        ("keeps, falls", "falls, routed", ["spare", "up"]),
        ("keeps, routed", "falls, chats, messages", []),
        ("chats, messages", "chats, messages", []),
    ],
)
def test_shares_stored_objects(
    single: str, other_item: str, shared: list[str], tmp_path: Path
) -> None:
    text = RESPONSES.replace("ONE", single).replace("OTHER", other_item)
    assert list_upstreams_storing_for_several_keys(read_text(tmp_path, text)) == shared


async def test_start_reports_unsealed_ids(tmp_path: Path) -> None:
    text = RESPONSES.replace("ONE", "keeps").replace("OTHER", "keeps")
    result = []
    for position, environ in enumerate(({}, {"HEADRACE_SECRET": "a secret of replicas"})):
        async with serving(tmp_path / str(position), text, **environ) as (served, _):
            pass
        result.append([line for line in served.lines if line["event"] == "ids.unsealed"])

    assert [len(lines) for lines in result] == [1, 0]
    assert result[0][0]["upstreams"] == ["up"]


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
    text = policies_for("http://127.0.0.1:9").replace(
        "  legacy-only:\n", "  legacy-only:\n    policy: other\n"
    )
    return read_text(tmp_path, text + POLICIES)


def test_budget_lists_deployments_unless_rules_change_it(snapshot: Snapshot) -> None:
    result = list_budgets(snapshot)

    assert sorted(result) == ["all", "brought", "month", "own", "taken", "users"]
    assert result["own"].deployments == frozenset({"legacy-only"})
    assert "legacy-only" not in (result["all"].deployments or ())
    assert (result["taken"].deployments, result["brought"].deployments) == (None, None)


def test_budgets_have_no_scopes_chosen_by_callers(snapshot: Snapshot) -> None:
    result = list_budgets(snapshot)

    assert result["all"].scopes == {""} == result["brought"].scopes == result["taken"].scopes
    assert result["users"].scopes == set()
    assert result["own"].scopes == {"deployment:legacy-only"}
    assert result["month"].scopes == {
        "key:support-widget|tag.team:support",
        "key:search-box|tag.team:",
    }


async def test_budgets_are_computed_once_per_snapshot(snapshot: Snapshot, tmp_path: Path) -> None:
    now = [snapshot]
    in_force = ActiveBudgets(lambda: now[0])
    first_item, same_value = await asyncio.gather(in_force.read_budgets(), in_force.read_budgets())
    now[0] = read_folder(tmp_path, None)
    other_item = await in_force.read_budgets()

    assert first_item is same_value
    assert first_item is not other_item
    assert first_item == other_item == list_budgets(snapshot)


def test_budgets_are_computed_off_the_event_loop(tmp_path: Path) -> None:
    def steps(times: int) -> int:
        sizes = {name: size * times for name, size in SIZES.items()}
        snapshot = read_folder(folder(tmp_path / str(times), **sizes), None)
        in_force = ActiveBudgets(lambda: snapshot)
        return lines(lambda: asyncio.run(in_force.read_budgets()))

    assert steps(4) < 1.25 * steps(1)
