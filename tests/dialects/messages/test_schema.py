"""Usage in Messages and chat form, and arguments of tool calls."""

from __future__ import annotations

from typing import Any

from proxy.dialects.messages.schema import (
    SERVICE_TIERS,
    TOOL_CHOICES,
    chat_usage,
    messages_usage,
    parse_arguments,
)
from proxy.money.usage import read_usage
from proxy.types import Json
from tests.for_each import for_each


@for_each(
    "usage",
    [
        {"input_tokens": 5, "output_tokens": 3},
        {"input_tokens": 0, "output_tokens": 0},
        {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
        | {"output_tokens": 3, "cache_creation": {"ephemeral_1h_input_tokens": 5}},
        {"input_tokens": 5, "output_tokens": 9, "server_tool_use": {"web_search_requests": 2}},
    ],
)
def test_usage_survives_conversion(usage: Json) -> None:
    assert messages_usage(read_usage(chat_usage(usage)), usage) == usage


@for_each("usage", [None, 5, [], "5"])
def test_usage_that_is_no_object_is_none(usage: Any) -> None:
    assert chat_usage(usage) is None


@for_each("count", [None, "5", 1.5, [5], {}])
def test_count_that_is_no_number_is_not_trusted(count: Any) -> None:
    assert read_usage(chat_usage({"input_tokens": count or None, "output_tokens": 3})) is None


@for_each(
    ("arguments", "expected"),
    [
        ("", {}),
        (None, {}),
        ("{}", {}),
        ('{"place":"Hydropolis"}', {"place": "Hydropolis"}),
        ("[1]", {"invalid": [1]}),
        ("{cut", {"invalid": "{cut"}),
        (7, {"invalid": 7}),
    ],
)
def test_arguments_are_an_object_or_invalid(arguments: Any, expected: Json) -> None:
    assert parse_arguments(arguments, lambda value: {"invalid": value}) == expected


@for_each("values", [TOOL_CHOICES, SERVICE_TIERS])
def test_chat_values_map_to_distinct_values(values: dict[str, str]) -> None:
    assert len(set(values.values())) == len(values)
