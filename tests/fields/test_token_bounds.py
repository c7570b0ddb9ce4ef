"""Token bounds in requests: names, places and types."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.errors import InvalidField
from proxy.fields.checks import MAX_TOKENS
from proxy.fields.field_table import fields_of
from proxy.fields.token_bounds import (
    NUMBERS,
    answers_of,
    check_groups,
    groups,
    most_tokens,
    with_token_bounds,
    without_ranges,
)
from tests.for_each import for_each

CHAT, COMPLETIONS = fields_of("chat"), fields_of("completions")
KNOWN_VALUES = frozenset({"max_tokens", "max_completion_tokens", "thinking"})
UNBOUNDED = 1024


@for_each(
    ("body", "maximum"),
    [
        ({}, UNBOUNDED),
        ({"max_tokens": None}, UNBOUNDED),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 0}, UNBOUNDED),
        ({"max_tokens": 1, "max_completion_tokens": 900}, 900),
        ({"max_tokens": -1}, UNBOUNDED),
        ({"max_tokens": 5000, "n_predict": -2}, 5000),
        ({"max_tokens": 5, "n_predict": -2}, UNBOUNDED),
        ({"n_predict": 60}, UNBOUNDED),
        ({"max_tokens": 5, "n_predict": 60}, 60),
        ({"max_tokens": 5, "options": {"num_predict": 60}}, 60),
        ({"max_tokens": 5, "options": {"num_predict": 0}}, UNBOUNDED),
        ({"options": {"max_tokens": 5}}, UNBOUNDED),
        ({"max_tokens": 5, "min_tokens": 60}, 60),
        ({"min_tokens": 60}, UNBOUNDED),
        ({"max_tokens": 5, "n": 3, "best_of": 4}, 20),
        ({"max_tokens": 5, "best_of": 0}, 5),
        ({"max_tokens": 5, "extra_body": {"options": {"n": 3}}}, 15),
        ({"max_tokens": 5, "thinking_budget": 2}, 7),
        ({"max_tokens": 5, "thinking": {"budget_tokens": 2}}, 5),
        ({"max_tokens": 5, "thinking": {"budget_tokens": 9}}, 9),
        ({"thinking": {"budget_tokens": 2}}, UNBOUNDED + 2),
        ({"max_tokens": 5, "extra_body": {"thinking": {"budget_tokens": 2}}}, 7),
        ({"max_tokens": 5, "reasoning": {"max_tokens": 2}}, 7),
    ],
)
def test_token_bound_covers_all_servers(body: dict[str, Any], maximum: int) -> None:
    assert most_tokens(body, KNOWN_VALUES) == maximum


@for_each(
    ("body", "answers"),
    [
        ({}, 1),
        ({"n": None}, 1),
        ({"n": 0}, 1),
        ({"n": 3, "best_of": 5}, 5),
        ({"extra_body": {"options": {"n": 3}}}, 3),
        ({"prompt": "Hi"}, 1),
        ({"prompt": ["Hi", "Ho"], "n": 3}, 6),
    ],
)
def test_choices_of_a_request_are_counted(body: dict[str, Any], answers: int) -> None:
    assert answers_of(body) == answers


def test_nested_option_groups_are_found() -> None:
    body = {"extra_body": {"options": {"a": 1}}, "options": "text", "other": {"options": {}}}

    assert [path for path, _ in groups(body)] == ["", "extra_body.", "extra_body.options."]


@for_each("value", ["9", [9], {}, True, 1.0, -3, MAX_TOKENS + 1])
@for_each("name", sorted(NUMBERS))
def test_numbers_are_checked_in_groups(name: str, value: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        check_groups({"options": {name: value}})

    assert refused.value.param == f"options.{name}"
    assert with_token_bounds({})[name].check(value) is not None


def test_dialect_fields_take_precedence() -> None:
    assert with_token_bounds(COMPLETIONS)["logprobs"] is COMPLETIONS["logprobs"]
    assert CHAT["stop"].check(["a"] * 6) is not None
    assert without_ranges(CHAT)["stop"].check(["a"] * 6) is None
    assert without_ranges(CHAT)["stop"].check([1]) is not None
    assert without_ranges(CHAT)["max_tokens"].check(-1) is None
