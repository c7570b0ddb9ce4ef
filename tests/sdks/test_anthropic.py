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
    answer,
    chat,
    message,
    message_events,
    stream,
    text_events,
)
from tests.sdks.conftest import Drive
from tests.sdks.errands import says

SDKS = ("anthropic", "anthropic-async")
APIS = {"via-anthropic": "messages", "support-chat": "chat"}
TOOL: Json = {
    "name": "look_up",
    "description": "Looks a place up.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
PICTURE: Json = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}


def step(do: str, to: str = "via-anthropic", **fields: Any) -> dict[str, Any]:
    body = {"model": to, "max_tokens": 64, "messages": [{"role": "user", "content": "Where?"}]}
    return {"do": do, "with": {**body, **fields}}


@pytest.mark.parametrize("to", ["via-anthropic", "support-chat"])
@pytest.mark.parametrize("sdk", SDKS)
async def test_reads_whole_and_streamed_responses(
    sdk: str, to: str, drive: Drive, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.then(says(APIS[to], " Paris."), says(APIS[to], " Paris.", streamed=True))

    full_value, streamed = await drive(sdk, step("create", to), step("stream", to))

    for document in (full_value, streamed):
        assert (document["ok"], document["text"], document["blocks"]) == (
            True,
            " Paris.",
            ["TextBlock" if document is full_value else "ParsedTextBlock"],
        ), document
        assert document["data"]["stop_reason"] == "end_turn"
        usage = document["data"]["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (5, 3)
    records = await proxy.sink.wait(2)
    assert [record.outcome for record in records] == ["success", "success"]
    assert [full_value["request_id"], streamed["request_id"]] == [r.request_id for r in records]


async def test_blocks_have_sdk_types(drive: Drive, upstream: ScriptedUpstream) -> None:
    cited = {"type": "text", "text": "It is Paris.", "citations": [CITED]}
    blocks = THOUGHT, SERVER, SEARCH_RESULT, cited, TOOL_USE
    upstream.then(answer(message(*blocks, stop_reason="tool_use")), stream(STREAM, is_done=False))

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


@pytest.mark.parametrize("to", ["via-anthropic", "support-chat"])
async def test_tool_loop_with_picture(to: str, drive: Drive, upstream: ScriptedUpstream) -> None:
    fields = {"name": "look_up", "arguments": '{"place": "Paris"}'}
    call = {"id": "toolu_1", "type": "function", "function": fields}
    event = {"role": "assistant", "content": None, "tool_calls": [call]}
    calling = chat(choices=[{"index": 0, "message": event, "finish_reason": "tool_calls"}])
    is_own = to == "via-anthropic"
    upstream.then(answer(message(TOOL_USE, stop_reason="tool_use") if is_own else calling))
    upstream.then(answer(message() if is_own else chat(" Paris.")))
    first_value = [{"role": "user", "content": [{"type": "text", "text": "Where?"}, PICTURE]}]
    tools = {"tools": [TOOL], "tool_choice": {"type": "auto"}}

    [request] = await drive("anthropic", step("create", to, messages=first_value, **tools))

    assert (request["data"]["stop_reason"], request["blocks"]) == ("tool_use", ["ToolUseBlock"]), (
        request
    )
    block = request["data"]["content"][0]
    assert (block["name"], block["input"]) == ("look_up", {"place": "Paris"})
    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "It is in France."}
    turns = [
        *first_value,
        {"role": "assistant", "content": request["data"]["content"]},
        {"role": "user", "content": [result]},
    ]
    [final_step] = await drive("anthropic", step("create", to, messages=turns, **tools))

    assert final_step["text"] == " Paris.", final_step
    sent_value = upstream.requests[-1].json
    if is_own:
        assert sent_value["messages"][0]["content"][1] == PICTURE
        assert sent_value["messages"][2]["content"] == [result]
    else:
        assert sent_value["messages"][0]["content"][1]["type"] == "image_url"
        assert (
            sent_value["messages"][1]["tool_calls"][0]["id"]
            == sent_value["messages"][2]["tool_call_id"]
        )
        assert sent_value["messages"][2]["content"] == "It is in France."


async def test_raises_sdk_error(drive: Drive, upstream: ScriptedUpstream, proxy: Proxy) -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.then(answer(busy, 529), answer({"error": {"message": "slow down"}}, 429))
    upstream.then(answer({}, 500))

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


async def test_early_exit_closes_the_upstream(
    drive: Drive, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    items = message_events(text_events(0, *["word "] * 2000))
    upstream.answer_with(stream(items, is_done=False))

    [remaining] = await drive("anthropic", {**step("raw"), "leave": 4})

    assert len(remaining["data"]) == 4
    [record] = await proxy.sink.wait()
    assert record.outcome in ("client_abort", "success")


async def test_transient_errors_are_retried(
    drive: Drive, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.then(answer(busy, 529, "retry-after: 1"), answer(message()))

    [served] = await drive("anthropic", {**step("create"), "client": {"max_retries": 1}})

    assert served["text"] == " Paris.", served
    outcomes = [record.outcome for record in await proxy.sink.wait(2)]
    assert outcomes == ["upstream_error", "success"]


async def test_counts_new_tokens(drive: Drive, upstream: ScriptedUpstream, proxy: Proxy) -> None:
    upstream.then(answer({"input_tokens": 14}), answer(message()))
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


@pytest.mark.parametrize("to", ["via-anthropic", "support-chat"])
async def test_langchain_reads_all(to: str, drive: Drive, upstream: ScriptedUpstream) -> None:
    is_own = to == "via-anthropic"
    upstream.then(says(APIS[to], " Paris."), says(APIS[to], " Paris.", streamed=True))
    if is_own:
        upstream.then(stream(STREAM, is_done=False))
    body: Json = {"model": to, "max_tokens": 64}
    fields: Json = {"say": "Where?", "do": "chat", "with": body}
    streamed = {**fields, "with": {**body, "stream": True}}

    results = await drive(
        "langchain-anthropic",
        fields,
        streamed,
        *([{**streamed, "tools": [TOOL]}] if is_own else []),
    )

    assert [result["ok"] for result in results] == [True] * len(results), results
    assert [result["text"] for result in results[:2]] == [" Paris."] * 2
    assert results[0]["usage"]["input_tokens"] == 5
    assert results[0]["usage"]["output_tokens"] == results[1]["usage"]["output_tokens"] == 3
    if is_own:
        assert results[2]["calls"] == [["look_up", {"place": "Paris"}]]


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
