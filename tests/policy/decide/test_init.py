"""Decisions of policies: the caller, its deployment, targets and tags."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.dialects import read_call
from proxy.errors import InvalidField, NotFound, Unauthorized
from proxy.policy.decide import MAX_PLANS, ActivePolicy, KeyCaller
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.sample_call import build_sample_call
from proxy.types import Call, Json, Plan, RequestHead, Secret
from tests.conftest import DIGEST, KEY, policies_for
from tests.for_each import for_each
from tests.policy.decisions import decide, read_text

NEAR_KEYS = [KEY[:-1], KEY + "x", "x" + KEY, KEY + " ", KEY + "\0", KEY.upper(), KEY * 2]
WRONG_KEYS = ["", "null", "*", "\0", "\udcff", "' OR 1=1", "x" * 60_000, *NEAR_KEYS]
WRONG_KEYS.append(DIGEST)  # the stored digest is no key
HEAD = RequestHead("openai", "completions", "/v1/completions", "req_1", digest=Secret(KEY).digest)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("policies")
    return read_text(folder, policies_for("http://127.0.0.1:9"), {"UPSTREAM_KEY": "sk"})


def call(*models: str, deployment: str | None = None, **head: Any) -> Call:
    return Call(replace(HEAD, **head), {}, requested_models=models, deployment=deployment)


@for_each("token", WRONG_KEYS, ids=lambda token: ascii(token[:20]))
def test_invalid_key_is_unauthorized(token: str, snapshot: Snapshot) -> None:
    with pytest.raises(Unauthorized):
        snapshot.identify(replace(HEAD, digest=Secret(token).digest))


def test_missing_and_invalid_key_have_equal_messages(snapshot: Snapshot) -> None:
    with pytest.raises(Unauthorized) as error:
        snapshot.identify(replace(HEAD, digest=None))
    with pytest.raises(Unauthorized) as wrong:
        snapshot.identify(replace(HEAD, digest=Secret("x").digest))

    assert str(error.value) == str(wrong.value)


@for_each(
    ("client_call", "deployment", "targets"),
    [
        (call("support-chat"), "support-chat", ["gpt-4o-mini"]),
        (call("gpt-4o-mini"), "support-chat", ["gpt-4o-mini"]),
        (call("openai/gpt-4o-mini"), "support-chat", ["gpt-4o-mini"]),
        (call("anything", deployment="support-chat"), "support-chat", ["gpt-4o-mini"]),
        (call("x", **{"deployment": "compare"}), "compare", ["first"]),
        (call("second", deployment="compare"), "compare", ["second"]),
        (call("fireworks/fireworks-model"), "via-fireworks", ["fireworks-model"]),
    ],
)
def test_name_selects_a_deployment_and_its_targets(
    client_call: Call, deployment: str, targets: list[str], snapshot: Snapshot
) -> None:
    plan = decide(snapshot, client_call)

    assert plan.deployment == deployment
    assert [target.model for target in plan.model_calls[0].targets] == targets


def test_header_precedes_model_of_another_deployment(snapshot: Snapshot) -> None:
    request = Call(
        replace(HEAD, deployment="search-answers"), {}, requested_models=("support-chat",)
    )

    assert decide(snapshot, request).deployment == "search-answers"


def test_one_deployment_must_serve_all_listed_models(snapshot: Snapshot) -> None:
    plan = decide(snapshot, call("second", "first"))

    assert plan.deployment == "compare"
    assert [leg.targets[0].model for leg in plan.model_calls] == ["second", "first"]
    with pytest.raises(NotFound, match="together"):
        decide(snapshot, call("first", "gpt-4o-mini"))


@pytest.mark.parametrize(
    ("client_call", "param"),
    [
        (call("no-such-model"), "model"),
        (call("m", deployment="no-such-deployment"), "deployment"),
        (call("\x1b[31mred\r\n" + "x" * 500), "model"),
    ],
)
def test_unknown_name_is_escaped(client_call: Call, param: str, snapshot: Snapshot) -> None:
    with pytest.raises(NotFound) as refused:
        decide(snapshot, client_call)

    assert refused.value.param == param
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 200


def test_key_uses_only_its_deployments(snapshot: Snapshot) -> None:
    search = Secret("hr-search-key").digest

    assert decide(snapshot, call("smol", digest=search)).deployment == "search-answers"
    for item in (
        call("support-chat", digest=search),
        call("gpt-4o-mini", digest=search),
        call("smol", deployment="support-chat", digest=search),
    ):
        with pytest.raises(NotFound):
            decide(snapshot, item)


def test_tags_of_the_key_precede_those_of_the_deployment(snapshot: Snapshot) -> None:
    assert dict(decide(snapshot, call("support-chat")).tags) == {"env": "prod", "team": "support"}


def test_caller_may_add_only_allowed_tags(snapshot: Snapshot) -> None:
    tags = (
        ("feature", "search-box"),
        ("beta", None),
        ("feature2", "x"),
        ("team", "search"),
        ("env", "prod"),
    )

    plan = decide(snapshot, call("support-chat", tags=tags))

    assert plan.tags == {"beta": "true", "env": "prod", "feature": "search-box", "team": "support"}
    assert plan.dropped_tags == 3
    assert "tag team ignored: clients may not set it, or not to this value" in plan.warnings


def test_refresh_needs_permission_of_the_key(snapshot: Snapshot) -> None:
    search = Secret("hr-search-key").digest
    plans = [
        decide(snapshot, call(name, digest=digest, bypass_cache=True))
        for name, digest in (("smol", search), ("support-chat", HEAD.digest))
    ]

    ignored = "cache refresh ignored: this key may not refresh the cache"
    assert [(plan.may_refresh, ignored in plan.warnings) for plan in plans] == [
        (False, True),
        (True, False),
    ]


@for_each(
    "value",
    ["x" * 65, "se\u200barch", "a\nb", "", "\udcff"],
    ids=["long", "zero width", "line", "none", "raw"],
)
def test_invalid_tag_value_of_a_caller_is_dropped(value: str, snapshot: Snapshot) -> None:
    plan = decide(snapshot, call("support-chat", tags=(("feature", value),)))

    assert "feature" not in plan.tags
    assert plan.dropped_tags == 1


def test_repeated_tag_counts_once(snapshot: Snapshot) -> None:
    tags = (("feature", "widget"), ("feature", "search-box"), ("feature", "widget"))

    plan = decide(snapshot, call("support-chat", tags=tags))

    assert plan.tags["feature"] == "widget"
    assert plan.dropped_tags == 1


def test_tags_of_callers_are_escaped_in_errors(snapshot: Snapshot) -> None:
    tags = (("\x1b[31m" + "x" * 500, "secret-value"),)

    [warning] = decide(snapshot, call("support-chat", tags=tags)).warnings

    assert warning.isprintable()
    assert len(warning) < 140
    assert "secret-value" not in warning


def test_policy_may_refuse_disallowed_tags(snapshot: Snapshot) -> None:
    strict = replace(snapshot, refuse_caller_tags=True)

    with pytest.raises(InvalidField) as refused:
        decide(strict, call("support-chat", tags=(("taem", "x"),)))

    assert refused.value.param == "tags"


def test_model_of_two_deployments_is_refused_with_both_names(snapshot: Snapshot) -> None:
    [result] = [c for c in snapshot.credentials.values() if c.key.name == "support-widget"]
    key = result.key
    pair = (key.deployments["support-chat"], key.deployments["compare"])
    doubled = replace(key, by_model={"m": pair})
    changed = replace(snapshot, credentials={result.digest: replace(result, key=doubled)})

    with pytest.raises(InvalidField, match="compare, support-chat"):
        decide(changed, call("m"))


POLICIES = """
upstreams: {local: {dialect: openai, base_url: 'http://local.test'}}
policies:
  judged:
    input: [{guard: secrets}]
    output: [{guard: code}]
    cache: {ttl: 1h}
    limits: [{name: month, usd: 5 per month, unpriced: allow}]
    rules:
      - {name: strict, when: {key: {glob: 'guard/*'}}, input: [{guard: sponge}], model: other}
deployments:
  judge-smol: {targets: [{upstream: local, model: smol}], policy: judged, tags: {team: search}}
tags: {team: [search]}
"""


def active(folder: Path) -> ActivePolicy:
    return ActivePolicy(read_text(folder, POLICIES))


def guard_call(key: str | None = "guard/house", deployment: str = "judge-smol") -> Call:
    head = RequestHead("openai", "chat", "guard", "req_2", deployment=deployment, internal_key=key)
    body = {"model": deployment, "messages": [{"role": "user", "content": "x"}]}
    return read_call(head, body)


def test_guard_call_uses_the_key_policy_of_its_deployment(tmp_path: Path) -> None:
    policy = active(tmp_path)
    caller = policy.identify(guard_call().head)
    plan = caller.decide(guard_call())

    assert (caller.key, plan.key, plan.deployment) == ("guard/house", "guard/house", "judge-smol")
    assert (plan.tags, plan.revision) == ({"team": "search"}, policy.revision)
    assert [bound.limit.name for bound in plan.limits] == ["month"]
    assert plan.model_calls[0].targets[0].model == "smol"


def test_guard_call_has_no_guards_and_no_cache(tmp_path: Path) -> None:
    policy = active(tmp_path)
    plan = policy.identify(guard_call().head).decide(guard_call())

    assert plan.rules == ("judged/strict",)
    assert not plan.guards
    assert plan.cache is None


@pytest.mark.parametrize(
    ("change", "error"),
    [({"key": None}, Unauthorized), ({"deployment": "judge-big"}, NotFound)],
    ids=["no key", "unknown deployment"],
)
def test_invalid_guard_call_is_refused(change: Any, error: type[Exception], tmp_path: Path) -> None:
    policy = active(tmp_path)

    with pytest.raises(error):
        policy.identify(guard_call(**change).head)


TARGET: Json = {"upstream": "openai", "model": "gpt-4o-mini"}
TODAY = datetime(2026, 3, 31, 23, tzinfo=UTC)
TOMORROW = datetime(2026, 4, 1, 1, tzinfo=UTC)
DATED = [{"from": "2026-04-01", "input": 1, "output": 2}]


def house_snapshot(folder: Path, deployment: Json, when: Json | None = None) -> Snapshot:
    rules = [{"name": "capped", "when": when or {"stream": True}, "cap": {"max_tokens": 9}}]
    text: Json = {
        "upstreams": {"openai": {"dialect": "openai", "base_url": "https://openai.test"}},
        "tags": {"team": {"values": ["support", "search"], "caller": True}},
        "keys": {"widget": {"sha256": "1" * 64, "deployments": ["support-chat"]}},
        "deployments": {"support-chat": {"policy": "house", "targets": [TARGET], **deployment}},
        "policies": {"house": {"match": "all", "rules": rules}},
    }
    return read_text(folder, json.dumps(text))


def chat_call(model: str = "support-chat", moment: datetime = TODAY, **headers: str) -> Call:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    return build_sample_call(
        body, {name.replace("_", "-"): text for name, text in headers.items()}, moment
    )


def shared_plan(policies: Snapshot, client_call: Call) -> Plan:
    return KeyCaller(policies, policies.keys["widget"]).decide(client_call)


def test_equal_calls_share_a_plan(tmp_path: Path) -> None:
    policies = house_snapshot(tmp_path, {})

    shared_plan(policies, chat_call())
    second, third = (shared_plan(policies, chat_call()), shared_plan(policies, chat_call()))

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
def test_plans_that_depend_on_a_call_are_not_shared(
    tmp_path: Path, deployment: Json, when: Json | None, headers: dict[str, Any]
) -> None:
    policies = house_snapshot(tmp_path, deployment, when)
    model = "made-up" if "x_headrace_deployment" in headers else "support-chat"

    for _ in range(2):
        shared_plan(policies, chat_call(model, **headers))

    assert not policies.plans


def test_shared_plan_follows_dated_prices(tmp_path: Path) -> None:
    target = {**TARGET, "price": DATED}
    policies = house_snapshot(tmp_path, {"targets": [target], "unpriced": "refuse"})

    refused = [
        shared_plan(policies, chat_call(moment=item)).refusal
        for item in (TODAY, TOMORROW, TODAY, TOMORROW)
    ]

    assert [entry is None for entry in refused] == [False, True, False, True]


def test_revoked_key_has_no_shared_plan(tmp_path: Path) -> None:
    policies = house_snapshot(tmp_path, {})
    shared_plan(policies, chat_call())

    assert policies.plans
    assert not policies.revoke(frozenset({"widget"})).plans


def test_shared_plans_are_bounded(tmp_path: Path) -> None:
    policies = house_snapshot(tmp_path, {})
    plan = shared_plan(policies, chat_call())
    policies.plans.clear()
    for number in range(MAX_PLANS):
        policies.plans[number] = plan

    shared_plan(policies, chat_call("gpt-4o-mini"))

    assert len(policies.plans) == 1
