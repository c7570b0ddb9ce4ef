"""Anthropic's SDK reads responses and errors of Messages and chat upstreams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Proxy
from tests.dialects.vendors.test_anthropic import (
    CITED,
    SEARCH_RESULT,
    SERVER,
    STREAM,
    THOUGHT,
    TOOL_USE,
)
from tests.doubles import (
    Json,
    ScriptedUpstream,
    message,
    respond,
    stream,
)
from tests.sdks.conftest import Drive

TOOL: Json = {
    "name": "look_up",
    "description": "Looks a place up.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}


def step(do: str, to: str = "via-anthropic", **fields: Any) -> dict[str, Any]:
    body = {"model": to, "max_tokens": 64, "messages": [{"role": "user", "content": "Where?"}]}
    return {"do": do, "with": {**body, **fields}}


async def test_blocks_have_sdk_types(drive: Drive, upstream: ScriptedUpstream) -> None:
    cited = {"type": "text", "text": "It is Paris.", "citations": [CITED]}
    blocks = THOUGHT, SERVER, SEARCH_RESULT, cited, TOOL_USE
    upstream.then(respond(message(*blocks, stop_reason="tool_use")), stream(STREAM, is_done=False))

    full_value, streamed = await drive("anthropic", step("create"), step("stream"))

    for document in (full_value, streamed):
        assert document["ok"], document
        kinds = [name.removeprefix("Parsed") for name in document["blocks"]]
        assert kinds == [
            "ThinkingBlock",
            "ServerToolUseBlock",
            "WebSearchToolResultBlock",
            "TextBlock",
            "ToolUseBlock",
        ]
        thought, search, _, text, call = document["data"]["content"]
        assert (thought["thinking"], thought["signature"]) == ("France, hm.", "c2lnbmVk")
        assert call["input"] == {"place": "Paris"}
        assert text["citations"][0]["cited_text"] == "Paris"
        assert search["name"] == "web_search"
        assert document["data"]["stop_reason"] == "tool_use"


async def test_raises_sdk_error(drive: Drive, upstream: ScriptedUpstream, proxy: Proxy) -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.then(respond(busy, 529), respond({"error": {"message": "slow down"}}, 429))
    upstream.then(respond({}, 500))

    wrong, busied, limited, failing, unknown = await drive(
        "anthropic",
        step("create", messages=[{"role": "user", "content": [{"type": "text"}]}]),
        step("create"),
        step("create"),
        step("create"),
        step("create", "nobody-has-it"),
    )
    [stranger] = await drive("anthropic", step("create"), key="hr-wrong")

    assert ("BadRequestError" in wrong["mro"], wrong["status"]) == (True, 400), wrong
    assert "messages.0.content.0.text" in wrong["message"]
    assert ("OverloadedError" in busied["mro"], busied["status"]) == (True, 529), busied
    assert ("RateLimitError" in limited["mro"], limited["status"]) == (True, 429)
    assert ("InternalServerError" in failing["mro"], failing["status"]) == (True, 502)
    assert ("NotFoundError" in unknown["mro"], unknown["status"]) == (True, 404)
    assert ("AuthenticationError" in stranger["mro"], stranger["status"]) == (True, 401)
    for item in (wrong, busied, limited, failing, unknown, stranger):
        document = item["document"]
        assert document["request_id"] == item["request_id"]
        assert document["error"].keys() == {"type", "message"}


async def test_broken_stream_raises(drive: Drive, upstream: ScriptedUpstream) -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.then(stream([*STREAM[:4], busy], is_done=False))
    upstream.then(stream(STREAM, is_done=False, cut_after=5))

    failed, cut = await drive("anthropic", step("stream"), step("stream"))

    assert (failed["ok"], cut["ok"]) == (False, False)
    assert "APIStatusError" in failed["mro"], failed


async def test_counts_new_tokens(drive: Drive, upstream: ScriptedUpstream, proxy: Proxy) -> None:
    upstream.then(respond({"input_tokens": 14}), respond(message()))
    counted = step("count")
    del counted["with"]["max_tokens"]

    event, beta, estimated = await drive(
        "anthropic",
        counted,
        step("beta", betas=["context-1m-2025-08-07"], metadata={"user_id": "u1"}),
        {"do": "count", "with": {**counted["with"], "model": "support-chat"}},
    )

    assert event["data"] == {"input_tokens": 14}
    assert estimated["data"]["input_tokens"] > 0
    assert beta["ok"], beta
    sent_value = upstream.requests[-1]
    assert sent_value.headers["anthropic-beta"] == "context-1m-2025-08-07"
    assert sent_value.json["metadata"] == {"user_id": "u1"}
    assert len(upstream.requests) == 2
    assert [record.cost for record in (r.billing for r in await proxy.sink.wait(3))][::2] == [0, 0]


@pytest.mark.parametrize("limit", [{}, {"limit": 2}])
async def test_pages_through_models(limit: dict[str, int], drive: Drive) -> None:
    listed, document, missing = await drive(
        "anthropic",
        {"do": "models", "with": limit},
        {"do": "model", "with": {"model": "anthropic/anthropic-model"}},
        {"do": "model", "with": {"model": "nobody-has-it"}},
    )

    names = [model["id"] for model in listed["data"]]
    assert {"anthropic-model", "gpt-4o-mini", "compare"} < set(names)
    assert len(names) == len(set(names))
    assert names.index("compare") < names.index("anthropic-model")
    assert (document["data"]["type"], document["data"]["display_name"]) == (
        "model",
        "anthropic/anthropic-model",
    )
    assert (missing["exception"], missing["status"]) == ("NotFoundError", 404)
