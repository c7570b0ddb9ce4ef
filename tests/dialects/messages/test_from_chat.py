"""Conversion of chat requests to Messages: parts, options, and unsupported fields."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.messages.from_chat import (
    convert_from_chat,
    find_lost_fields,
    rename_chat_fields,
)
from proxy.errors import InvalidField
from tests.dialects.refused import refused_param
from tests.for_each import for_each

FUNCTION = {"name": "look_up", "parameters": {"type": "object"}, "description": "d"}
TOOL = {"type": "function", "function": FUNCTION}
HELLO = {"role": "user", "content": "Hello"}


def to_messages(*messages: Any, **options: Any) -> dict[str, Any]:
    return convert_from_chat({"model": "m", "messages": [*messages], **options})


def test_system_messages_become_the_system_field() -> None:
    brief = {"role": "system", "content": "Be brief."}
    document = to_messages(brief, {"role": "developer", "content": "Be kind."}, HELLO)

    assert [block["text"] for block in document["system"]] == ["Be brief.", "Be kind."]
    assert document["messages"] == [HELLO]
    assert to_messages(brief, HELLO)["system"] == "Be brief."


def test_tool_loop_is_converted() -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": "look_up", "arguments": arguments}}
        for name, arguments in (("c1", '{"a": 1}'), ("c2", ""))
    ]
    document = to_messages(
        HELLO,
        {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "look_up"}},
        parallel_tool_calls=False,
    )

    _, assistant, results = document["messages"]
    assert [block["type"] for block in assistant["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["input"] for block in assistant["content"][1:]] == [{"a": 1}, {}]
    assert [block["content"] for block in results["content"]] == ["one", "two"]
    assert document["tools"][0]["input_schema"] == {"type": "object"}
    choice = {"type": "tool", "name": "look_up", "disable_parallel_tool_use": True}
    assert document["tool_choice"] == choice


def test_pictures_and_files_become_sources() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    linked = {"type": "image_url", "image_url": {"url": "https://a.test/a.png"}}
    data = "data:application/pdf;base64,AAAA"
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": data}}

    [message] = to_messages({"role": "user", "content": [picture, linked, file]})["messages"]

    value, two, three = message["content"]
    assert value["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert two["source"] == {"type": "url", "url": "https://a.test/a.png"}
    assert (three["type"], three["title"]) == ("document", "a.pdf")


def test_options_are_renamed() -> None:
    schema = {"name": "x", "schema": {"type": "object"}}
    document = to_messages(
        HELLO,
        max_tokens=9,
        max_completion_tokens=5,
        stop=".",
        user="u1",
        reasoning_effort="minimal",
        response_format={"type": "json_schema", "json_schema": schema},
        service_tier="default",
    )

    assert (document["max_tokens"], document["stop_sequences"]) == (5, ["."])
    assert document["metadata"] == {"user_id": "u1"}
    config = document["output_config"]
    assert (config["effort"], config["format"]["schema"]) == ("low", {"type": "object"})
    assert document["service_tier"] == "standard_only"
    assert to_messages(HELLO, reasoning_effort="")["output_config"] == {"effort": ""}
    assert to_messages(HELLO, reasoning_effort="none")["thinking"] == {"type": "disabled"}
    assert to_messages(HELLO)["max_tokens"] > 0


def test_dropped_fields_are_named() -> None:
    expected = {"metadata": {"a": "b"}, "service_tier": "flex", "tool_choice": "required"}

    names = ["metadata", "service_tier", "parallel_tool_calls", "tool_choice"]
    assert find_lost_fields({**expected, "parallel_tool_calls": False}) == names
    assert to_messages(HELLO, **expected).keys() == {"model", "messages", "max_tokens"}


def wrong(*messages: Any) -> dict[str, Any]:
    return {"messages": [HELLO, *messages]}


@for_each(
    ("field", "options"),
    [
        ("messages.1.role", wrong({"role": "function", "content": "x"})),
        ("messages.1.content.0", wrong({"role": "user", "content": [{"type": "input_audio"}]})),
        ("messages.1.content", wrong({"role": "user", "content": 5})),
        ("messages.1.tool_calls", wrong({"role": "assistant", "tool_calls": 5})),
        ("messages.1.tool_calls.0", wrong({"role": "assistant", "tool_calls": [5]})),
        ("messages.1.function_call", wrong({"role": "assistant", "function_call": {"name": "f"}})),
        ("messages.1.content.0", wrong({"role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "file:///a"}}]})),
        ("tools.0", {"tools": [{"type": "custom", "custom": {}}]}),
        ("tool_choice", {"tool_choice": {"type": "allowed_tools"}}),
        *(("messages.0.content", {"messages": [{"role": role, "content": odd}]})
            for role in ("system", "user", "assistant", "tool")
            for odd in (True, 5, {"type": "text"})),
        ("messages.0.tool_calls",
            {"messages": [{"role": "assistant", "content": "x", "tool_calls": 5}]}),
        ("tools", {"tools": {"type": "function"}}),
        ("tools.0", {"tools": ["look_up"]}),
        ("output_config", {"output_config": ["x"], "reasoning_effort": "high"}),
    ],
)  # fmt: skip
def test_untranslatable_part_is_refused_with_its_path(field: str, options: dict[str, Any]) -> None:
    assert refused_param(convert_from_chat, {"messages": [HELLO], **options}) == field


@for_each("effort", [5, True])
def test_invalid_effort_is_dropped_and_named(effort: object) -> None:
    body = {"messages": [HELLO], "reasoning_effort": effort}

    assert find_lost_fields(body) == ["reasoning_effort"]
    assert "output_config" not in to_messages(HELLO, reasoning_effort=effort)


def test_arguments_of_another_type_are_refused() -> None:
    calls = [{"function": {"arguments": "["}}]

    with pytest.raises(InvalidField, match=r"messages.0.tool_calls.0.function.arguments: must"):
        to_messages({"role": "assistant", "tool_calls": calls})


def test_messages_request_loses_only_unsigned_thoughts() -> None:
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    unsigned = {**signed, "signature": ""}
    messages = [HELLO, {"role": "assistant", "content": [unsigned, signed]}]
    bounds = {"max_completion_tokens": 5, "max_tokens": 9}

    document = rename_chat_fields(
        {"unheard": [1], "messages": messages, **bounds, "stop": ["."], "user": "u"}
    )

    assert document["messages"][1]["content"] == [signed]
    assert (document["max_tokens"], document["stop_sequences"]) == (5, ["."])
    assert document["metadata"] == {"user_id": "u"}
    assert document["unheard"] == [1]
    assert rename_chat_fields({"messages": [HELLO]}) == {"messages": [HELLO]}
