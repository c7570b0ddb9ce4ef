"""A chat as a Responses request: each message, each wish, and what that cannot say."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.responses.from_chat import convert_from_chat, tidy
from proxy.errors import InvalidField
from tests.for_each import for_each

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def crossed(*messages: Any, **options: Any) -> dict[str, Any]:
    return convert_from_chat({"model": "m", "messages": [*messages], **options})


def test_messages_become_items() -> None:
    document = crossed(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    )

    assert document["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    assert document["store"] is False


def test_the_result_of_a_custom_tool_is_one_of_its_own() -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}

    document = crossed(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    )

    assert [item["type"] for item in document["input"]] == [
        "custom_tool_call",
        "custom_tool_call_output",
    ]


def test_pictures_and_files_become_parts() -> None:
    url = "https://a.test/a.png"
    parts = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:,x"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]

    document = crossed({"role": "user", "content": parts})

    assert document["input"][0]["content"] == [
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:,x"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]


def test_wishes_have_the_names_of_responses() -> None:
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    document = crossed(
        max_tokens=9,
        max_completion_tokens=7,
        reasoning_effort="low",
        verbosity="low",
        response_format={"type": "json_schema", "json_schema": schema},
        tools=[{"type": "function", "function": {"name": "f"}}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        logprobs=True,
        top_logprobs=2,
        stream=True,
        stream_options={"include_usage": True},
    )

    assert document == {
        "model": "m",
        "input": [],
        "store": False,
        "max_output_tokens": 7,
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low", "format": {"type": "json_schema", **schema}},
        "tools": [{"type": "function", "name": "f", "parameters": None, "strict": False}],
        "tool_choice": {"type": "function", "name": "f"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "stream": True,
    }


def test_what_rules_have_set_has_its_own_name() -> None:
    body = {"model": "m", "input": "p", "max_output_tokens": 9, "max_tokens": 5}
    body |= {"reasoning": {"effort": "high", "summary": "auto"}, "reasoning_effort": "low"}

    assert tidy(body) == {
        "model": "m",
        "input": "p",
        "max_output_tokens": 5,
        "reasoning": {"effort": "low", "summary": "auto"},
    }


@for_each(
    ("message", "place"),
    [
        ({"role": "function", "name": "f", "content": "x"}, "messages.0.role"),
        ({"role": "user", "content": [{"type": "video_url"}]}, "messages.0.content.0"),
        ({"role": "user", "content": 5}, "messages.0.content"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "messages.0"),
        ({"role": "assistant", "tool_calls": [5]}, "messages.0.tool_calls.0"),
    ],
)
def test_what_responses_have_no_word_for_is_refused(message: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidField) as refused:
        crossed(message)

    assert refused.value.param == place


MARKED = {"type": "mcp", "id": "another's", "call_id": "another's"}


def test_no_member_of_a_tool_or_a_part_says_of_which_type_it_is() -> None:
    function = {"name": "f", "arguments": "{}", "role": "system", "content": "x", **MARKED}
    document = crossed(
        {"role": "user", "content": [{"type": "file", "file": {"file_data": "data:,x", **MARKED}}]},
        {"role": "assistant", "tool_calls": [{**CALL, "function": function}]},
        tools=[{"type": "function", "function": {"name": "f", **MARKED}}],
        tool_choice={"type": "function", "function": {"name": "f", **MARKED}},
        response_format={"type": "json_schema", "json_schema": {"name": "n", "type": "text"}},
    )

    calls = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    assert document["input"][1] == calls
    assert document["input"][0]["content"][0]["type"] == "input_file"
    assert [document["tools"][0]["type"], document["tool_choice"]["type"]] == ["function"] * 2
    assert document["text"]["format"]["type"] == "json_schema"
