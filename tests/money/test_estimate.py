"""Estimates of tokens by script, and of each value of a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from proxy.money.estimate import (
    estimate_body_quarters,
    estimate_text_quarters,
    sum_leaf_value_quarters,
    to_tokens,
)
from tests.for_each import for_each


@for_each(
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
    assert to_tokens(estimate_text_quarters(text)) == tokens


def test_parts_of_a_text_add_up() -> None:
    text = "Wo bleibt 私の注文? Где мой заказ 😀"

    assert sum(map(estimate_text_quarters, text)) == estimate_text_quarters(text)


def test_numbers_count_only_in_prompts() -> None:
    parameters = {"max_tokens": 900, "temperature": 0.5, "stream": True, "n": None}

    assert estimate_body_quarters({"prompt": [[1, 2], [3]]}) == 3 * 4
    assert estimate_body_quarters(parameters) == 0


VALUES: tuple[Any, ...] = (
    *(0.1234567890123456, 2**62, 7, True, False, None),
    *({}, [], "", "a", {"a": 1}, [[[]]]),
)
PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "tools": lambda value: {"tools": [{"function": {"parameters": {"enum": [value] * 500}}}]},
    "schema": lambda value: {"response_format": {f"n{number}": value for number in range(500)}},
    "documents": lambda value: {"documents": [value] * 500},
    "messages": lambda value: {
        "messages": [{"role": "user", "content": "Hi", "data": [value] * 500}]
    },
    "unknown": lambda value: {"a_field_that_nobody_knows": [value] * 500},
    "prompt": lambda value: {"prompt": [{"x": value}] * 500},
}


@for_each("value", VALUES)
@for_each("place", PLACES)
def test_values_count_at_least_their_json(place: str, value: Any) -> None:
    body = PLACES[place](value)

    assert estimate_body_quarters(body) >= len(json.dumps(body, separators=(",", ":"))) - 80


def test_long_numbers_count_their_digits() -> None:
    assert to_tokens(estimate_body_quarters({"prompt": [10**18]})) >= 19
    assert to_tokens(estimate_body_quarters({"input": [0.1234567890123456]})) >= 18


def test_each_prompt_counts_at_least_one_token() -> None:
    assert estimate_body_quarters({"input": [""] * 500}) == 500 * 4


def test_messages_add_a_few_tokens_each() -> None:
    words = "How long does an order take until it is here? " * 20
    chat = {"messages": [{"role": "user", "content": words}] * 10, "temperature": 0.25}

    assert 0 <= estimate_body_quarters(chat) - 10 * len(words) <= 10 * 9 * 4


def test_model_name_does_not_count() -> None:
    assert estimate_body_quarters({"model": "x" * 100, "prompt": "y" * 8}) == 8


def test_output_counts_texts_and_numbers() -> None:
    assert sum_leaf_value_quarters([True, None, {}, ""]) == 0
    assert sum_leaf_value_quarters({"arguments": {"price": 1.5, "name": "tea"}}) == 3 * 4 + 3
