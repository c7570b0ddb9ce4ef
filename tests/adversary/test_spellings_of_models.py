"""Rules for a model apply under every name and spelling of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.dialects import RequestContext, parse_head, read_call
from proxy.policy.review.compare import compare_snapshots
from proxy.policy.review.explain import explain
from proxy.types import Call, Plan
from tests.conftest import DIGEST, KEY, running_proxy
from tests.doubles import Json, ScriptedUpstream, answer, chat
from tests.for_each import for_each
from tests.policy.decisions import decide, key_in, snapshot_of
from tests.test_pipeline import BEARER

POSITION = datetime(2026, 11, 20, 12, tzinfo=UTC)
CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
PRICE = {"input": 1, "output": 1}
LARGE = {"upstream": "local", "model": "large", "price": PRICE}
SMALL = {"upstream": "local", "model": "small", "price": PRICE}
ELSEWHERE = {"upstream": "eu", "model": "large", "price": PRICE}
SECRET = "AKIA" + "QYLPMN5HHHFPZAM2"
ADDED: Json = {
    "input": [{"guard": "secrets", "name": "added-in", "action": "block"},
        {"guard": "economics", "name": "added-cost", "max_cost_usd": 1}],
    "output": [{"guard": "urls", "name": "added-out", "deny": ["a.test"], "action": "mask"}],
    "limits": [{"name": "added-limit", "requests": "9 per day"}],
    "cap": {"max_tokens": 7},
    "set": {"temperature": 0.5},
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """One way for a client to reach the model ``large``: a request and its policies."""

    model: Any
    headers: Json = field(default_factory=dict)
    request: tuple[str, Json] = CHAT
    deployment: Json = field(default_factory=dict)
    rules: tuple[Json, ...] = ()
    policy: Json = field(default_factory=dict)
    later: bool = False  # the model is only tried after another one
    chosen: bool = False  # selected by the policy, which no other rule prevents


HEADER = {"x-headrace-deployment": "answers"}
LATER = {"targets": [SMALL], "fallback": [LARGE]}
TINY = {**SMALL, "model": "tiny"}
NEXT = [{**SMALL, "weight": 10**6}, {**TINY, "weight": 1}, {**LARGE, "weight": 1}]
PORTKEY = {"x-portkey-api-key": KEY}
TO_SMALL: Json = {"targets": [SMALL]}
SMALL_AND_LARGE: Json = {"targets": [SMALL, LARGE]}
SEVERAL = ("/v1/completion", {"prompt": "Hi"})
DETOUR: Json = {"input": [{"guard": "pii", "action": "route", "to": [LARGE]}]}


def by_rule(name: str, deployment: Json, *, later: bool = False, **rule: Any) -> Way:
    """Return a way in which a rule selects the model."""
    rules = ({"name": "chooses", **rule},)
    return Way(name, deployment=deployment, rules=rules, later=later, chosen=True)


WAYS = {
    "its own name": Way("large"),
    "its upstream before it": Way("local/large"),
    "its provider before it": Way("acme/large"),
    "the deployment": Way("answers"),
    "the deployment in a header": Way("large", HEADER),
    "any name beside a header": Way("whatever", HEADER),
    "another case": Way("LARGE", HEADER),
    "a space after it": Way("large ", HEADER),
    "another vendor before it": Way("azure/large", HEADER),
    "another model's name": Way("small", HEADER, deployment={"targets": [LARGE]}),
    "a saved config": Way("@prod/large", {**PORTKEY, "x-portkey-config": "answers"}),
    "a virtual key": Way("@prod/large", {**PORTKEY, "x-portkey-virtual-key": "answers"}),
    "the header of Enkrypt": Way("anything", {"x-enkrypt-deployment": "answers", "apikey": KEY},
        ("/ai-proxy/chat/completions", CHAT[1])),
    "the third part of a name": Way("acme/other/answers", {"x-api-key": KEY},
        ("/v5/chat/completions", CHAT[1])),
    "a list": Way(["local/large"], HEADER, SEVERAL),
    "a list with another": Way(["nobody", "acme/large"], HEADER, SEVERAL),
    "a draw": Way("answers",
        deployment={"targets": [{**LARGE, "weight": 1}, {**SMALL, "weight": 0}]}),
    "a balanced pool": Way("answers", deployment={"balance": "least_loaded", **SMALL_AND_LARGE}),
    "an alias of a rule": Way("best", HEADER,
        rules=({"name": "alias", "when": {"model": "best"}, "model": "large"},), chosen=True),
    "another model that a rule calls so": by_rule("small", SMALL_AND_LARGE, when={"model": "small"},
        model="large"),
    "targets of a rule": by_rule("small", TO_SMALL, when={"stream": False}, targets=[LARGE]),
    "a fallback": Way("small", deployment=LATER, later=True),
    "a fallback of a rule": by_rule("small", TO_SMALL, later=True, fallback=[LARGE]),
    "the next of a draw": Way("answers", {"x-user": "a"},
        deployment={"targets": [{**SMALL, "weight": 10**6}, {**LARGE, "weight": 1}]}, later=True),
    "where a guard sends it": Way("small", deployment=TO_SMALL, policy=DETOUR, later=True,
        chosen=True),
}  # fmt: skip
WIDE = ("glob of an upstream", "the deployment")
CONDITIONS = {
    "equal": {"model": "large"},
    "equal, with the upstream": {"model": "local/large"},
    "equal, with the provider": {"model": {"equals": "acme/large"}},
    "in": {"model": ["large", "huge"]},
    "glob": {"model": {"glob": "lar*"}},
    "glob of an upstream": {"model": {"glob": "local/*"}},
    "glob at the end": {"model": {"glob": "*/large"}},
    "in and glob": {"model": {"in": ["large", "x"], "glob": "l*"}},
    "not another": {"not": {"model": "small"}},
    "not any other": {"not": {"model": ["small", "LARGE", "whatever", "answers-two"]}},
    "not by a glob": {"not": {"model": {"glob": "s*"}}},
    "not an unknown one": {"not": {"model": {"glob": "[a-z]"}}},
    "all": {"all": [{"model": "large"}, {"endpoint": ["chat", "completions"]}]},
    "any": {"any": [{"model": "huge"}, {"model": "large"}]},
    "the deployment": {"model": "answers"},
}


def policy_of(way: Way, *rules: Json, match: str = "all", base_url: str = "https://x.test") -> str:
    upstream = {"dialect": "openai", "base_url": base_url}
    every = [*way.rules, *rules]
    policy: Json = {**way.policy, "rules": every, **({"match": match} if len(every) > 1 else {})}
    deployment = {"policy": "shared", "targets": [LARGE, SMALL], **way.deployment}
    return json.dumps(
        {
            "upstreams": {"local": {**upstream, "provider": "acme"}, "eu": upstream},
            "keys": {"widget": {"sha256": DIGEST, "deployments": ["answers"]}},
            "policies": {"shared": policy},
            "deployments": {"answers": deployment},
        }
    )


def call_of(way: Way) -> Call:
    path, body = way.request
    headers = {"authorization": f"Bearer {KEY}", **way.headers}
    return read_call(
        parse_head("POST", path, headers, RequestContext("req_1", "nonce", POSITION)),
        {**body, "model": way.model},
    )


def plan_of(way: Way, *rules: Json) -> Plan:
    return decide(snapshot_of(policy_of(way, *rules)), call_of(way))


def reached_targets(plan: Plan) -> list[str]:
    return [
        target.id
        for leg in plan.model_calls
        for target in (*leg.targets, *plan.guards.route_targets)
    ]


def applied_effects(plan: Plan) -> Iterator[str]:
    """Yield the effects of the rule that apply to the reached model."""
    guards = plan.guards
    yield from (rule.name for rule in (*guards.input, *guards.output))
    yield from (rule.name for rule in guards.cost_caps)
    yield from (bound.limit.name for bound in plan.limits)
    for leg in plan.model_calls:
        for target in (*leg.targets, *guards.route_targets):
            if target.id == "local/large":
                changes = leg.overrides_for(target)
                yield from (f"cap {name}" for name in changes.cap)
                yield from (f"set {name}" for name in changes.set)


GUARDS = {"added-in", "added-out", "added-cost"}
PARAMETERS = {"cap max_tokens", "set temperature"}


@for_each("way", WAYS)
def test_no_model_name_sheds_a_rule(way: str) -> None:
    fields = WAYS[way]
    for when, condition in CONDITIONS.items():
        plan = plan_of(fields, {"name": "adds", "when": condition, **ADDED})

        assert "local/large" in reached_targets(plan), when
        pending = set(applied_effects(plan))
        assert pending >= GUARDS | PARAMETERS, when
        assert "added-limit" in pending or fields.later, when  # limits depend on the first target
        assert "shared/adds" in plan.rules, when


UNAVAILABLE = {"refuse": "Not this one.", "targets": [ELSEWHERE], "model": "small"}
AVOIDING = [
    (way, does)
    for way, way_of in WAYS.items()
    for does in UNAVAILABLE
    if not way_of.chosen
    and (does != "model" or not way_of.deployment or "balance" in way_of.deployment)
]


@for_each(("way", "does"), AVOIDING)
def test_no_spelling_avoids_a_model_rule(way: str, does: str) -> None:
    fields = WAYS[way]
    for when, condition in CONDITIONS.items():
        rule = {"name": "away", "when": condition, does: UNAVAILABLE[does]}

        plan = plan_of(fields, rule)

        assert plan.refusal is not None or "local/large" not in reached_targets(plan), when


@for_each("does", [{"targets": [TINY]}, {"model": "tiny"}, {"refuse": "no"}], ids=str)
@for_each("later", [{"fallback": [LARGE]}, {"targets": NEXT}], ids=["spare", "next"])
def test_omits_later_target_with_other_rules(later: Json, does: Json) -> None:
    way = Way("answers", {"x-user": "a"}, deployment={"targets": NEXT[:2], **later})
    rule = {"name": "away", "when": {"model": "large"}, **does}

    [leg] = plan_of(way, rule).model_calls

    assert [target.id for target in leg.targets] == ["local/small", "local/tiny"]


@pytest.mark.parametrize(
    ("targets", "refused"),
    [
        ([LARGE], True),
        ([LARGE, TINY], True),
        ([{**LARGE, "weight": 1}, {**TINY, "weight": 1}], False),
    ],
    ids=["one", "the first of two", "one of a draw"],
)
def test_refuses_unusable_choice_before_fallback(targets: list[Json], *, refused: bool) -> None:
    way = Way("answers", deployment={"targets": targets, "fallback": [SMALL]})
    rule = {"name": "no", "when": {"model": "large"}, "refuse": "no"}

    plan = plan_of(way, rule)

    assert (plan.refusal is not None) is refused


def test_fallback_named_by_its_rule_is_used() -> None:
    way = Way("small", deployment={"targets": [SMALL], "fallback": [LARGE]})
    rule = {"name": "same", "when": {"model": "large"}, "model": "large"}

    [leg] = plan_of(way, rule).model_calls

    assert [target.id for target in leg.targets] == ["local/small", "local/large"]


@for_each("when", [name for name in CONDITIONS if "not" not in name and name not in WIDE])
@for_each("model", ["small", "local/small", "acme/small", "answers"])
def test_rule_for_a_model_does_not_affect_others(model: str, when: str) -> None:
    way = Way(model, deployment={"targets": [SMALL], "fallback": [{**SMALL, "model": "tiny"}]})

    plan = plan_of(way, {"name": "adds", "when": CONDITIONS[when], **ADDED})

    assert list(applied_effects(plan)) == []
    assert plan.rules == ()


def test_parameters_change_at_their_target_only() -> None:
    rule = {"name": "short", "when": {"model": "large"}, "cap": {"max_tokens": 7}}
    for name in ("a fallback", "the next of a draw", "a balanced pool"):
        plan = plan_of(WAYS[name], rule)
        [leg] = plan.model_calls
        caps = {target.id: leg.overrides_for(target).cap for target in leg.targets}
        assert caps == {"local/small": {}, "local/large": {"max_tokens": 7}}, name


def test_overrides_follow_to_the_fallback() -> None:
    deployment = {"targets": [LARGE], "fallback": [SMALL]}
    rule = {"name": "calm", "when": {"model": "large"}, "set": {"temperature": 0}, "cap": {"n": 1}}
    for model in ("large", "local/large", "acme/large", "answers"):
        way = Way(model, deployment=deployment)
        [leg] = plan_of(way, rule).model_calls
        for target in leg.targets:
            assert leg.overrides_for(target) == leg.overrides, model
        assert leg.overrides.set == {"temperature": 0}


OWN_DOCUMENT: Json = {
    "input": [{"guard": "pii", "action": "mask"}],
    "limits": [{"name": "money", "usd": "5 per day"}],
}
LET_OFF = {"guards": ["pii"], "limits": ["money"]}


@for_each(
    ("model", "deployment", "guarded", "limited"),
    [
        ("large", {}, False, False),
        ("acme/large", {}, False, False),
        ("answers", {}, False, False),
        ("small", {}, True, True),
        ("large", {"fallback": [SMALL]}, True, False),
        ("answers", {"balance": "least_loaded"}, True, True),
        ("answers", {"targets": [{**LARGE, "weight": 10**6}, {**SMALL, "weight": 1}]}, True, False),
    ],
    ids=str,
)
def test_removal_covers_alias(model: str, deployment: Json, guarded: bool, limited: bool) -> None:
    rule = {"name": "let-off", "when": {"model": "large"}, "without": LET_OFF}
    way = Way(model, deployment=deployment, policy=OWN_DOCUMENT)
    plan = plan_of(way, rule)

    assert bool(plan.guards.input) is guarded
    assert bool(plan.limits) is limited


@for_each("model", ["free", "FREE", "answers", "large", "small"])
def test_no_value_of_a_client_removes_an_effect(model: str) -> None:
    rule = {"name": "let-off", "when": {"model": {"glob": "[fF]*"}}, "without": LET_OFF}
    name = {"name": "named", "when": {"model": ["free", "FREE"]}, "without": LET_OFF}
    way = Way(model, HEADER, policy=OWN_DOCUMENT)
    plan = plan_of(way, rule, name)

    assert len(plan.guards.input) == len(plan.limits) == 1


def test_deployment_name_may_remove_guards() -> None:
    rule = {"name": "let-off", "when": {"model": "answers"}, "without": LET_OFF}
    plans = [
        plan_of(way, rule)
        for way in (Way("answers", policy=OWN_DOCUMENT), Way("large", policy=OWN_DOCUMENT))
    ]

    assert [len(plan.guards.input) for plan in plans] == [0, 1]


IDLE: Json = {"name": "idle", "when": {"stream": True}, "cap": {"n": 1}}
LARGE_ADDS: Json = {"name": "adds", "when": {"model": "large"}, **ADDED}


@for_each("way", WAYS)
def test_explanation_has_the_rule_under_every_name(way: str) -> None:
    fields = WAYS[way]
    call = call_of(fields)
    old, new = (snapshot_of(policy_of(fields, rule)) for rule in (IDLE, LARGE_ADDS))
    key = key_in(old, "widget")
    differences = compare_snapshots(old, new, call, key)
    matches = {item.kind for item in differences if item.rule == "shared/adds"}
    explanation = explain(new, key_in(new, "widget"), call)
    parts = [part for reason in explanation.decisions for part in reason.parts]
    applied = [part for part in parts if part.result == "shared/adds applies"][-1]

    if not fields.chosen or not fields.later:  # the target of a guard's route is not in the plan
        assert matches >= {"parameters", "guards"}
    assert ("limits" in matches) is not fields.later
    assert applied.reason is not None
    assert (
        "limit added-limit (no effect: another model is tried first)" in applied.reason
    ) is fields.later
    assert ("cap max_tokens 7 (applies only to a later target)" in applied.reason) is fields.later


def test_excluded_target_is_explained_by_its_rule() -> None:
    way = WAYS["the next of a draw"]
    for does in ("refuse", "targets"):
        rule = {"name": "away", "when": {"model": "large"}, does: UNAVAILABLE[does]}
        call = call_of(way)
        old, new = snapshot_of(policy_of(way, IDLE)), snapshot_of(policy_of(way, rule))
        key = key_in(old, "widget")
        explanation = explain(new, key_in(new, "widget"), call)
        parts = [part for reason in explanation.decisions for part in reason.parts]
        [remaining] = [part for part in parts if part.result == "local/large excluded"]
        assert remaining.reason == "by rule shared/away"

        [difference] = compare_snapshots(old, new, call, key)
        assert (difference.kind, difference.rule) == ("targets", "shared/away")


@for_each("model", ["large", "acme/large", "answers", "LARGE"])
def test_policy_tests_see_the_rule_under_every_name(model: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(policy_of(WAYS["its own name"], LARGE_ADDS))
    (tmp_path / "tests").mkdir()
    body = {"model": model, **CHAT[1]}
    value = {"key": "widget", "deployment": "answers", "body": body}
    expect = {
        "rules": ["shared/adds"],
        "charged": {"added-limit": 1},
        "upstream": {"body": REQUEST},
    }
    case = {"tests": {"it holds": {"given": value, "expect": expect}}}
    (tmp_path / "tests" / "t.yaml").write_text(json.dumps(case))

    result = CliRunner().invoke(main, ["test", str(tmp_path)])

    assert result.exit_code == 0, result.output


REQUEST = {"model": "large", "max_tokens": 7, "temperature": 0.5}


@pytest.mark.parametrize("model", ["large", "local/large", "answers", "LARGE", "whatever"])
async def test_blocked_model_is_blocked_under_any_name(
    model: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    folder = policy_of(Way(model), LARGE_ADDS, base_url=f"{upstream.url}/v1")
    body = {"model": model, "messages": [{"role": "user", "content": f"My key is {SECRET}."}]}
    async with running_proxy(tmp_path / "policies", folder) as proxy:
        reply = await proxy.send(CHAT[0], body, BEARER | HEADER)

    assert (reply.status, reply.error["code"]) == (400, "guardrail_blocked")
    assert upstream.requests == []


async def test_fallback_obeys_its_own_rules(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    way = Way("small", deployment=LATER)
    rule = {"name": "short", "when": {"model": "large"}, "cap": {"max_tokens": 7}}
    text = policy_of(way, rule, base_url=f"{upstream.url}/v1")
    upstream.by_model = {"small": answer({}, status=503), "large": answer(chat())}
    async with running_proxy(tmp_path / "policies", text) as proxy:
        assert (await proxy.chat(model="small")).status == 200

    bounds = [
        request.json.get("max_completion_tokens", request.json.get("max_tokens"))
        for request in upstream.requests
    ]
    assert bounds == [None, 7]
