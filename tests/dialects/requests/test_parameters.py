"""What rules change in a request's parameters."""

from __future__ import annotations

from typing import Any

from proxy.dialects.requests.parameters import apply_parameters
from proxy.dialects.vendors.openai import OPENAI
from proxy.types import UNCHANGED, Endpoint, ParameterOverrides
from tests.for_each import for_each

KNOWN_VALUES = OPENAI.fields["completions"]
BODY = {"prompt": "Hi", "temperature": 1.5}


def test_a_body_that_no_rule_changes_is_the_very_same() -> None:
    assert apply_parameters("completions", BODY, UNCHANGED, KNOWN_VALUES) is BODY


def test_the_body_that_was_given_is_not_changed() -> None:
    apply_parameters("completions", BODY, ParameterOverrides({"temperature": 0.0}), KNOWN_VALUES)

    assert BODY["temperature"] == 1.5


@for_each(
    ("endpoint", "fields", "changes", "becomes"),
    [
        ("chat", {}, ParameterOverrides({"temperature": 0.0}), {"temperature": 0.0}),
        (
            "chat",
            {"temperature": 2},
            ParameterOverrides({"temperature": 0.5}),
            {"temperature": 0.5},
        ),
        (
            "chat",
            {"temperature": 2},
            ParameterOverrides(cap={"temperature": 1.0}),
            {"temperature": 1.0},
        ),
        (
            "chat",
            {"temperature": 0.3},
            ParameterOverrides(cap={"temperature": 1.0}),
            {"temperature": 0.3},
        ),
        ("chat", {}, ParameterOverrides(cap={"temperature": 1.0, "n": 2}), {}),
        ("chat", {"n": None}, ParameterOverrides(cap={"n": 2}), {"n": None}),
        ("chat", {}, ParameterOverrides(cap={"max_tokens": 9}), {"max_tokens": 9}),
        ("chat", {"max_tokens": 5}, ParameterOverrides(cap={"max_tokens": 9}), {"max_tokens": 5}),
        (
            "chat",
            {"max_tokens": None},
            ParameterOverrides(cap={"max_tokens": 9}),
            {"max_tokens": 9},
        ),
        (
            "chat",
            {"max_completion_tokens": 50},
            ParameterOverrides(cap={"max_tokens": 9}),
            {"max_completion_tokens": 9},
        ),
        (
            "chat",
            {"max_tokens": 50, "max_completion_tokens": 60},
            ParameterOverrides(cap={"max_tokens": 9}),
            {"max_tokens": 9, "max_completion_tokens": 9},
        ),
        (
            "chat",
            {},
            ParameterOverrides(cap={"max_completion_tokens": 9}),
            {"max_completion_tokens": 9},
        ),
        (
            "completions",
            {},
            ParameterOverrides(cap={"max_completion_tokens": 9}),
            {"max_tokens": 9},
        ),
        (
            "chat",
            {"max_completion_tokens": 50},
            ParameterOverrides({"max_tokens": 9}),
            {"max_tokens": 9},
        ),
        (
            "completions",
            {"max_tokens": 5},
            ParameterOverrides({"max_completion_tokens": 9}),
            {"max_tokens": 9},
        ),
        ("chat", {}, ParameterOverrides({"best_of": 2}), {}),
        ("completions", {"best_of": 5}, ParameterOverrides(cap={"best_of": 2}), {"best_of": 2}),
        ("embeddings", {}, ParameterOverrides({"temperature": 0.0}, {"max_tokens": 5}), {}),
        (
            "chat",
            {},
            ParameterOverrides({"max_tokens": 500}, {"max_tokens": 100}),
            {"max_tokens": 100},
        ),
        (
            "chat",
            {"n_predict": 10, "max_new_tokens": 50},
            ParameterOverrides(cap={"max_tokens": 100}),
            {"n_predict": 10, "max_new_tokens": 50, "max_tokens": 10},
        ),
        (
            "chat",
            {"n_predict": -1, "max_new_tokens": 50},
            ParameterOverrides(cap={"max_tokens": 100}),
            {"n_predict": 100, "max_new_tokens": 50, "max_tokens": 50},
        ),
        (
            "completions",
            {"n_predict": 50, "options": {"num_predict": 7}},
            ParameterOverrides(cap={"max_tokens": 100}),
            {"n_predict": 50, "options": {"num_predict": 7}, "max_tokens": 7},
        ),
    ],
)
def test_a_parameter_is_set_or_capped_under_the_name_that_the_request_uses(
    endpoint: Endpoint, fields: dict[str, Any], changes: ParameterOverrides, becomes: dict[str, Any]
) -> None:
    assert apply_parameters(endpoint, fields, changes, OPENAI.fields[endpoint]) == becomes
