"""Conversion of Messages requests to chats: blocks, options, and unsupported fields."""

from __future__ import annotations

from typing import Any

from proxy.dialects.messages.to_chat import convert_to_chat
from tests.dialects.refused import refused_param
from tests.for_each import for_each

TEXT = {"type": "text", "text": "Look."}
DATA = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
ODD_BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "search_result", "source": "a.test", "title": "A", "content": 5},
    {"type": "search_result", "source": "a.test", "title": ["A"], "content": []},
    {"type": "document", "source": {"type": "content", "content": 1.5}},
    {"type": "document", "title": {"A": 1}, "source": {"type": "text", "data": "x"}},
    {"type": "tool_result", "tool_use_id": "t1", "content": 5},
)
"""Blocks with something of a type that it never has."""


def to_chat_request(*messages: Any, **options: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    body = {"model": "m", "max_tokens": 64, "messages": [*messages], **options}
    return convert_to_chat(body, keeps_thoughts=False)


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def test_texts_and_images_become_parts() -> None:
    pictures = (
        {"type": "image", "source": DATA},
        {"type": "image", "source": {"type": "url", "url": "https://a.test/a.png"}},
    )

    chat, losses = to_chat_request(user(TEXT, *pictures), user(TEXT))

    assert losses == ()
    [parts, value] = [message["content"] for message in chat["messages"]]
    assert parts[0] == TEXT
    assert parts[1]["image_url"] == {"url": "data:image/png;base64,AAAA"}
    assert parts[2]["image_url"] == {"url": "https://a.test/a.png"}
    assert value == "Look."


def test_documents_become_texts_and_files() -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "It is blue."}
    inner = {"type": "content", "content": [TEXT]}
    result = {"type": "search_result", "source": "a.test", "title": "A", "content": [TEXT]}

    chat, _ = to_chat_request(
        user(
            {"type": "document", "title": "Sky", "source": plain},
            {"type": "document", "source": inner},
            {"type": "document", "source": PDF},
            result,
        )
    )

    [message] = chat["messages"]
    texts = [part["text"] for part in message["content"] if part["type"] == "text"]
    assert texts == ["Sky", "It is blue.", "Look.", "a.test", "A", "Look."]
    [file] = [part["file"] for part in message["content"] if part["type"] == "file"]
    assert file["file_data"] == "data:application/pdf;base64,AAAA"


def test_tool_loop_is_converted() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    call = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"place": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [TEXT]}
    failed = {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no"}

    chat, losses = to_chat_request(
        user(TEXT),
        {"role": "assistant", "content": [thought, TEXT, call]},
        user(result, failed, {"type": "text", "text": "And?"}),
        system=[TEXT, {**TEXT, "cache_control": {"type": "ephemeral"}}],
        tools=[{"name": "look_up", "description": "d", "input_schema": {"type": "object"}}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )

    assert losses == ("cache_control", "thinking")
    system, _, assistant, value, two, extra = chat["messages"]
    assert system == {"role": "system", "content": [TEXT, TEXT]}
    assert assistant["content"] == "Look."
    [tool_call] = assistant["tool_calls"]
    assert tool_call["function"] == {"name": "look_up", "arguments": '{"place":"Paris"}'}
    assert value == {"role": "tool", "tool_call_id": "t1", "content": "Look."}
    assert two["content"] == "Error: no"
    assert extra == {"role": "user", "content": "And?"}
    assert (chat["tool_choice"], chat["parallel_tool_calls"]) == ("required", False)
    assert chat["tools"][0]["function"]["parameters"] == {"type": "object"}


def test_image_of_a_tool_follows_its_result() -> None:
    output = {"type": "tool_result", "tool_use_id": "t1"}
    output["content"] = [{"type": "image", "source": DATA}]  # type: ignore[assignment]

    chat, _ = to_chat_request(user(output))

    assert [message["role"] for message in chat["messages"]] == ["tool", "user"]


@for_each(
    ("model", "fields", "effort"),
    [
        ("gpt-5", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ("gpt-5", {"thinking": {"type": "enabled", "budget_tokens": 9000}}, "medium"),
        ("gpt-5", {"thinking": {"type": "enabled", "budget_tokens": 32000}}, "high"),
        ("gpt-5", {"output_config": {"effort": "max"}}, "high"),
        ("gpt-4o", {"output_config": {"effort": "max"}}, None),
        ("gpt-4o", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, None),
    ],
)
def test_reasoning_models_get_effort(model: str, fields: Any, effort: str | None) -> None:
    chat, losses = to_chat_request(user(TEXT), **fields, model=model)

    assert chat.get("reasoning_effort") == effort
    assert losses == (() if effort else tuple(fields))
    assert ("max_completion_tokens" in chat) is (model == "gpt-5")


def test_json_schema_is_converted() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}

    chat, _ = to_chat_request(user(TEXT), output_config={"format": form})

    assert chat["response_format"]["json_schema"]["schema"] == {"type": "object"}


@for_each(
    ("field", "options"),
    [
        ("messages.1.content.0",
            {"messages": [user(TEXT), user({"type": "server_tool_use", "id": "s"})]}),
        ("messages.0.content.1",
            {"messages": [user(TEXT, {"type": "image", "source": {"type": "file"}})]}),
        ("messages.0.content.0",
            {"messages": [user({"type": "image", "source": {"type": "base64"}})]}),
        ("messages.0.content.0", {"messages": [user("no block")]}),
        ("messages.0.content.0.content.1", {"messages": [user({"type": "tool_result",
            "tool_use_id": "t", "content": [TEXT, {}]})]}),
        ("messages.0.content.0", {"messages": [user({"type": "document",
            "source": {"type": "content", "content": 5}})]}),
        ("system.0", {"system": [{"type": "image", "source": DATA}]}),
        ("system.0", {"system": [{"type": "text", "text": 5}]}),
        ("messages.0.content.0", {"messages": [user({"type": "document", "title": 5,
            "source": {"type": "text", "data": "x"}})]}),
        ("tools.0", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ("tool_choice", {"tool_choice": {"type": "some"}}),
        ("output_config", {"output_config": {"format": {"type": "grammar"}}}),
        ("output_config", {"output_config": {"effort": ["high"]}, "model": "gpt-5"}),
        *(("messages.0.content.0", {"messages": [user(block)]}) for block in ODD_BLOCKS),
    ],
)  # fmt: skip
def test_unsupported_field_is_refused_by_name(field: str, options: dict[str, Any]) -> None:
    assert refused_param(to_chat_request, **{"messages": [user(TEXT)], **options}) == field


def test_user_id_is_converted_and_other_metadata_dropped() -> None:
    metadata = {"user_id": "u1", "x": 1}
    chat, losses = to_chat_request(user(TEXT), metadata=metadata, service_tier="auto")

    assert (chat["user"], losses) == ("u1", ("metadata",))


@for_each(("thinking", "losses"), [({}, ("thinking",)), ({"type": "disabled"}, ())])
def test_thinking_of_a_model_without_reasoning_is_named(
    thinking: dict[str, Any], losses: tuple[str, ...]
) -> None:
    assert to_chat_request(user(TEXT), thinking=thinking)[1] == losses


def test_loaded_tool_is_named_to_the_model() -> None:
    loaded = {"type": "tool_reference", "tool_name": "get_weather"}
    call = {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [loaded]}
    names = ["ToolSearch", "get_weather"]
    tools = [{"name": name, "input_schema": {}, "defer_loading": True} for name in names]

    chat, losses = to_chat_request(
        user(TEXT), {"role": "assistant", "content": [call]}, user(result), tools=tools
    )

    assert chat["messages"][-1]["content"] == "tool loaded: get_weather"
    assert [tool["function"]["name"] for tool in chat["tools"]] == names
    assert losses == ("defer_loading",)
