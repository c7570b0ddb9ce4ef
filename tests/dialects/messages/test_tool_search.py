"""Tool search of Messages clients, at targets of every form."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from tests.conftest import KEY
from tests.doubles import Json, ScriptedUpstream, answer, chat, message, response, text_item
from tests.for_each import for_each

LOADED = {"type": "tool_reference", "tool_name": "get_weather"}
TEXT = "tool loaded: get_weather"
TOOLS = [
    {"name": "ToolSearch", "input_schema": {"type": "object"}},
    {"name": "get_weather", "input_schema": {"type": "object"}, "defer_loading": True},
]
TARGETS = {
    "search-answers": chat("Sunny."),
    "responses-only": response(text_item("Sunny.")),
    "via-anthropic": message({"type": "text", "text": "Sunny."}),
}


def body(deployment: str, reference: Json) -> Json:
    used = {"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [reference]}
    messages = [
        {"role": "user", "content": "Will it rain?"},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [result]},
    ]
    return {"model": deployment, "max_tokens": 50, "tools": TOOLS, "messages": messages}


async def ask(client: aiohttp.ClientSession, request: Json) -> tuple[int, Json]:
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    async with client.post("/v1/messages", headers=headers, json=request) as response_item:
        return response_item.status, await response_item.json()


def result_of(sent_body: Json) -> Any:
    if "input" in sent_body:
        return sent_body["input"][-1]["output"]
    last_value = sent_body["messages"][-1]
    return (
        last_value["content"]
        if last_value["role"] == "tool"
        else last_value["content"][0]["content"]
    )


def tool_names(sent_body: Json) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in sent_body["tools"]]


@pytest.mark.parametrize("deployment", TARGETS)
async def test_loaded_tool_is_named_to_the_model(
    deployment: str, client: aiohttp.ClientSession, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(TARGETS[deployment]))

    status, answered = await ask(client, body(deployment, LOADED))

    assert status == 200, answered
    sent_value = upstream.requests[-1].json
    assert result_of(sent_value) == ([LOADED] if deployment == "via-anthropic" else TEXT)
    assert tool_names(sent_value) == ["ToolSearch", "get_weather"]


@for_each("name", [None, 5, {}])
async def test_reference_without_a_name_is_refused(
    name: Any, client: aiohttp.ClientSession
) -> None:
    status, refused = await ask(client, body("search-answers", {**LOADED, "tool_name": name}))

    assert status == 400
    assert refused["error"]["message"].startswith("messages.2.content.0.content.0.tool_name")
