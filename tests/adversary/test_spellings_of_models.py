"""Searches for names and spellings of a model under which a call escapes the rules for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from proxy.cli import main
from proxy.dialects import RequestContext, parse_request_head, read_call
from proxy.policy.review.compare import compare_snapshots
from proxy.policy.review.explain import explain
from proxy.types import Call, Plan, Target
from tests.conftest import DIGEST, KEY, running_proxy
from tests.doubles import Json, ScriptedUpstream, chat, respond
from tests.for_each import for_each
from tests.policy.decisions import decide, key_in, snapshot_of
from tests.test_pipeline import BEARER

RECEIVED_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
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
class Request:
    """A request that reaches the model ``large``, and its policies."""

    model: Any
    headers: Json = field(default_factory=dict)
    request: tuple[str, Json] = CHAT
    deployment: Json = field(default_factory=dict)
    rules: tuple[Json, ...] = ()
    policy: Json = field(default_factory=dict)
    is_later: bool = False
    """True if the model is tried only after another one."""
    is_chosen: bool = False
    """True if the policy selects the model, which no other rule prevents."""


HEADER = {"x-headrace-deployment": "answers"}
LATER = {"targets": [SMALL], "fallback": [LARGE]}
TINY = {**SMALL, "model": "tiny"}
NEXT = [{**SMALL, "weight": 10**6}, {**TINY, "weight": 1}, {**LARGE, "weight": 1}]
PORTKEY = {"x-portkey-api-key": KEY}
TO_SMALL: Json = {"targets": [SMALL]}
SMALL_AND_LARGE: Json = {"targets": [SMALL, LARGE]}
SEVERAL = ("/v1/completion", {"prompt": "Hi"})
DETOUR: Json = {"input": [{"guard": "pii", "action": "route", "to": [LARGE]}]}


def by_rule(name: str, deployment: Json, *, is_later: bool = False, **rule: Any) -> Request:
    """Return a way in which a rule selects the model."""
    rules = ({"name": "chooses", **rule},)
    return Request(name, deployment=deployment, rules=rules, is_later=is_later, is_chosen=True)


REQUESTS = {
    "its own name": Request("large"),
    "its upstream before it": Request("local/large"),
    "its provider before it": Request("acme/large"),
    "the deployment": Request("answers"),
    "the deployment in a header": Request("large", HEADER),
    "any name beside a header": Request("whatever", HEADER),
    "another case": Request("LARGE", HEADER),
    "a space after it": Request("large ", HEADER),
    "another vendor before it": Request("azure/large", HEADER),
    "another model's name": Request("small", HEADER, deployment={"targets": [LARGE]}),
    "a saved config": Request("@prod/large", {**PORTKEY, "x-portkey-config": "answers"}),
    "a virtual key": Request("@prod/large", {**PORTKEY, "x-portkey-virtual-key": "answers"}),
    "the header of Enkrypt": Request("anything", {"x-enkrypt-deployment": "answers", "apikey": KEY},
        ("/ai-proxy/chat/completions", CHAT[1])),
    "the third part of a name": Request("acme/other/answers", {"x-api-key": KEY},
        ("/v5/chat/completions", CHAT[1])),
    "a list": Request(["local/large"], HEADER, SEVERAL),
    "a list with another": Request(["nobody", "acme/large"], HEADER, SEVERAL),
    "a draw": Request("answers",
        deployment={"targets": [{**LARGE, "weight": 1}, {**SMALL, "weight": 0}]}),
    "a balanced pool": Request("answers",
        deployment={"balance": "least_loaded", **SMALL_AND_LARGE}),
    "an alias of a rule": Request("best", HEADER,
        rules=({"name": "alias", "when": {"model": "best"}, "model": "large"},), is_chosen=True),
    "another model that a rule calls so": by_rule("small", SMALL_AND_LARGE, when={"model": "small"},
        model="large"),
    "targets of a rule": by_rule("small", TO_SMALL, when={"stream": False}, targets=[LARGE]),
    "a fallback": Request("small", deployment=LATER, is_later=True),
    "a fallback of a rule": by_rule("small", TO_SMALL, is_later=True, fallback=[LARGE]),
    "the next of a draw": Request("answers", {"x-user": "a"},
        deployment={"targets": [NEXT[0], {**LARGE, "weight": 1}]}, is_later=True),
    "where a guard sends it": Request("small", deployment=TO_SMALL, policy=DETOUR, is_later=True,
        is_chosen=True),
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


def build_policies(
    request: Request, *rules: Json, match: str = "all", base_url: str = "https://x.test"
) -> str:
    upstream = {"dialect": "openai", "base_url": base_url}
    every = [*request.rules, *rules]
    policy = {**request.policy, "rules": every, **({"match": match} if len(every) > 1 else {})}
    deployment = {"policy": "shared", "targets": [LARGE, SMALL], **request.deployment}
    return json.dumps(
        {
            "upstreams": {"local": {**upstream, "provider": "acme"}, "eu": upstream},
            "keys": {"widget": {"sha256": DIGEST, "deployments": ["answers"]}},
            "policies": {"shared": policy},
            "deployments": {"answers": deployment},
        }
    )


def read_request(request: Request) -> Call:
    path, body = request.request
    headers = {"authorization": f"Bearer {KEY}", **request.headers}
    head = parse_request_head("POST", path, headers, RequestContext("req_1", "nonce", RECEIVED_AT))
    return read_call(head, {**body, "model": request.model})


def decide_plan(request: Request, *rules: Json) -> Plan:
    return decide(snapshot_of(build_policies(request, *rules)), read_request(request))


def list_targets(plan: Plan) -> list[Target]:
    return [
        target
        for model_call in plan.model_calls
        for target in (*model_call.targets, *plan.guards.route_targets)
    ]


def is_reached(plan: Plan) -> bool:
    return "local/large" in [target.id for target in list_targets(plan)]


def list_effects(plan: Plan) -> set[str]:
    """Return the effects of the rule that apply to the model ``large``."""
    guards = plan.guards
    effects = {rule.name for rule in (*guards.input, *guards.output)}
    effects |= {cap.name for cap in guards.cost_caps}
    effects |= {bound.limit.name for bound in plan.limits}
    for model_call in plan.model_calls:
        for target in (*model_call.targets, *guards.route_targets):
            if target.id == "local/large":
                overrides = model_call.get_overrides(target)
                effects |= {f"cap {name}" for name in overrides.cap}
                effects |= {f"set {name}" for name in overrides.set}
    return effects


EFFECTS = {"added-in", "added-out", "added-cost", "cap max_tokens", "set temperature"}


@for_each("name", REQUESTS)
def test_no_model_name_escapes_the_effects_of_a_rule(name: str) -> None:
    request = REQUESTS[name]
    for label, condition in CONDITIONS.items():
        plan = decide_plan(request, {"name": "adds", "when": condition, **ADDED})

        assert is_reached(plan), label
        effects = list_effects(plan)
        assert effects >= EFFECTS, label
        # limits depend on the first target
        assert "added-limit" in effects or request.is_later, label
        assert "shared/adds" in plan.rules, label


AVOIDANCES: Json = {"refuse": "Not this one.", "targets": [ELSEWHERE], "model": "small"}
AVOIDED = [
    (name, effect)
    for name, request in REQUESTS.items()
    for effect in AVOIDANCES
    if not request.is_chosen
    and (effect != "model" or not request.deployment or "balance" in request.deployment)
]


@for_each(("name", "effect"), AVOIDED)
def test_no_model_name_reaches_an_avoided_model(name: str, effect: str) -> None:
    for label, condition in CONDITIONS.items():
        rule = {"name": "away", "when": condition, effect: AVOIDANCES[effect]}
        plan = decide_plan(REQUESTS[name], rule)

        assert plan.refusal is not None or not is_reached(plan), label


DRAW_OF_TWO = {"targets": NEXT[:2]}
EQUAL_DRAW = {"targets": [{**LARGE, "weight": 1}, {**TINY, "weight": 1}], "fallback": [SMALL]}
TARGETS_AFTER_A_RULE: list[tuple[Json, Json, list[str] | None]] = [
    *(
        ({**DRAW_OF_TWO, **later}, effect, ["local/small", "local/tiny"])
        for later in ({"fallback": [LARGE]}, {"targets": NEXT})
        for effect in ({"targets": [TINY]}, {"model": "tiny"}, {"refuse": "no"})
    ),
    ({"targets": [LARGE], "fallback": [SMALL]}, {"refuse": "no"}, None),
    ({"targets": [LARGE, TINY], "fallback": [SMALL]}, {"refuse": "no"}, None),
    (EQUAL_DRAW, {"refuse": "no"}, ["local/tiny", "local/small"]),
    (LATER, {"model": "large"}, ["local/small", "local/large"]),
]
"""A deployment, an effect of a rule for ``large``, and the targets that remain, or None."""


@for_each(("deployment", "effect", "expected"), TARGETS_AFTER_A_RULE)
def test_rule_for_a_model_excludes_its_target_only(
    deployment: Json, effect: Json, expected: list[str] | None
) -> None:
    request = Request("answers", {"x-user": "a"}, deployment=deployment)
    plan = decide_plan(request, {"name": "away", "when": {"model": "large"}, **effect})

    if expected is None:
        assert plan.refusal is not None
    else:
        assert [target.id for target in list_targets(plan)] == expected


@for_each("when", [name for name in CONDITIONS if "not" not in name and name not in WIDE])
@for_each("model", ["small", "local/small", "acme/small", "answers"])
def test_rule_for_a_model_does_not_affect_others(model: str, when: str) -> None:
    request = Request(model, deployment={"targets": [SMALL], "fallback": [TINY]})
    plan = decide_plan(request, {"name": "adds", "when": CONDITIONS[when], **ADDED})

    assert list_effects(plan) == set()
    assert plan.rules == ()


def test_parameters_change_at_their_target_and_its_fallback_only() -> None:
    rule = {"name": "short", "when": {"model": "large"}, "cap": {"max_tokens": 7}}
    for name in ("a fallback", "the next of a draw", "a balanced pool"):
        [model_call] = decide_plan(REQUESTS[name], rule).model_calls
        caps = {t.id: model_call.get_overrides(t).cap for t in model_call.targets}
        assert caps == {"local/small": {}, "local/large": {"max_tokens": 7}}, name
    deployment = {"targets": [LARGE], "fallback": [SMALL]}
    for model in ("large", "local/large", "acme/large", "answers"):
        [model_call] = decide_plan(Request(model, deployment=deployment), rule).model_calls
        overrides = [model_call.get_overrides(target) for target in model_call.targets]
        assert overrides == [model_call.overrides] * 2, model
        assert model_call.overrides.cap == {"max_tokens": 7}


REMOVABLE: Json = {
    "input": [{"guard": "pii", "action": "mask"}],
    "limits": [{"name": "money", "usd": "5 per day"}],
}
REMOVAL = {"without": {"guards": ["pii"], "limits": ["money"]}}
LARGE_OR_FALLBACK = {"targets": [LARGE], "fallback": [SMALL]}
LARGE_BY_DRAW = {"targets": [{**LARGE, "weight": 10**6}, {**SMALL, "weight": 1}]}
NAMED_BY_CLIENT = ({"model": {"glob": "[fF]*"}}, {"model": ["free", "FREE"]})


@for_each(
    ("model", "conditions", "deployment", "is_guarded", "is_limited"),
    [
        *(
            (model, [{"model": "large"}], {}, is_kept, is_kept)
            for model, is_kept in {
                **{"large": False, "acme/large": False, "answers": False, "small": True},
            }.items()
        ),
        ("large", [{"model": "large"}], {"fallback": [SMALL]}, True, False),
        ("answers", [{"model": "large"}], {"balance": "least_loaded"}, True, True),
        ("answers", [{"model": "large"}], LARGE_BY_DRAW, True, False),
        *((model, NAMED_BY_CLIENT, {}, True, True) for model in ("free", "FREE", "large", "small")),
        ("answers", [{"model": "answers"}], {}, False, False),
        ("large", [{"model": "answers"}], {}, True, True),
    ],
)
def test_guards_and_limits_are_removed_for_reached_models_only(
    model: str,
    conditions: Sequence[Json],
    deployment: Json,
    is_guarded: bool,
    is_limited: bool,
) -> None:
    headers = HEADER if conditions is NAMED_BY_CLIENT else {}
    request = Request(model, headers, deployment=deployment, policy=REMOVABLE)
    rules = [{"name": f"r{n}", "when": when, **REMOVAL} for n, when in enumerate(conditions)]
    plan = decide_plan(request, *rules)

    assert bool(plan.guards.input) is is_guarded
    assert bool(plan.limits) is is_limited


IDLE: Json = {"name": "idle", "when": {"stream": True}, "cap": {"n": 1}}
LARGE_ADDS: Json = {"name": "adds", "when": {"model": "large"}, **ADDED}


def explain_rule(request: Request, rule: Json) -> tuple[list[Any], list[Any]]:
    """Return the differences that a rule makes, and the parts of its explanation."""
    call = read_request(request)
    old, new = (snapshot_of(build_policies(request, each)) for each in (IDLE, rule))
    explanation = explain(new, key_in(new, "widget"), call)
    parts = [part for reason in explanation.decisions for part in reason.parts]
    return compare_snapshots(old, new, call, key_in(old, "widget")), parts


@for_each("name", REQUESTS)
def test_explanation_has_the_rule_under_every_name(name: str) -> None:
    request = REQUESTS[name]
    differences, parts = explain_rule(request, LARGE_ADDS)
    kinds = {item.kind for item in differences if item.rule == "shared/adds"}
    applied = [part for part in parts if part.result == "shared/adds applies"][-1]

    if not request.is_chosen or not request.is_later:  # a guard's target is not in the plan
        assert kinds >= {"parameters", "guards"}
    assert ("limits" in kinds) is not request.is_later
    assert applied.reason is not None
    for note in (
        "limit added-limit (no effect: the model that is tried first does not match)",
        "cap max_tokens 7 (applies only to a later target)",
    ):
        assert (note in applied.reason) is request.is_later


@for_each("effect", ["refuse", "targets"])
def test_excluded_target_is_explained_by_its_rule(effect: str) -> None:
    rule = {"name": "away", "when": {"model": "large"}, effect: AVOIDANCES[effect]}
    [difference], parts = explain_rule(REQUESTS["the next of a draw"], rule)

    [excluded] = [part for part in parts if part.result == "local/large excluded"]
    assert excluded.reason == "by rule shared/away"
    assert (difference.kind, difference.rule) == ("targets", "shared/away")


@for_each("model", ["large", "acme/large", "answers", "LARGE"])
def test_policy_tests_see_the_rule_under_every_name(model: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(build_policies(REQUESTS["its own name"], LARGE_ADDS))
    (tmp_path / "tests").mkdir()
    value = {"key": "widget", "deployment": "answers", "body": {"model": model, **CHAT[1]}}
    expect = {
        "rules": ["shared/adds"],
        "charged": {"added-limit": 1},
        "upstream": {"body": {"model": "large", "max_tokens": 7, "temperature": 0.5}},
    }
    case = {"tests": {"it holds": {"given": value, "expect": expect}}}
    (tmp_path / "tests" / "t.yaml").write_text(json.dumps(case))

    result = CliRunner().invoke(main, ["test", str(tmp_path)])

    assert result.exit_code == 0, result.output


async def test_blocked_model_is_blocked_under_any_name(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    policies = build_policies(Request("large"), LARGE_ADDS, base_url=f"{upstream.url}/v1")
    messages = [{"role": "user", "content": f"My key is {SECRET}."}]
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        for model in ("large", "local/large", "answers", "LARGE", "whatever"):
            reply = await proxy.chat(BEARER | HEADER, model=model, messages=messages)

            assert (reply.status, reply.error["code"]) == (400, "guardrail_blocked"), model
    assert upstream.requests == []


async def test_fallback_obeys_its_own_rules(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    rule = {"name": "short", "when": {"model": "large"}, "cap": {"max_tokens": 7}}
    request = Request("small", deployment=LATER)
    policies = build_policies(request, rule, base_url=f"{upstream.url}/v1")
    upstream.by_model = {"small": respond({}, status=503), "large": respond(chat())}
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        assert (await proxy.chat(model="small")).status == 200

    bodies = [request.json for request in upstream.requests]
    bounds = [body.get("max_completion_tokens", body.get("max_tokens")) for body in bodies]
    assert bounds == [None, 7]
