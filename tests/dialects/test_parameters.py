"""What rules change in a request's parameters."""

from __future__ import annotations

from typing import Any

from proxy.dialects.openai import OPENAI
from proxy.dialects.parameters import apply_parameters
from proxy.types import UNCHANGED, Changes, Endpoint
from tests.for_each import for_each

KNOWN = OPENAI.fields["completions"]
BODY = {"prompt": "Hi", "temperature": 1.5}


def test_a_body_that_no_rule_changes_is_the_very_same() -> None:
    assert apply_parameters("completions", BODY, UNCHANGED, KNOWN) is BODY


def test_the_body_that_was_given_is_not_changed() -> None:
    apply_parameters("completions", BODY, Changes({"temperature": 0.0}), KNOWN)

    assert BODY["temperature"] == 1.5


@for_each(
    ("endpoint", "said", "changes", "becomes"),
    [
        ("chat", {}, Changes({"temperature": 0.0}), {"temperature": 0.0}),
        ("chat", {"temperature": 2}, Changes({"temperature": 0.5}), {"temperature": 0.5}),
        ("chat", {"temperature": 2}, Changes(cap={"temperature": 1.0}), {"temperature": 1.0}),
        ("chat", {"temperature": 0.3}, Changes(cap={"temperature": 1.0}), {"temperature": 0.3}),
        ("chat", {}, Changes(cap={"temperature": 1.0, "n": 2}), {}),
        ("chat", {"n": None}, Changes(cap={"n": 2}), {"n": None}),
        ("chat", {}, Changes(cap={"max_tokens": 9}), {"max_tokens": 9}),
        ("chat", {"max_tokens": 5}, Changes(cap={"max_tokens": 9}), {"max_tokens": 5}),
        ("chat", {"max_tokens": None}, Changes(cap={"max_tokens": 9}), {"max_tokens": 9}),
        (
            "chat",
            {"max_completion_tokens": 50},
            Changes(cap={"max_tokens": 9}),
            {"max_completion_tokens": 9},
        ),
        (
            "chat",
            {"max_tokens": 50, "max_completion_tokens": 60},
            Changes(cap={"max_tokens": 9}),
            {"max_tokens": 9, "max_completion_tokens": 9},
        ),
        ("chat", {}, Changes(cap={"max_completion_tokens": 9}), {"max_completion_tokens": 9}),
        ("completions", {}, Changes(cap={"max_completion_tokens": 9}), {"max_tokens": 9}),
        ("chat", {"max_completion_tokens": 50}, Changes({"max_tokens": 9}), {"max_tokens": 9}),
        (
            "completions",
            {"max_tokens": 5},
            Changes({"max_completion_tokens": 9}),
            {"max_tokens": 9},
        ),
        ("chat", {}, Changes({"best_of": 2}), {}),
        ("completions", {"best_of": 5}, Changes(cap={"best_of": 2}), {"best_of": 2}),
        ("embeddings", {}, Changes({"temperature": 0.0}, {"max_tokens": 5}), {}),
        ("chat", {}, Changes({"max_tokens": 500}, {"max_tokens": 100}), {"max_tokens": 100}),
        (
            "chat",
            {"n_predict": 10, "max_new_tokens": 50},
            Changes(cap={"max_tokens": 100}),
            {"n_predict": 10, "max_new_tokens": 50, "max_tokens": 10},
        ),
        (
            "chat",
            {"n_predict": -1, "max_new_tokens": 50},
            Changes(cap={"max_tokens": 100}),
            {"n_predict": 100, "max_new_tokens": 50, "max_tokens": 50},
        ),
        (
            "completions",
            {"n_predict": 50, "options": {"num_predict": 7}},
            Changes(cap={"max_tokens": 100}),
            {"n_predict": 50, "options": {"num_predict": 7}, "max_tokens": 7},
        ),
    ],
)
def test_a_parameter_is_set_or_capped_under_the_name_that_the_request_uses(
    endpoint: Endpoint, said: dict[str, Any], changes: Changes, becomes: dict[str, Any]
) -> None:
    assert apply_parameters(endpoint, said, changes, OPENAI.fields[endpoint]) == becomes
