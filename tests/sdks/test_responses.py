"""OpenAI's SDK reads responses of Responses, chat and Messages upstreams."""

from __future__ import annotations

from typing import Any

from tests.dialects.test_responses import FULL_RESPONSE, FUNCTION, FUNCTION_CALL, STREAM
from tests.doubles import Json, ScriptedUpstream, chat_events, respond, response, stream
from tests.sdks.conftest import Drive


def step(do: str, to: str = "support-chat", **body: Any) -> dict[str, Any]:
    return {"do": do, "with": {"model": to, "input": "Where?", **body}}


async def test_events_have_sdk_types(drive: Drive, upstream: ScriptedUpstream) -> None:
    function = {"name": "look_up", "arguments": '{"place":'}
    calls: list[Json] = [
        {"index": 0, "id": "call_1", "type": "function", "function": function},
        {"index": 0, "function": {"arguments": ' "Paris"}'}},
    ]
    events = chat_events("Let me ", "see.")
    base = {name: document for name, document in events[0].items() if name != "choices"}
    calling = [{**base, "choices": [{"index": 0, "delta": {"tool_calls": [c]}}]} for c in calls]
    chatted = stream([*events[:3], *calling, *events[3:]])
    upstream.then(*[stream(STREAM, is_done=False)] * 2, chatted, chatted)

    raw, streamed, crossed, gathered = await drive(
        "openai",
        *(
            step(do, to, tools=[FUNCTION])
            for to in ("support-chat", "search-answers")
            for do in ("respond-raw", "respond-stream")
        ),
    )

    for document in (raw, crossed):
        assert document["ok"], document
        kinds = [data["type"] for _, data in document["data"]]
        assert kinds == [event["type"] for event in STREAM]
        assert [data["sequence_number"] for _, data in document["data"]] == [*range(len(kinds))]
        names = {name for name, _ in document["data"]}
        assert all(name.startswith("Response") for name in names)
    for document in (streamed, gathered):
        assert document["ok"], document
        assert document["text"] == "Let me see."
        assert document["data"]["output"][1]["arguments"] == FUNCTION_CALL["arguments"]


async def test_raises_errors_within_streams(drive: Drive, upstream: ScriptedUpstream) -> None:
    error = {"code": "server_error", "message": "Sorry."}
    failed = {"type": "response.failed", "response": response(status="failed", error=error)}
    upstream.then(
        respond({"error": {"message": "slow down"}}, 429),
        stream([*STREAM[:6], failed], is_done=False),
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
    upstream.then(respond(FULL_RESPONSE), stream(STREAM, is_done=False))
    request_fields = {"model": "support-chat", "tools": [{"type": "web_search"}, FUNCTION]}

    observed = await drive(
        "langchain-responses",
        {"do": "chat", "with": request_fields, "say": "Where?"},
        {"do": "chat", "with": {**request_fields, "stream": True}, "say": "Where?"},
    )

    for document in observed:
        assert (document["ok"], document["text"]) == (True, "Let me see."), document
        [call] = document["calls"]
        assert (call["name"], call["args"]) == ("look_up", {"place": "Paris"})
        assert (document["usage"]["input_tokens"], document["usage"]["output_tokens"]) == (5, 3)
    assert {request.path for request in upstream.requests} == {"/v1/responses"}
