"""The one estimate of tokens: by script, and of every string of a request."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.estimate import body_quarters, text_quarters, value_quarters, whole_tokens

BIG = "x" * 195_000


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("Where is my order?", 5),
        ("Größe", 2),
        ("Привет", 3),
        ("שלום", 2),
        ("日本語の文章" * 40, 240),
        ("한국어", 3),
        ("नमस्ते", 6),
        ("😀😀", 4),
        ("order 日本 😀", 6),
        ("\ud800", 1),
    ],
)
def test_characters_count_by_script(text: str, tokens: int) -> None:
    assert whole_tokens(text_quarters(text)) == tokens


def test_parts_of_a_text_add_up_to_the_whole() -> None:
    text = "Wo bleibt 私の注文? Где мой заказ 😀"

    assert sum(map(text_quarters, text)) == text_quarters(text)


@pytest.mark.parametrize(
    "more",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"title": BIG}}}},
        {"response_format": {"json_schema": {"schema": {"properties": {BIG: {}}}}}},
        {"documents": [{"text": BIG}]},
        {"prediction": {"type": "content", "content": BIG}},
        {"tool_choice": {"type": "function", "function": {"name": BIG}}},
        {"guided_json": {"description": BIG}},
        {"guided_choice": [BIG]},
        {"a_field_that_nobody_knows": BIG},
        {"tools": [{"function": {"parameters": {"properties": {"q": {"description": BIG}}}}}]},
    ],
    ids=lambda more: next(iter(more)),
)
def test_every_string_of_a_request_counts_whatever_field_it_stands_in(more: dict[str, Any]) -> None:
    plain = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}

    assert body_quarters({**plain, **more}) - body_quarters(plain) >= len(BIG)


def test_numbers_are_tokens_in_a_prompt_of_tokens_and_nothing_as_a_parameter() -> None:
    assert body_quarters({"prompt": [[1, 2], [3]]}) == 3 * 4
    assert body_quarters({"max_tokens": 900, "temperature": 0.5, "stream": True, "n": None}) == 0


def test_the_name_of_the_model_is_read_by_none() -> None:
    assert body_quarters({"model": "x" * 100, "prompt": "y" * 8}) == 8


def test_values_without_text_are_nothing() -> None:
    assert value_quarters([1.5, True, None, {}]) == 0
