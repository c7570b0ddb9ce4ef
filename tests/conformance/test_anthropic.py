"""Checks Anthropic's ``POST /v1/messages`` against the typed models of its SDK."""

from __future__ import annotations

import json

import pytest
from aiohttp import ClientSession

from tests.conformance.checking import (
    Document,
    Parameter,
    ask,
    is_text,
    mapping,
    texts,
    wrong_fields,
)
from tests.conftest import KEY
from tests.dialects.vendors.test_anthropic import events_of
from tests.doubles import (
    Json,
    ScriptedUpstream,
    chat,
    chat_events,
    message,
    message_events,
    respond,
    stream,
    text_events,
)

MESSAGES = [{"role": "user", "content": "p"}]
TURNS = [*MESSAGES, {"role": "assistant", "content": [{"type": "text", "text": "q"}]}]
TOOL = {"name": "f", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20260318", "name": "web_search", "max_uses": 2}


def objects(name: str, *good: Json) -> Parameter:
    return Parameter(name, [[], [*good]], [1, "x", ["x"], {}, True])


def number(name: str, high: float | None = None) -> Parameter:
    return Parameter(name, [0, 0.5, *([high] if high is not None else [])], [-0.01, "1", True, [1]])


DOCUMENT = Document(
    path="/v1/messages",
    credential={"x-api-key": KEY, "anthropic-version": "2023-06-01"},
    deployment="via-anthropic",
    required={"model": "m", "max_tokens": 64, "messages": MESSAGES},
    parameters=[
        Parameter("model", [], [1, True, ["m"], {}], null=False),
        Parameter("max_tokens", [0, 1, 2**53], [-1, 1.5, "1", True, [1]], null=False),
        Parameter("messages", [MESSAGES, TURNS], [1, "x", [], ["x"], [{}]], null=False),
        mapping("cache_control", {"type": "ephemeral", "ttl": "1h"}),
        Parameter("container", [{"skills": []}, None], [1, ["x"], True]),
        mapping("context_management"),
        mapping("diagnostics"),
        mapping("metadata", {"user_id": "u1"}),
        mapping("output_config", {"effort": "low"}),
        Parameter("service_tier", ["auto", "standard_only"], [1, ["x"], {}]),
        texts("stop_sequences"),
        Parameter("stream", [False], [1, "true", []]),
        Parameter("system", ["x", [{"type": "text", "text": "x"}]], [1, ["x"], True, {}]),
        number("temperature", 1),
        mapping("thinking", {"type": "enabled", "budget_tokens": 1024}),
        mapping("tool_choice", {"type": "any", "disable_parallel_tool_use": True}),
        objects("tools", TOOL, SEARCH),
        Parameter("top_k", [0, 5], [-1, 1.5, "1", True]),
        number("top_p", 1),
    ],
    answer={
        "id": is_text,
        "type": lambda value: value == "message",
        "role": lambda value: value == "assistant",
        "model": is_text,
        "content": lambda value: value == [{"type": "text", "text": " Paris."}],
        "stop_reason": lambda value: value == "end_turn",
        "stop_sequence": lambda value: value is None,
        "usage": lambda value: value == {"input_tokens": 5, "output_tokens": 3},
    },
    reply=message(),
    named_first=True,
)


@pytest.mark.parametrize("to", ["via-anthropic", "support-chat"])
async def test_response_has_all_documented_fields(
    to: str, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(message() if to == "via-anthropic" else chat(" Paris.")))
    body = {**DOCUMENT.required, "model": to}
    headers = {**DOCUMENT.credential}
    async with client.post(DOCUMENT.path, headers=headers, json=body) as response:
        data = await response.json()

    assert wrong_fields(DOCUMENT, data) == []


@pytest.mark.parametrize("to", ["via-anthropic", "support-chat"])
async def test_stream_has_all_documented_events(
    to: str, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    is_own_one = to == "via-anthropic"
    events = (
        message_events(text_events(0, " Par", "is.")) if is_own_one else chat_events(" Par", "is.")
    )
    upstream.answer_with(stream(events, is_done=not is_own_one))
    body = {**DOCUMENT.required, "model": to, "stream": True}
    async with client.post(DOCUMENT.path, headers=DOCUMENT.credential, json=body) as response:
        raw = await response.read()

    assert response.headers["content-type"].startswith("text/event-stream")
    assert [name for name, _ in events_of(raw) if name != "ping"] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_error_has_all_documented_fields(client: ClientSession) -> None:
    status, text, _ = await ask(DOCUMENT, client, {})

    body = json.loads(text)
    assert status == 400
    assert body.keys() == {"type", "error", "request_id"}
    assert body["error"].keys() == {"type", "message"}
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")


async def test_bearer_is_a_credential(client: ClientSession) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    path = "/v1/messages/count_tokens"
    body = {"model": "support-chat", "messages": MESSAGES}
    async with client.post(path, headers=headers, json=body) as response:
        assert response.status == 200
