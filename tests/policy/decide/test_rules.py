"""RuleEffects of matching rules, and the origin of each decided value."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.dialects.requests.translation import apply_parameter_overrides
from proxy.fields.token_bounds import OUTPUT_LIMIT_FIELDS
from proxy.policy.decide.conditions import (
    ALWAYS,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Facts,
    Not,
    StaticFacts,
)
from proxy.policy.decide.routes import Candidates, Routes
from proxy.policy.decide.rules import PolicyRules, Rule, RuleEffects, compile_chain, evaluate_rules
from proxy.policy.review.decision import Decision
from proxy.policy.review.explain import explain
from proxy.policy.review.sample_call import build_sample_call
from proxy.policy.schema.keys import list_values
from proxy.policy.store import read_folder
from proxy.types import Endpoint, ParameterOverrides, RuleRefusal, Target, Upstream
from tests.for_each import for_each

UP = Upstream("up", "openai", "http://127.0.0.1:9")
NEAR_ROUTES, FAR_ROUTES = (
    Routes((Target(UP, name),), Candidates((Target(UP, name),)), {}) for name in ("here", "there")
)
SPARE = (Target(UP, "spare"),)
NEVER = Comparison("stream", list_values(["true"]))
NOT_NOW = RuleRefusal("d", "not now", 403)
KNOWN_VALUES = StaticFacts("k", {"team": "support"}, frozenset({"beta"}))
FACTS = Facts(
    "k", "openai", "chat", frozenset({"m"}), "false", {}, {}, datetime(2026, 1, 1, tzinfo=UTC)
)


def rule(name: str, when: Condition = ALWAYS, **does: Any) -> Rule:
    return Rule(name, when, **does)


def rule_effects(*sections: PolicyRules) -> RuleEffects:
    remaining = compile_chain(sections, KNOWN_VALUES)
    assert remaining is not None
    return evaluate_rules(remaining, FACTS)


def combined_effects(*rules: Rule, first_only: bool = False) -> Any:
    return rule_effects(PolicyRules("public", rules, first_only))


def test_earliest_rule_with_an_effect_wins() -> None:
    effects = combined_effects(
        rule("a", NEVER, routes=FAR_ROUTES),
        rule("b", changes=ParameterOverrides({"temperature": 0.1})),
        rule(
            "c",
            routes=NEAR_ROUTES,
            model="smol",
            changes=ParameterOverrides({"temperature": 0.9, "n": 1}),
        ),
        rule("d", routes=FAR_ROUTES, model="large", fallback=(), refusal=NOT_NOW),
        rule("e", refusal=RuleRefusal("e", "never", 451)),
    )

    assert effects.rules == ("b", "c", "d", "e")
    assert (effects.routes, effects.model, effects.fallback) == (NEAR_ROUTES, "smol", None)
    assert effects.changes.set == {"temperature": 0.1, "n": 1}
    assert effects.refusal == NOT_NOW


@for_each(
    "values",
    [
        [{"max_tokens": 5}, {"max_completion_tokens": 9}, {"max_tokens": 7}],
        [{"max_completion_tokens": 5}, {"max_tokens": 9}, {"max_completion_tokens": 7}],
        [{"n": 2}, {"max_tokens": 5}, {"max_completion_tokens": 9}, {"n": 1, "max_tokens": 3}],
    ],
)
@for_each("endpoint", ["chat", "completions"])
def test_first_set_bound_wins(values: list[dict[str, int]], endpoint: Endpoint) -> None:
    rules = [
        rule(str(position), changes=ParameterOverrides(item))
        for position, item in enumerate(values)
    ]

    body = apply_parameter_overrides(
        endpoint, {"max_tokens": 100}, combined_effects(*rules).changes, OUTPUT_LIMIT_FIELDS
    )

    assert {body[name] for name in OUTPUT_LIMIT_FIELDS if name in body} == {5}


@for_each(
    ("rules", "fallback", "by"),
    [
        ([{"routes": NEAR_ROUTES}, {"fallback": SPARE}], None, None),
        ([{"routes": NEAR_ROUTES, "fallback": ()}, {"fallback": SPARE}], (), "0"),
        ([{"fallback": SPARE}, {"routes": NEAR_ROUTES}], SPARE, "0"),
        ([{"routes": NEAR_ROUTES, "fallback": SPARE}, {"routes": FAR_ROUTES}], SPARE, "0"),
        ([{"model": "m"}, {"fallback": SPARE}], SPARE, "1"),
    ],
)
def test_rule_with_targets_also_decides_the_fallback(
    rules: list[dict[str, Any]], fallback: tuple[Target, ...] | None, by: str | None
) -> None:
    effects = combined_effects(*(rule(str(number), **does) for number, does in enumerate(rules)))

    assert effects.fallback == fallback
    assert effects.rule_by_effect.get("fallback") == by


KEY = Comparison("key", list_values(["k"]))
OTHER_VALUE = Comparison("key", list_values(["other"]))
TEAM = Comparison("tag", list_values(["support"]), "team")
BETA = Comparison("tag", list_values(["true"]), "beta")
NOBODYS = Comparison("tag", list_values(["prod"]), "env")


@for_each(
    ("condition", "fixed"),
    [
        (ALWAYS, True),
        (KEY, True),
        (OTHER_VALUE, False),
        (TEAM, True),
        (BETA, None),
        (NOBODYS, False),
        (NEVER, None),
        (AllOf((KEY, TEAM)), True),
        (AllOf((KEY, BETA)), None),
        (AllOf((BETA, OTHER_VALUE)), False),
        (AnyOf((BETA, KEY)), True),
        (AnyOf((BETA, OTHER_VALUE)), None),
        (AnyOf((NOBODYS, OTHER_VALUE)), False),
        (Not(OTHER_VALUE, ""), True),
        (Not(KEY, ""), False),
        (Not(BETA, ""), None),
    ],
    ids=str,
)
def test_condition_is_resolved_from_known_values(condition: Condition, fixed: bool | None) -> None:
    assert condition.evaluate_statically(KNOWN_VALUES) is fixed


def test_compiled_chain_omits_unreachable_rules() -> None:
    always, never, maybe = rule("a", KEY, model="a"), rule("n", OTHER_VALUE), rule("m", NEVER)

    remaining = compile_chain(
        [PolicyRules("p", (never, maybe, always, never, maybe), first_only=True)], KNOWN_VALUES
    )

    assert remaining is not None
    assert [item.name for group in remaining.groups for _, item in group.rules] == ["m", "a"]
    assert compile_chain([PolicyRules("p", (never,))], KNOWN_VALUES) is None


POLICIES = """\
upstreams: {one: {dialect: openai, base_url: 'https://one.test'}}
tags: {team: [search], env: [prod], feature: {pattern: '[a-z]+', caller: true}}
keys:
  widget: {sha256: AAAA, deployments: [chat, strict], tags: {team: search}}
policies:
  public:
    match: all
    rules:
      - {name: small, cap: {max_tokens: 9}, limits: [{name: few, tokens: 9000 per minute}]}
      - {name: smaller, cap: {max_tokens: 5}, set: {seed: 1}}
      - {name: eu, when: {header: {x-region: eu}}, targets: [{upstream: one, model: e}]}
      - {name: seeded, set: {seed: 2}, fallback: [{upstream: one, model: f}]}
      - {name: quiet, mode: shadow, refuse: No.}
deployments:
  chat:
    policy: public
    tags: {env: prod}
    targets:
      - {upstream: one, model: m, weight: 1}
      - {upstream: one, model: n, weight: 9}
  strict:
    unpriced: refuse
    targets:
      - {upstream: one, model: free}
    fallback:
      - {upstream: one, model: paid, price: {input: 1, output: 2}}
""".replace("AAAA", "0" * 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(POLICIES)
    return tmp_path


def explained(folder: Path, model: str = "chat", **headers: Any) -> dict[str, Decision]:
    """Return the decisions on a call by their subject."""
    snapshot = read_folder(folder, {})
    target = {name.replace("_", "-"): value for name, value in headers.items()}
    call = build_sample_call(
        {"model": model, "prompt": "Hi"}, target, datetime(2026, 6, 1, tzinfo=UTC)
    )
    decisions = explain(snapshot, snapshot.keys["widget"], call).decisions
    return {decision.subject: decision for decision in decisions}


@pytest.mark.parametrize(
    ("model", "headers", "why"),
    [
        ("m", {"x_headrace_deployment": "chat"}, "named in a request header"),
        ("m", {}, "the only deployment of this key that serves the request"),
    ],
)
def test_reason_of_deployment_is_explained(
    model: str, headers: dict[str, str], why: str, folder: Path
) -> None:
    assert explained(folder, model, **headers)["deployment"].reason == why


@pytest.mark.parametrize(
    ("sticky", "headers", "fixed_for"),
    [
        ("key", {}, "the same for all calls of this key"),
        ("{header: x-session}", {"x_session": "7"}, "the same for all calls of this value of x-s"),
        ("{header: x-session}", {}, "drawn for each call"),
        ("user", {}, "drawn for each call"),
    ],
)
def test_explanation_names_the_basis_of_a_draw(
    sticky: str, headers: dict[str, str], fixed_for: str, folder: Path
) -> None:
    text = POLICIES.replace("tags: {env: prod}", f"sticky: {sticky}")
    (folder / "p.yaml").write_text(text)

    assert fixed_for in str(explained(folder, **headers)["targets"].parts[0].reason)


def test_only_target_of_a_model_is_not_explained_as_drawn(folder: Path) -> None:
    target, *_ = explained(folder, "m")["targets"].parts

    assert str(target.reason).startswith("the only target to choose from;")
    assert target.source == "p.yaml:19"
