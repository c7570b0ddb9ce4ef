"""Responses over sockets: both sides of the API, failures, and references to stored state."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import KEY, Proxy
from tests.dialects.vendors.test_anthropic import events_of
from tests.doubles import (
    Json,
    ScriptedUpstream,
    item_events,
    respond,
    response,
    response_events,
    text_item,
)
from tests.for_each import for_each

BEARER = {"authorization": f"Bearer {KEY}"}
REQUEST: Json = {"model": "gpt-4o-mini", "input": "Name the capital of France."}
FUNCTION_CALL: Json = {"id": "fc_1", "type": "function_call", "status": "completed"}
FUNCTION_CALL |= {"call_id": "call_1", "name": "look_up", "arguments": '{"place": "Paris"}'}
FUNCTION: Json = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}


async def ask(client: ClientSession, **options: Any) -> tuple[int, bytes, dict[str, str]]:
    body = {**REQUEST, **options}
    async with client.post("/v1/responses", headers=BEARER, json=body) as answered:
        lower = {name.lower(): value for name, value in answered.headers.items()}
        return answered.status, await answered.read(), lower


def streamed(raw: bytes) -> list[Json]:
    """Return the events of a stream. Checks that they are numbered without gaps."""
    matches = events_of(raw)
    assert [data["type"] for _, data in matches] == [name for name, _ in matches]
    assert [data["sequence_number"] for _, data in matches] == [*range(len(matches))]
    return [data for _, data in matches]


def accumulated(raw: bytes) -> Json:
    events = streamed(raw)
    items: dict[int, Json] = {}
    texts: dict[tuple[int, int], str] = {}
    for document in events:
        kind, index = document["type"], int(document.get("output_index", 0))
        numbers: list[int] = [document.get("content_index", 0), document.get("summary_index", 0)]
        part = index, max(numbers)
        if kind == "response.output_item.added":
            assert index not in items
            items[index] = {}
        elif kind.endswith(".delta"):
            texts[part] = texts.get(part, "") + document["delta"]
        elif kind.endswith(("text.done", "arguments.done", "input.done")):
            result = document.get("text", document.get("arguments", document.get("input")))
            assert result == texts.get(part, "")
        elif kind == "response.content_part.done":
            assert document["part"]["text"] == texts.get(part, "")
        elif kind == "response.output_item.done":
            items[index] = document["item"]
    full_value: Json = events[-1]["response"]
    assert full_value["output"] == [items[index] for index in sorted(items)]
    return full_value


FULL_RESPONSE = response(text_item("Let me see."), FUNCTION_CALL, instructions="Be brief.", new=[1])
STREAM = response_events(
    item_events(0, text_item("Let me see."), "Let me ", "see."),
    item_events(1, FUNCTION_CALL, '{"place":', ' "Paris"}'),
    document=FULL_RESPONSE,
)


async def test_whole_response_of_the_same_api_keeps_its_bytes(
    client: ClientSession, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    document = json.dumps(FULL_RESPONSE).encode()
    upstream.answer_with(respond(document))
    request: Json = {
        "instructions": "Be brief.",
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 64,
        "reasoning": {"effort": "low", "summary": "auto"},
        "store": False,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tools": [FUNCTION, {"type": "web_search"}],
        "truncation": "auto",
        "unheard_of": {"a": [1]},
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2VhbGVk"},
            FUNCTION_CALL,
            {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
        ],
    }

    status, raw, headers = await ask(client, **request)

    assert (status, raw) == (200, document)
    assert "x-headrace-warning" not in headers
    [sent_value] = upstream.requests
    assert sent_value.json == {**REQUEST, **request}
    [record] = await proxy.sink.wait()
    assert record.billing.tokens.total == 8


@pytest.mark.parametrize(
    ("code", "status"),
    [("server_error", 502), ("rate_limit_exceeded", 429), ("invalid_image", 400)],
)
async def test_failed_response_is_an_error(
    code: str, status: int, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    error = {"code": code, "message": "It went wrong."}
    upstream.answer_with(respond(response(status="failed", error=error, output=[])))

    answered, raw, _ = await ask(client)

    assert answered == status, raw
    assert json.loads(raw)["error"]["message"]


@for_each(
    "leaning",
    [
        {"previous_response_id": "resp_1"},
        *({"conversation": named} for named in ("conv_1", {"id": "conv_1"})),
        {"prompt": {"id": "pmpt_1"}},
        {"background": True},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
        {"tools": [{"type": "mcp", "server_label": "a", "server_url": "https://a.test"}]},
        {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]},
        {"tools": [{"type": "shell", "environment": {"container_id": "cntr_1"}}]},
        {"input": [{"type": "code_interpreter_call", "id": "ci_1", "container_id": "cntr_1"}]},
    ],
)
async def test_references_to_state_are_refused_for_other_apis(
    leaning: Json, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    status, raw, _ = await ask(client, **leaning)

    assert status == 400, raw
    param = json.loads(raw)["error"]["param"]
    assert re.split(r"[.\[]", param)[0] in leaning
    assert upstream.requests == []
