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


async def ask(client: aiohttp.ClientSession, asked: Json) -> tuple[int, Json]:
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    async with client.post("/v1/messages", headers=headers, json=asked) as got:
        return got.status, await got.json()


def result_of(sent: Json) -> Any:
    if "input" in sent:
        return sent["input"][-1]["output"]
    last = sent["messages"][-1]
    return last["content"] if last["role"] == "tool" else last["content"][0]["content"]


def tool_names(sent: Json) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in sent["tools"]]


@pytest.mark.parametrize("deployment", TARGETS)
async def test_loaded_tool_is_named_to_the_model(
    deployment: str, client: aiohttp.ClientSession, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(TARGETS[deployment]))

    status, answered = await ask(client, body(deployment, LOADED))

    assert status == 200, answered
    sent = upstream.requests[-1].json
    assert result_of(sent) == ([LOADED] if deployment == "via-anthropic" else TEXT)
    assert tool_names(sent) == ["ToolSearch", "get_weather"]


@for_each("name", [None, 5, {}])
async def test_reference_without_a_name_is_refused(
    name: Any, client: aiohttp.ClientSession
) -> None:
    status, refused = await ask(client, body("search-answers", {**LOADED, "tool_name": name}))

    assert status == 400
    assert refused["error"]["message"].startswith("messages.2.content.0.content.0.tool_name")
