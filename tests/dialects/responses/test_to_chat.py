"""A Responses request as a chat: each item, each wish, and what a chat cannot say."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.responses.to_chat import convert_to_chat
from proxy.errors import InvalidField
from tests.for_each import for_each

CALL: dict[str, Any] = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "f",
    "arguments": "{}",
}


def crossed(*items: Any, **options: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    return convert_to_chat({"model": "m", "input": [*items], **options}, keeps_thoughts=False)


def user(*parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [*parts]}


def test_calls_that_follow_what_the_assistant_says_are_one_turn() -> None:
    words: dict[str, Any] = {"type": "message", "role": "assistant"}
    words["content"] = [{"type": "output_text", "text": "Let me see."}]
    result = {"type": "function_call_output", "call_id": "c1", "output": "ok"}

    chat, dropped = crossed(user({"type": "input_text", "text": "Hi"}), words, CALL, CALL, result)

    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert chat["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ]
    assert dropped == ()


def test_pictures_files_and_sounds_become_parts() -> None:
    url, data = "data:image/png;base64,AAAA", "data:application/pdf;base64,AAAA"
    sound = {"data": "AAAA", "format": "wav"}

    chat, _ = crossed(
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


def test_a_picture_in_a_result_follows_it() -> None:
    picture = {"type": "input_image", "image_url": "https://a.test/a.png"}
    output = [{"type": "input_text", "text": "Here."}, picture]

    chat, _ = crossed(CALL, {"type": "function_call_output", "call_id": "c1", "output": output})

    assert chat["messages"][1:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "Here."},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "https://a.test/a.png"}}],
        },
    ]


def test_wishes_have_a_chats_names() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    chat, dropped = crossed(
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
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}],
        "max_completion_tokens": 9,
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": schema},
        "verbosity": "low",
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "logprobs": True,
        "top_logprobs": 2,
        "temperature": 0.5,
    }
    assert dropped == ("reasoning", "store")


def test_thoughts_are_left_out_and_named() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}

    chat, dropped = crossed(user({"type": "input_text", "text": "Hi"}), thought)

    assert len(chat["messages"]) == 1
    assert dropped == ("reasoning",)


@for_each(
    "item",
    [
        {"type": "computer_call_output", "call_id": "c", "output": {}},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        user({"type": "input_image", "file_id": "f"}),
        user({"type": "input_file", "file_url": "https://a.test/a.pdf"}),
        {"type": "function_call_output", "call_id": "c1", "output": 5},
        {"role": "user", "content": 5},
        {"role": "user", "content": ["a"]},
    ],
)
def test_what_a_chat_has_no_word_for_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(InvalidField, match=r"input\.0"):
        crossed(item)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "web_search"}]),
        ("tool_choice", {"type": "file_search"}),
        ("text", {"format": {"type": "grammar"}}),
    ],
)
def test_wishes_that_a_chat_has_no_word_for_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidField, match=name):
        crossed(**{name: value})


def test_a_tool_that_is_refused_is_told_by_its_place_and_type() -> None:
    tools = [{"type": "function", "name": "f"}, {"type": "namespace", "name": "agents"}]

    with pytest.raises(InvalidField, match=r"^tools\.1: type .namespace. is not supported"):
        crossed(tools=tools)


@for_each("item", [CALL, {"type": "function_call_output", "output": "ok"}])
@for_each("call_id", [["c1"], {"a": 1}, 7])
def test_an_id_of_a_call_that_is_no_string_is_refused(item: dict[str, Any], call_id: Any) -> None:
    with pytest.raises(InvalidField, match=r"^input\.1\.call_id: must be a string"):
        crossed(user({"type": "input_text", "text": "Hi"}), {**item, "call_id": call_id})
