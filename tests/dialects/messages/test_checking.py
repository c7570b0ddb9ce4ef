"""Validation of Messages requests, with the path of an invalid part."""

from __future__ import annotations

from typing import Any

from proxy.dialects.messages.schema import (
    SERVICE_TIERS,
    TOOL_CHOICES,
    make_messages_usage,
    parse_tool_arguments,
    to_chat_usage,
)
from proxy.dialects.messages.to_chat import check_content_blocks
from proxy.money.usage import read_chat_usage
from proxy.types import Json
from tests.dialects.refused import refused_param
from tests.for_each import for_each

HELLO = {"role": "user", "content": "Hello"}
CALL = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
TEXT = {"type": "text", "text": "Look."}


def check(*messages: Any, **options: Any) -> None:
    check_content_blocks({"messages": [*messages], **options})


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


WRONG = [
    ([{"role": "user"}], "messages.0.content"),
    ([{"role": "user", "content": 5}], "messages.0.content"),
    ([user("text")], "messages.0.content"),
    ([user(TEXT, {"text": "x"})], "messages.0.content.1.type"),
    ([user({"type": 5})], "messages.0.content.0.type"),
    ([user({"type": "text"})], "messages.0.content.0.text"),
    ([HELLO, user({**TEXT, "text": 5})], "messages.1.content.0.text"),
    ([user({"type": "image"})], "messages.0.content.0.source"),
    ([assistant({**CALL, "input": "{}"})], "messages.0.content.0.input"),
    ([assistant({**CALL, "id": None})], "messages.0.content.0.id"),
    ([HELLO, assistant(CALL), user({"type": "tool_result"})],
        "messages.2.content.0.tool_use_id"),
    ([HELLO, assistant(CALL), user(TEXT, {**RESULT, "tool_use_id": "t2"})],
        "messages.2.content.1.tool_use_id"),
    ([user(RESULT)], "messages.0.content.0.tool_use_id"),
    ([assistant(CALL), user(RESULT), assistant(TEXT), user(RESULT)],
        "messages.3.content.0.tool_use_id"),
    ([assistant(CALL), user({**RESULT, "content": 5})], "messages.1.content.0.content"),
    ([assistant(CALL), user({**RESULT, "content": [{"type": "text"}]})],
        "messages.1.content.0.content.0.text"),
    ([user({"type": "tool_reference"})], "messages.0.content.0.tool_name"),
    ([user({"type": "tool_reference", "tool_name": 5})],
        "messages.0.content.0.tool_name"),
]  # fmt: skip


@for_each(("messages", "place"), WRONG)
def test_error_names_the_invalid_part(messages: list[Any], place: str) -> None:
    assert refused_param(check, *messages) == place
    assert refused_param(check, HELLO, system=[TEXT, {"type": "text"}]) == "system.1.text"


OTHER_CALL = {**CALL, "id": "t2"}


@for_each(
    "messages",
    [
        [HELLO],
        [user({"type": "unheard_of", "new": 1})],
        [assistant(CALL), user(RESULT)],
        [assistant(CALL), user({"type": "tool_result", "tool_use_id": "t1"})],
        [assistant(CALL), assistant(OTHER_CALL), user(RESULT)],
        [assistant(CALL, OTHER_CALL), user(RESULT), user({**RESULT, "tool_use_id": "t2"})],
        [{"role": "system", "content": [TEXT]}, HELLO],
        [assistant({"type": "thinking", "thinking": "", "signature": ""})],
    ],
)
def test_valid_messages_pass(messages: list[Any]) -> None:
    check(*messages)


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
    assert make_messages_usage(read_chat_usage(to_chat_usage(usage)), usage) == usage


@for_each("odd", [None, "5", 1.5, [5], [], 5])
def test_usage_or_count_of_another_type_is_none(odd: Any) -> None:
    count = None if odd == 5 else odd or None
    usage = {"input_tokens": count, "output_tokens": 3}
    assert read_chat_usage(to_chat_usage(usage)) is None
    assert to_chat_usage(odd) is None


@for_each("count", [-3, {}, "", False, 1.5])
def test_usage_with_an_invalid_count_of_cached_tokens_is_none(count: Any) -> None:
    usage = {"input_tokens": 100, "cache_read_input_tokens": count, "output_tokens": 3}
    assert read_chat_usage(to_chat_usage(usage)) is None


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
def test_arguments_must_be_an_object(arguments: Any, expected: Json) -> None:
    assert parse_tool_arguments(arguments, lambda value: {"invalid": value}) == expected


@for_each("values", [TOOL_CHOICES, SERVICE_TIERS])
def test_chat_values_map_to_distinct_values(values: dict[str, str]) -> None:
    assert len(set(values.values())) == len(values)
