"""OpenAI's SDK reads responses of Responses, chat and Messages upstreams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Proxy
from tests.dialects.test_responses import CALLED, FUNCTION, STREAM, WHOLE
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    item_events,
    message,
    message_events,
    response,
    response_events,
    stream,
    text_events,
    text_item,
)
from tests.sdks.conftest import Drive

UPSTREAMS = ("support-chat", "search-answers", "via-anthropic")


def step(do: str, to: str = "support-chat", **body: Any) -> dict[str, Any]:
    return {"do": do, "with": {"model": to, "input": "Where?", **body}}


def scripts(to: str) -> tuple[Any, Any]:
    if to == "via-anthropic":
        spoken = message_events(text_events(0, " Par", "is."))
        return answer(message()), stream(spoken, done=False)
    if to == "search-answers":
        return answer(chat(" Paris.")), stream(chat_events(" Par", "is."))
    item = text_item(" Paris.")
    events = response_events(item_events(0, item, " Par", "is."))
    return answer(response()), stream(events, done=False)


@pytest.mark.parametrize(("sdk", "to"), [("openai", UPSTREAMS), ("openai-async", UPSTREAMS[:1])])
async def test_it_reads_whole_and_streamed_answers(
    sdk: str, to: tuple[str, ...], drive: Drive, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.then(*(script for each in to for script in scripts(each)))

    seen = await drive(
        sdk, *(step(do, each) for each in to for do in ("respond", "respond-stream"))
    )

    for each in seen:
        assert (each["ok"], each["text"]) == (True, " Paris."), each
        assert each["items"][0].endswith("ResponseOutputMessage")
        assert each["data"]["status"] == "completed"
        usage = each["data"]["usage"]
        assert (usage["input_tokens"], usage["output_tokens"]) == (5, 3)
    records = await proxy.sink.wait(len(seen))
    assert {record.outcome for record in records} == {"success"}
    assert {record.billing.tokens.total for record in records} == {8}


async def test_events_have_sdk_types(drive: Drive, upstream: ScriptedUpstream) -> None:
    function = {"name": "look_up", "arguments": '{"place":'}
    calls: list[Json] = [
        {"index": 0, "id": "call_1", "type": "function", "function": function},
        {"index": 0, "function": {"arguments": ' "Paris"}'}},
    ]
    events = chat_events("Let me ", "see.")
    base = {name: each for name, each in events[0].items() if name != "choices"}
    calling = [{**base, "choices": [{"index": 0, "delta": {"tool_calls": [c]}}]} for c in calls]
    chatted = stream([*events[:3], *calling, *events[3:]])
    upstream.then(*[stream(STREAM, done=False)] * 2, chatted, chatted)

    raw, streamed, crossed, gathered = await drive(
        "openai",
        *(
            step(do, to, tools=[FUNCTION])
            for to in ("support-chat", "search-answers")
            for do in ("respond-raw", "respond-stream")
        ),
    )

    for each in (raw, crossed):
        assert each["ok"], each
        kinds = [data["type"] for _, data in each["data"]]
        assert kinds == [event["type"] for event in STREAM]
        assert [data["sequence_number"] for _, data in each["data"]] == [*range(len(kinds))]
        names = {name for name, _ in each["data"]}
        assert all(name.startswith("Response") for name in names)
    for each in (streamed, gathered):
        assert each["ok"], each
        assert each["text"] == "Let me see."
        assert each["data"]["output"][1]["arguments"] == CALLED["arguments"]


async def test_tool_loop_reaches_upstream(drive: Drive, upstream: ScriptedUpstream) -> None:
    to = ("support-chat", "search-answers")
    function = {"name": "look_up", "arguments": CALLED["arguments"]}
    turn: Json = {"role": "assistant", "content": None}
    turn["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    calling = chat(choices=[{"index": 0, "message": turn, "finish_reason": "tool_calls"}])
    upstream.then(answer(WHOLE), answer(calling), *(scripts(each)[0] for each in to))
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    parts = [{"type": "input_text", "text": "Where?"}, {**picture, "detail": "auto"}]
    first = [{"role": "user", "content": parts}]

    asked = await drive(
        "openai", *(step("respond", each, input=first, tools=[FUNCTION]) for each in to)
    )
    given: list[list[Json]] = []
    for each in asked:
        assert each["ok"], each
        output = each["data"]["output"]
        call = output[-1]
        assert (call["type"], json.loads(call["arguments"])) == (
            "function_call",
            {"place": "Paris"},
        )
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Paris"}
        given.append([*first, *output, result])
    steps = zip(to, given, strict=True)
    done = await drive(
        "openai", *(step("respond", each, input=items, tools=[FUNCTION]) for each, items in steps)
    )

    assert [(each["ok"], each["text"]) for each in done] == [(True, " Paris.")] * 2, done
    own, crossed = [request.json for request in upstream.requests[2:]]
    kinds = [item.get("type") for item in own["input"]]
    assert kinds[-2:] == ["function_call", "function_call_output"]
    assert [message["role"] for message in crossed["messages"]] == ["user", "assistant", "tool"]


async def test_raises_errors_within_streams(drive: Drive, upstream: ScriptedUpstream) -> None:
    error = {"code": "server_error", "message": "Sorry."}
    failed = {"type": "response.failed", "response": response(status="failed", error=error)}
    upstream.then(
        answer({"error": {"message": "slow down"}}, 429), stream([*STREAM[:6], failed], done=False)
    )

    wrong, leaning, limited, broken = await drive(
        "openai",
        step("respond", extra_body={"temperature": "hot"}),
        step("respond", previous_response_id="resp_1"),
        step("respond"),
        step("respond-raw"),
    )

    assert (wrong["exception"], wrong["param"]) == ("BadRequestError", "temperature")
    assert (leaning["exception"], leaning["param"]) == ("BadRequestError", "previous_response_id")
    assert limited["exception"] == "RateLimitError"
    assert not broken["ok"]
    assert "APIError" in broken["mro"]


async def test_langchain_runs_hosted_tool(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(answer(WHOLE), stream(STREAM, done=False))
    asked = {"model": "support-chat", "tools": [{"type": "web_search"}, FUNCTION]}

    seen = await drive(
        "langchain-responses",
        {"do": "chat", "with": asked, "say": "Where?"},
        {"do": "chat", "with": {**asked, "stream": True}, "say": "Where?"},
    )

    for each in seen:
        assert (each["ok"], each["text"]) == (True, "Let me see."), each
        [call] = each["calls"]
        assert (call["name"], call["args"]) == ("look_up", {"place": "Paris"})
        assert (each["usage"]["input_tokens"], each["usage"]["output_tokens"]) == (5, 3)
    assert {request.path for request in upstream.requests} == {"/v1/responses"}
