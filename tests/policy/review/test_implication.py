"""Whether one condition is proven to hold wherever another does."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.policy.compile.rules import RuleCompiler
from proxy.policy.compile.targets import TargetCompiler
from proxy.policy.decide.conditions import ALWAYS, Condition, Facts
from proxy.policy.review.lint_rules import covers
from proxy.policy.schema import When
from proxy.policytest.cases import DEFAULT_TIME
from tests.for_each import for_each
from tests.policy.deciding import empty_context
from tests.policy.test_properties import WHEN


def condition(config: dict[str, Any]) -> Condition:
    context = empty_context()
    return RuleCompiler(context, TargetCompiler(context)).condition((), When.model_validate(config))


@for_each(
    ("wide", "narrow", "proven"),
    [
        ({"key": "a"}, {"key": "a"}, True),
        ({"key": ["a", "b"]}, {"key": "a"}, True),
        ({"key": "a"}, {"key": ["a", "b"]}, False),
        ({"key": "a"}, {"model": "a"}, False),
        ({"model": {"glob": "gpt*"}}, {"model": ["gpt-4", "gpt-5"]}, True),
        ({"model": {"glob": "gpt*"}}, {"model": ["gpt-4", "o1"]}, False),
        ({"model": {"glob": "*"}}, {"model": {"glob": "gpt*"}}, True),
        ({"model": {"glob": "gpt*"}}, {"model": {"glob": "gpt*"}}, True),
        ({"model": "gpt-4"}, {"model": {"glob": "gpt*"}}, False),
        ({"model": {"glob": "g*"}}, {"model": {"glob": "g*", "in": ["g1"]}}, True),
        ({"model": {"glob": "g*", "in": ["g1"]}}, {"model": "g1"}, True),
        ({"key": "a"}, {"key": "a", "stream": True}, True),
        ({"key": "a", "stream": True}, {"key": "a"}, False),
        ({"any": [{"key": "a"}, {"key": "b"}]}, {"key": "b", "stream": True}, True),
        ({"key": ["a", "b"]}, {"any": [{"key": "a"}, {"key": "b"}]}, True),
        ({"not": {"key": "a"}}, {"not": {"key": ["a", "b"]}}, True),
        ({"not": {"key": ["a", "b"]}}, {"not": {"key": "a"}}, False),
        ({"tag": {"team": ["x", "y"]}}, {"tag": {"team": "x"}}, True),
        ({"tag": {"team": "x"}}, {"tag": {"env": "x"}}, False),
        ({"header": {"x-a": {"glob": "*"}}}, {"header": {"x-a": "1"}}, True),
        ({"header": {"x-a": "1"}}, {"header": {"x-b": "1"}}, False),
    ],
    ids=str,
)
def test_proves_implication(wide: dict[str, Any], narrow: dict[str, Any], proven: bool) -> None:
    assert covers(condition(wide), condition(narrow)) is proven


def test_no_condition_covers_every_other() -> None:
    assert covers(ALWAYS, condition({"key": "a"}))
    assert not covers(condition({"key": "a"}), ALWAYS)


@given(WHEN, WHEN, st.booleans(), st.sampled_from(["small", "x", "chat"]), st.booleans())
@settings(max_examples=300, deadline=None)
def test_what_is_proven_is_true(
    single: dict[str, Any], other_item: dict[str, Any], stream: bool, model: str, region: bool
) -> None:
    wide, narrow = condition(single), condition(other_item)
    facts = Facts(
        "widget",
        "openai",
        "chat",
        frozenset({model, f"up/{model}"}),
        stream,
        {"team": "support"},
        {"x-region": model} if region else {},
        DEFAULT_TIME,
    )

    if covers(wide, narrow) and narrow.matcher()(facts):
        assert wide.matcher()(facts)
