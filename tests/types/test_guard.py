"""Properties of guard rules that are computed once."""

from __future__ import annotations

from dataclasses import replace

from proxy.types.guard import GuardPlan, GuardRule, StageRules
from tests.guards.doubles import EchoOfPrompt, SlowService, rule


def test_rules_are_identified_by_detector() -> None:
    own_rule, asks = (
        rule("hippo", shadow=True),
        GuardRule("elsewhere", SlowService(), action="flag"),
    )
    rules = StageRules.from_rules((own_rule, asks))

    assert rules.all_rules == (own_rule, asks)
    assert (rules.detectors, rules.services) == ((own_rule,), (asks,))
    assert (rules.contextual, rules.enforces, rules.restores, rules.retries) == (False,) * 4
    assert rules.in_force
    assert StageRules.from_rules((GuardRule("as asked", EchoOfPrompt()),)).contextual
    assert not StageRules.from_rules((own_rule,)).in_force


def test_consequences_depend_on_the_action() -> None:
    guards = GuardPlan(output=(rule("hippo", action="mask", digest="a"),))
    other_plan = replace(guards, output=(rule("hippo", action="retry", digest="b"),))

    assert (guards.output_stage.retries, guards.needs_whole_response, guards.digest) == (
        False,
        False,
        "| a",
    )
    output = other_plan.output_stage
    assert (output.retries, other_plan.needs_whole_response, other_plan.digest) == (
        True,
        True,
        "| b",
    )
