"""Responses requests as chats and back: each item and option, and what cannot be translated."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.responses.requests import (
    convert_from_chat,
    convert_to_chat,
    rename_chat_fields,
)
from proxy.errors import InvalidField
from tests.dialects.refused import refused_param
from tests.for_each import for_each

CALL: dict[str, Any] = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}
CALL["arguments"] = "{}"


def chat_of(*items: Any, **options: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    return convert_to_chat({"model": "m", "input": [*items], **options}, keeps_thoughts=False)


def user(*parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [*parts]}


def test_calls_after_assistant_text_are_one_message() -> None:
    words: dict[str, Any] = {"type": "message", "role": "assistant"}
    words["content"] = [{"type": "output_text", "text": "Let me see."}]
    result = {"type": "function_call_output", "call_id": "c1", "output": "ok"}

    chat, dropped = chat_of(user({"type": "input_text", "text": "Hi"}), words, CALL, CALL, result)

    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert chat["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ]
    assert dropped == ()


def test_images_files_and_audio_become_parts() -> None:
    url, data = "data:image/png;base64,AAAA", "data:application/pdf;base64,AAAA"
    sound = {"data": "AAAA", "format": "wav"}

    chat, _ = chat_of(
        user(
            {"type": "input_text", "text": "Look."},
            {"type": "input_image", "image_url": url, "detail": "low"},
            {"type": "input_image", "image_url": url, "detail": "auto"},
            {"type": "input_file", "filename": "a.pdf", "file_data": data},
            {"type": "input_audio", "input_audio": sound},
        )
    )

    assert chat["messages"][0]["content"] == [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": data}},
        {"type": "input_audio", "input_audio": sound},
    ]


def test_image_in_a_result_follows_it() -> None:
    url = "https://a.test/a.png"
    output = [{"type": "input_text", "text": "Here."}, {"type": "input_image", "image_url": url}]

    chat, _ = chat_of(CALL, {"type": "function_call_output", "call_id": "c1", "output": output})

    assert chat["messages"][1:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "Here."},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
    ]


def test_options_are_renamed_for_chat() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    chat, dropped = chat_of(
        instructions="Be brief.",
        max_output_tokens=9,
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": form, "verbosity": "low"},
        tools=[{"type": "function", "name": "f", "parameters": {}, "strict": True}],
        tool_choice={"type": "function", "name": "f"},
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        store=True,
        temperature=0.5,
    )

    function = {"name": "f", "parameters": {}, "strict": True}
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    assert chat == {
        **{"model": "m", "messages": [{"role": "system", "content": "Be brief."}]},
        **{"max_completion_tokens": 9, "reasoning_effort": "low", "verbosity": "low"},
        **{"logprobs": True, "top_logprobs": 2, "temperature": 0.5},
        "response_format": {"type": "json_schema", "json_schema": schema},
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    }
    assert dropped == ("reasoning", "store")


def test_thoughts_are_dropped_and_named() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}

    chat, dropped = chat_of(user({"type": "input_text", "text": "Hi"}), thought)

    assert len(chat["messages"]) == 1
    assert dropped == ("reasoning",)


RESULT = {"type": "function_call_output", "call_id": "c1"}
TOOLS = [{"type": "function", "name": "f"}, {"type": "namespace", "name": "agents"}]


@for_each(
    ("options", "problem"),
    [
        *(({"input": [item]}, "input.0") for item in (
            {"type": "computer_call_output", "call_id": "c", "output": {}},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            user({"type": "input_image", "file_id": "f"}),
            user({"type": "input_file", "file_url": "https://a.test/a.pdf"}),
            {**RESULT, "output": 5}, {"role": "user", "content": 5},
            {"role": "user", "content": ["a"]},
        )),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": TOOLS}, "tools.1: type .namespace. is not supported"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
        ({"text": {"format": {"type": "grammar"}}}, "text"),
        *(({"input": [{**item, "call_id": odd}]}, "input.0.call_id: must be a string")
            for item in (CALL, {**RESULT, "output": "ok"}) for odd in (["c1"], {"a": 1}, 7)),
    ],
)  # fmt: skip
def test_parts_unsupported_by_chat_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidField, match=f"^{problem}"):
        chat_of(**options)


TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def request_of(*messages: Any, **options: Any) -> dict[str, Any]:
    return convert_from_chat({"model": "m", "messages": [*messages], **options})


def test_messages_become_items() -> None:
    document = request_of(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [TOOL_CALL]},
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


def test_custom_tool_result_keeps_its_type() -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "f", "input": "x"}}

    document = request_of(
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    )

    kinds = [item["type"] for item in document["input"]]
    assert kinds == ["custom_tool_call", "custom_tool_call_output"]


def test_images_and_files_become_parts() -> None:
    url = "https://a.test/a.png"
    parts = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:,x"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]

    document = request_of({"role": "user", "content": parts})

    assert document["input"][0]["content"] == [
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:,x"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]


def test_options_are_renamed_for_responses() -> None:
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    document = request_of(
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


def test_values_set_by_rules_are_renamed() -> None:
    body = {"model": "m", "input": "p", "max_output_tokens": 9, "max_tokens": 5}
    body |= {"reasoning": {"effort": "high", "summary": "auto"}, "reasoning_effort": "low"}

    assert rename_chat_fields(body) == {
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
def test_fields_unsupported_by_responses_are_refused(message: dict[str, Any], place: str) -> None:
    assert refused_param(request_of, message) == place


MARKED = {"type": "mcp", "id": "another's", "call_id": "another's"}


def test_nested_type_member_does_not_change_the_type() -> None:
    function = {"name": "f", "arguments": "{}", "role": "system", "content": "x", **MARKED}
    document = request_of(
        {"role": "user", "content": [{"type": "file", "file": {"file_data": "data:,x", **MARKED}}]},
        {"role": "assistant", "tool_calls": [{**TOOL_CALL, "function": function}]},
        tools=[{"type": "function", "function": {"name": "f", **MARKED}}],
        tool_choice={"type": "function", "function": {"name": "f", **MARKED}},
        response_format={"type": "json_schema", "json_schema": {"name": "n", "type": "text"}},
    )

    calls = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    assert document["input"][1] == calls
    assert document["input"][0]["content"][0]["type"] == "input_file"
    assert [document["tools"][0]["type"], document["tool_choice"]["type"]] == ["function"] * 2
    assert document["text"]["format"]["type"] == "json_schema"
