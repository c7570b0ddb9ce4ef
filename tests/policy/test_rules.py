"""What the rules that hold make of a call together."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from proxy.policy.conditions import ALWAYS, Condition, Facts, Streamed
from proxy.policy.routes import Candidates, Routes
from proxy.policy.rules import SILENT, Rule, Section, follow
from proxy.types import Changes, Refusal, Target, Upstream

UP = Upstream("up", "openai", "http://127.0.0.1:9")
HERE, THERE = (Routes(Candidates((Target(UP, name),)), {}) for name in ("here", "there"))
NEVER = Streamed(stream=True)
FACTS = Facts("k", "openai", "chat", "m", False, {}, {}, datetime(2026, 1, 1, tzinfo=UTC))


def rule(name: str, when: Condition = ALWAYS, **does: Any) -> Rule:
    return Rule(name, when, **does)


def followed(*rules: Rule, first: bool = False) -> Any:
    return follow([Section("public", rules, first)], FACTS)


def test_no_rule_that_holds_changes_nothing() -> None:
    assert followed(rule("a", NEVER, routes=HERE)) is SILENT


def test_of_all_rules_that_hold_the_earliest_that_says_something_wins() -> None:
    ruling = followed(
        rule("a", NEVER, routes=THERE),
        rule("b", changes=Changes({"temperature": 0.1})),
        rule("c", routes=HERE, model="smol", changes=Changes({"temperature": 0.9, "n": 1})),
        rule("d", routes=THERE, model="large", fallback=()),
    )

    assert ruling.rules == ("b", "c", "d")
    assert (ruling.routes, ruling.model, ruling.fallback) == (HERE, "smol", ())
    assert ruling.changes.set == {"temperature": 0.1, "n": 1}


def test_under_first_nothing_counts_after_the_first_that_holds() -> None:
    ruling = followed(rule("a", NEVER), rule("b", model="b"), rule("c", routes=HERE), first=True)

    assert (ruling.rules, ruling.model, ruling.routes) == (("b",), "b", None)


def test_of_several_caps_the_lowest_counts() -> None:
    caps = [Changes(cap={"max_tokens": most}) for most in (500, 200, 300)]

    ruling = followed(*(rule(str(i), changes=each) for i, each in enumerate(caps)))

    assert ruling.changes.cap == {"max_tokens": 200}


def test_a_rule_in_shadow_is_noted_and_neither_changes_nor_ends_anything() -> None:
    ruling = followed(
        rule("would", shadow=True, refusal=Refusal("would", "no", 403)),
        rule("does", model="m"),
        rule("after", model="n"),
        first=True,
    )

    assert (ruling.rules, ruling.would) == (("does",), ("would",))
    assert ruling.refusal is None


def test_only_shadows_that_hold_are_noted_where_nothing_else_holds() -> None:
    ruling = followed(rule("a", shadow=True, routes=HERE), rule("b", NEVER, shadow=True))

    assert (ruling.rules, ruling.would, ruling.routes) == ((), ("a",), None)


def test_the_first_refusal_is_the_one_that_is_told() -> None:
    ruling = followed(
        rule("a", refusal=Refusal("a", "not now", 403)),
        rule("b", refusal=Refusal("b", "never", 451)),
    )

    assert ruling.refusal == Refusal("a", "not now", 403)


def test_each_policy_ends_its_own_rules_only() -> None:
    own = Section("own", (rule("own/a", model="a"), rule("own/b", model="b")), first=True)
    base = Section("base", (rule("base/c", routes=HERE), rule("base/d", routes=THERE)))

    ruling = follow([own, base], FACTS)

    assert ruling.rules == ("own/a", "base/c", "base/d")
    assert (ruling.model, ruling.routes) == ("a", HERE)
