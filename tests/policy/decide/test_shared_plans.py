"""A plan that depends on nothing but the way a call comes is worked out once, for all of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proxy.policy.decide import MAX_PLANS, KeyCaller
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.sample_call import sample_call
from proxy.policy.store import read_folder
from proxy.types import Call, Json, Plan
from tests.for_each import for_each

TARGET: Json = {"upstream": "openai", "model": "gpt-4o-mini"}
TODAY = datetime(2026, 3, 31, 23, tzinfo=UTC)
TOMORROW = datetime(2026, 4, 1, 1, tzinfo=UTC)
DATED = [{"from": "2026-04-01", "input": 1, "output": 2}]


def snapshot(folder: Path, deployment: Json, when: Json | None = None) -> Snapshot:
    rules = [{"name": "capped", "when": when or {"stream": True}, "cap": {"max_tokens": 9}}]
    text: Json = {
        "upstreams": {"openai": {"dialect": "openai", "base_url": "https://openai.test"}},
        "tags": {"team": {"values": ["support", "search"], "caller": True}},
        "keys": {"widget": {"sha256": "1" * 64, "deployments": ["support-chat"]}},
        "deployments": {"support-chat": {"policy": "house", "targets": [TARGET], **deployment}},
        "policies": {"house": {"match": "all", "rules": rules}},
    }
    (folder / "p.yaml").write_text(json.dumps(text))
    return read_folder(folder, None)


def call(model: str = "support-chat", moment: datetime = TODAY, **headers: str) -> Call:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    return sample_call(
        body, {name.replace("_", "-"): text for name, text in headers.items()}, moment
    )


def decide(policies: Snapshot, client_call: Call) -> Plan:
    return KeyCaller(policies, policies.keys["widget"]).decide(client_call)


def test_calls_that_come_the_same_way_share_a_plan_that_holds_none_of_them(tmp_path: Path) -> None:
    policies = snapshot(tmp_path, {})

    decide(policies, call())
    second, third = decide(policies, call()), decide(policies, call())

    assert second is third
    assert type(second) is Plan


@for_each(
    ("deployment", "when", "headers"),
    [
        ({"targets": [{**TARGET, "weight": 1}, {**TARGET, "model": "o3", "weight": 1}]}, None, {}),
        ({}, {"header": {"x-region": "eu"}}, {}),
        ({}, {"not": {"any": [{"stream": True}, {"header": {"x-region": "eu"}}]}}, {}),
        ({}, {"time": {"between": "08:00-18:00"}}, {}),
        ({}, None, {"x_headrace_tags": "team=search"}),
        ({}, None, {"x_headrace_refresh_cache": "true"}),
        ({}, None, {"x_headrace_deployment": "support-chat"}),
    ],
    ids=["a draw", "a header", "within others", "a time", "tags", "a refresh", "any model at all"],
)
def test_what_may_differ_from_call_to_call_is_decided_for_each(
    tmp_path: Path, deployment: Json, when: Json | None, headers: dict[str, Any]
) -> None:
    policies = snapshot(tmp_path, deployment, when)
    model = "made-up" if "x_headrace_deployment" in headers else "support-chat"

    for _ in range(2):
        decide(policies, call(model, **headers))

    assert not policies.plans


def test_another_day_has_other_prices(tmp_path: Path) -> None:
    target = {**TARGET, "price": DATED}
    policies = snapshot(tmp_path, {"targets": [target], "unpriced": "refuse"})

    refused = [
        decide(policies, call(moment=item)).refusal for item in (TODAY, TOMORROW, TODAY, TOMORROW)
    ]

    assert [entry is None for entry in refused] == [False, True, False, True]


def test_a_key_that_is_revoked_leaves_no_plan(tmp_path: Path) -> None:
    policies = snapshot(tmp_path, {})
    decide(policies, call())

    assert policies.plans
    assert not policies.revoke(frozenset({"widget"})).plans


def test_only_so_many_plans_are_kept(tmp_path: Path) -> None:
    policies = snapshot(tmp_path, {})
    plan = decide(policies, call())
    policies.plans.clear()
    for number in range(MAX_PLANS):
        policies.plans[number] = plan

    decide(policies, call("gpt-4o-mini"))

    assert len(policies.plans) == 1
