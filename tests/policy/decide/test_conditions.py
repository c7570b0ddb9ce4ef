"""Conditions of rules, and selection of targets by weight and stickiness."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import NotFound
from proxy.policy.decide.conditions import Facts
from proxy.policy.decide.routes import Candidates
from proxy.policy.decide.snapshot import Snapshot
from proxy.types import Call, RequestHead, Secret, Target, Upstream
from tests.for_each import for_each
from tests.policy.decisions import compile_condition, decide, read_text

FACTS = Facts(
    key="widget",
    dialect="openai",
    endpoint="chat",
    model_names=frozenset({"gpt-4o-mini"}),
    stream="false",
    tags={"team": "support"},
    headers={"x-canary": "yes"},
    received_at=datetime(2026, 11, 20, 23, 30, tzinfo=UTC),  # a Friday
)


def friday(text: str, zone: str = "UTC", **fields: Any) -> dict[str, Any]:
    return {"time": {"between": text, "zone": zone, **fields}}


@for_each(
    "when",
    [
        {"key": "widget"},
        {"key": ["batch", "widget"]},
        {"dialect": {"in": ["openai", "scale"]}},
        {"endpoint": {"equals": "chat"}},
        {"model": {"glob": "gpt-4?-*"}},
        {"model": {"glob": "gpt*", "in": ["gpt-4o-mini", "smol"]}},
        {"stream": False},
        {"tag": {"team": "support"}},
        {"header": {"x-canary": {"glob": "?es"}}},
        {"key": "widget", "tag": {"team": ["support", "search"]}},
        {"all": [{"key": "widget"}, {"stream": False}]},
        {"any": [{"key": "batch"}, {"dialect": "openai"}]},
        {"not": {"stream": True}},
        {"not": {"tag": {"env": {"glob": "*"}}}},
        friday("23:00-24:00"),
        friday("22:00-06:00", days=["fri"]),
        friday("00:00-01:00", zone="Europe/Berlin", days=["sat"]),
        friday("23:30-23:31"),
        {"time": {"days": ["fri"]}},
    ],
    ids=str,
)
def test_condition_matches(when: dict[str, Any]) -> None:
    assert compile_condition(when).build_matcher()(FACTS)
    assert compile_condition(when).find_mismatch(FACTS) is None


@for_each(
    ("when", "why"),
    [
        ({"key": "batch"}, "key of the call is widget, the rule expects batch"),
        ({"dialect": ["scale", "enkrypt"]},
            "dialect of the call is openai, the rule expects enkrypt or scale"),
        ({"model": {"glob": "gpt-3*"}},
            "model of the call is gpt-4o-mini, the rule expects gpt-3*"),
        ({"model": {"glob": "gpt*", "in": ["gpt-4", "gpt-5", "smol"]}},
            "model of the call is gpt-4o-mini, the rule expects gpt-4 or gpt-5"),
        ({"stream": True}, "the call is not streamed"),
        ({"tag": {"env": "prod"}}, "tag env is not set"),
        ({"tag": {"team": "search"}}, "tag team of the call is support, the rule expects search"),
        ({"header": {"x-plan": "free"}}, "header x-plan is not set"),
        ({"header": {"x-canary": "no"}},
            "header x-canary of the call has another value, the rule expects no"),
        ({"key": "widget", "stream": True}, "the call is not streamed"),
        (
            {"any": [{"key": "batch"}, {"stream": True}]},
            "no alternative matches: key of the call is widget, the rule expects batch; "
            "the call is not streamed",
        ),
        ({"not": {"key": "widget"}}, "the condition under `not` matches: {key: widget}"),
        (friday("00:00-23:30"),
            "the call arrived at Fri 23:30, the rule expects {between: 00:00-23:30}"),
        (
            friday("22:00-06:00", days=["thu", "sat"]),
            "the call arrived at Fri 23:30, the rule expects "
            "{between: 22:00-06:00, days: [thu, sat]}",
        ),
        (
            friday("22:00-06:00", zone="Asia/Tokyo"),
            "the call arrived at Sat 08:30, the rule expects "
            "{between: 22:00-06:00, zone: Asia/Tokyo}",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_mismatch_has_a_reason(when: dict[str, Any], why: str) -> None:
    assert not compile_condition(when).build_matcher()(FACTS)
    assert compile_condition(when).find_mismatch(FACTS) == why


def test_time_range_past_midnight_belongs_to_its_first_day() -> None:
    matches = compile_condition(friday("22:00-06:00", days=["thu"])).build_matcher()
    thursday_night = datetime(2026, 11, 20, 5, 59, tzinfo=UTC)

    assert matches(FACTS._replace(received_at=thursday_night))
    assert not matches(FACTS._replace(received_at=thursday_night.replace(hour=6, minute=0)))


UP = Upstream("openai", "openai", "http://127.0.0.1:9")
A, B, C = (Target(UP, name) for name in "abc")
POLICIES = """
upstreams:
  openai: {dialect: openai, base_url: 'https://api.example.test'}
  spare: {dialect: openai, base_url: 'https://spare.example.test'}
keys:
  widget:
    sha256: '8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a'
    deployments: [split]
deployments:
  split:
    sticky: STICKY
    targets:
      - {upstream: spare, model: m, weight: 1}
      - {upstream: openai, model: m, weight: 9}
    fallback: [{upstream: openai, model: last}]
"""
HEAD = RequestHead("openai", "completions", "/v1/completions", "r", digest=Secret("k").digest)


def test_without_weights_only_the_first_target_is_tried() -> None:
    assert Candidates((A, B)).order == (A,)


@for_each(("drawn", "order"), [(0, (A, B)), (8, (A, B)), (9, (B, A)), (10, (A, B))])
def test_weights_decide_the_order(drawn: int, order: tuple[Target, ...]) -> None:
    assert Candidates((A, B), (9, 1)).draw_order(drawn) == order


def test_target_with_weight_zero_is_never_tried() -> None:
    assert Candidates((A, B, C), (1, 1, 0)).draw_order(1) == (B, A)


def test_weight_zero_also_applies_to_calls_by_model_name(tmp_path: Path) -> None:
    text = POLICIES.replace("sticky: STICKY", "tags: {}")
    text = text.replace(
        "upstream: spare, model: m, weight: 1", "upstream: spare, model: old, weight: 0"
    )
    snapshot = read_text(tmp_path, text, {})
    target = Call(replace(HEAD, deployment="split"), {}, requested_models=("old",))

    with pytest.raises(NotFound):
        decide(snapshot, Call(HEAD, {}, requested_models=("old",)))
    assert [t.model for t in decide(snapshot, target).model_calls[0].targets] == ["m", "last"]


@pytest.fixture
def snapshot(tmp_path: Path, request: pytest.FixtureRequest) -> Snapshot:
    return read_text(tmp_path, POLICIES.replace("STICKY", request.param), {})


def first_target(snapshot: Snapshot, **config: Any) -> list[str]:
    call = Call(replace(HEAD, call_id=config.pop("nonce", "")), config, requested_models=("m",))
    return [t.upstream.name for t in decide(snapshot, call).model_calls[0].targets]


@pytest.mark.parametrize("snapshot", ["null"], indirect=True)
def test_calls_are_distributed_by_weight(snapshot: Snapshot) -> None:
    firsts = Counter(first_target(snapshot, nonce=str(number))[0] for number in range(5000))

    assert firsts["openai"] / 5000 == pytest.approx(0.9, abs=0.02)
    assert first_target(snapshot, nonce="1")[-1] == "openai"
    assert len(first_target(snapshot, nonce="1")) == 3


@pytest.mark.parametrize("snapshot", ["key"], indirect=True)
def test_calls_of_a_key_stay_with_one_target(snapshot: Snapshot) -> None:
    assert len({first_target(snapshot, nonce=str(number))[0] for number in range(100)}) == 1


@pytest.mark.parametrize("snapshot", ["user"], indirect=True)
def test_users_are_sticky_and_distributed(snapshot: Snapshot) -> None:
    by_user = {
        user: {first_target(snapshot, user=f"user-{user}", nonce=str(n))[0] for n in range(5)}
        for user in range(300)
    }

    assert all(len(targets) == 1 for targets in by_user.values())
    assert {target for targets in by_user.values() for target in targets} == {"openai", "spare"}


@pytest.mark.parametrize("recipe", [False, True], ids=["without", "with"])
def test_canary_gets_calls_by_deployment_rule(recipe: bool, tmp_path: Path) -> None:
    text = POLICIES.replace("sticky: STICKY", "tags: {}")
    text = text.replace("spare, model: m, weight: 1", "spare, model: larger, weight: 1")
    if recipe:
        text += "policies: {default: {rules: [{name: c, when: {model: m}, model: split}]}}\n"
    snapshot = read_text(tmp_path, text, {})

    request = (
        Call(replace(HEAD, call_id=f"n{n}"), {}, requested_models=("m",)) for n in range(200)
    )
    plan = Counter(decide(snapshot, call).model_calls[0].targets[0].model for call in request)

    assert plan["m"] > 150
    assert (plan["larger"] > 5) is recipe
