"""What the rules that hold make of a call together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from proxy.dialects.requests.parameters import apply_parameters
from proxy.fields.token_bounds import BOUNDS
from proxy.policy.decide.conditions import (
    ALWAYS,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Facts,
    IsStreamed,
    Not,
    OneOf,
    StaticFacts,
)
from proxy.policy.decide.routes import Candidates, Routes
from proxy.policy.decide.rules import (
    Effects,
    PolicyRules,
    Rule,
    compile_chain,
    evaluate,
)
from proxy.types import Endpoint, ParameterOverrides, RuleRefusal, Target, Upstream
from tests.for_each import for_each

UP = Upstream("up", "openai", "http://127.0.0.1:9")
NEAR_ROUTES, FAR_ROUTES = (
    Routes((Target(UP, name),), Candidates((Target(UP, name),)), {}) for name in ("here", "there")
)
SPARE = (Target(UP, "spare"),)
NEVER = IsStreamed(stream=True)
KNOWN_VALUES = StaticFacts("k", {"team": "support"}, frozenset({"beta"}))
FACTS = Facts(
    "k", "openai", "chat", frozenset({"m"}), False, {}, {}, datetime(2026, 1, 1, tzinfo=UTC)
)


def rule(name: str, when: Condition = ALWAYS, **does: Any) -> Rule:
    return Rule(name, when, **does)


def ruled(*sections: PolicyRules) -> Effects:
    remaining = compile_chain(sections, KNOWN_VALUES)
    assert remaining is not None
    return evaluate(remaining, FACTS)


def followed(*rules: Rule, first_only: bool = False) -> Any:
    return ruled(PolicyRules("public", rules, first_only))


def test_of_all_rules_that_hold_the_earliest_that_says_something_wins() -> None:
    effects = followed(
        rule("a", NEVER, routes=FAR_ROUTES),
        rule("b", changes=ParameterOverrides({"temperature": 0.1})),
        rule(
            "c",
            routes=NEAR_ROUTES,
            model="smol",
            changes=ParameterOverrides({"temperature": 0.9, "n": 1}),
        ),
        rule("d", routes=FAR_ROUTES, model="large", fallback=()),
    )

    assert effects.rules == ("b", "c", "d")
    assert (effects.routes, effects.model, effects.fallback) == (NEAR_ROUTES, "smol", None)
    assert effects.changes.set == {"temperature": 0.1, "n": 1}


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

    body = apply_parameters(endpoint, {"max_tokens": 100}, followed(*rules).changes, BOUNDS)

    assert {body[name] for name in BOUNDS if name in body} == {5}


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
def test_what_follows_the_targets_of_a_rule_no_later_rule_says(
    rules: list[dict[str, Any]], fallback: tuple[Target, ...] | None, by: str | None
) -> None:
    effects = followed(*(rule(str(number), **does) for number, does in enumerate(rules)))

    assert effects.fallback == fallback
    assert effects.rule_by_effect.get("fallback") == by


def test_the_first_refusal_is_the_one_that_is_told() -> None:
    effects = followed(
        rule("a", refusal=RuleRefusal("a", "not now", 403)),
        rule("b", refusal=RuleRefusal("b", "never", 451)),
    )

    assert effects.refusal == RuleRefusal("a", "not now", 403)


KEY = Comparison("key", OneOf(frozenset({"k"})))
OTHER_VALUE = Comparison("key", OneOf(frozenset({"other"})))
TEAM = Comparison("tag", OneOf(frozenset({"support"})), "team")
BETA = Comparison("tag", OneOf(frozenset({"true"})), "beta")
NOBODYS = Comparison("tag", OneOf(frozenset({"prod"})), "env")


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
def test_what_is_known_decides_where_it_can(condition: Condition, fixed: bool | None) -> None:
    assert condition.static_result(KNOWN_VALUES) is fixed


def test_rules_that_can_never_hold_are_taken_out_and_what_always_holds_ends_a_section() -> None:
    always, never, maybe = rule("a", KEY, model="a"), rule("n", OTHER_VALUE), rule("m", NEVER)

    remaining = compile_chain(
        [PolicyRules("p", (never, maybe, always, never, maybe), first_only=True)], KNOWN_VALUES
    )

    assert remaining is not None
    assert [item.name for group in remaining.groups for _, item in group.rules] == ["m", "a"]
    assert compile_chain([PolicyRules("p", (never,))], KNOWN_VALUES) is None
