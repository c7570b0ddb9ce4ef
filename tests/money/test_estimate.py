"""The one estimate of tokens: by script, and of every value of a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from proxy.money.estimate import estimate_quarters, text_quarters, to_tokens, value_quarters
from tests.for_each import for_each

BIG = "x" * 195_000


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
    assert to_tokens(text_quarters(text)) == tokens


def test_parts_of_a_text_add_up_to_the_whole() -> None:
    text = "Wo bleibt 私の注文? Где мой заказ 😀"

    assert sum(map(text_quarters, text)) == text_quarters(text)


@for_each(
    "fields",
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
def test_every_string_of_a_request_counts_whatever_field_it_stands_in(
    fields: dict[str, Any],
) -> None:
    plain = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}

    assert estimate_quarters({**plain, **fields}) - estimate_quarters(plain) >= len(BIG)


def test_numbers_are_tokens_in_a_prompt_of_tokens_and_nothing_as_a_parameter() -> None:
    assert estimate_quarters({"prompt": [[1, 2], [3]]}) == 3 * 4
    assert (
        estimate_quarters({"max_tokens": 900, "temperature": 0.5, "stream": True, "n": None}) == 0
    )


VALUES: dict[str, Any] = {
    "float": 0.1234567890123456,
    "integer": 2**62,
    "digit": 7,
    "true": True,
    "false": False,
    "null": None,
    "object": {},
    "list": [],
    "text": "",
    "letter": "a",
    "member": {"a": 1},
    "nested": [[[]]],
}
PLACES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "tools": lambda each: {"tools": [{"function": {"parameters": {"enum": [each] * 500}}}]},
    "schema": lambda each: {"response_format": {f"n{number}": each for number in range(500)}},
    "documents": lambda each: {"documents": [each] * 500},
    "messages": lambda each: {
        "messages": [{"role": "user", "content": "Hi", "data": [each] * 500}]
    },
    "unknown": lambda each: {"a_field_that_nobody_knows": [each] * 500},
    "prompt": lambda each: {"prompt": [{"x": each}] * 500},
}


@for_each("value", VALUES)
@for_each("place", PLACES)
def test_every_value_counts_as_it_is_written(place: str, value: str) -> None:
    body = PLACES[place](VALUES[value])

    assert estimate_quarters(body) >= len(json.dumps(body, separators=(",", ":"))) - 80


def test_a_number_that_no_tokenizer_has_is_as_many_tokens_as_it_is_long() -> None:
    assert to_tokens(estimate_quarters({"prompt": [10**18]})) >= 19
    assert to_tokens(estimate_quarters({"input": [0.1234567890123456]})) >= 18


def test_each_of_many_prompts_is_a_token_at_least() -> None:
    assert estimate_quarters({"input": [""] * 500}) == 500 * 4


def test_a_chat_counts_as_its_words_and_a_few_tokens_for_each_message() -> None:
    words = "How long does an order take until it is here? " * 20
    chat = {"messages": [{"role": "user", "content": words}] * 10, "temperature": 0.25}

    assert 0 <= estimate_quarters(chat) - 10 * len(words) <= 10 * 9 * 4


def test_the_name_of_the_model_is_read_by_none() -> None:
    assert estimate_quarters({"model": "x" * 100, "prompt": "y" * 8}) == 8


def test_what_a_model_wrote_counts_by_its_texts_and_numbers() -> None:
    assert value_quarters([True, None, {}, ""]) == 0
    assert value_quarters({"arguments": {"price": 1.5, "name": "tea"}}) == 3 * 4 + 3
