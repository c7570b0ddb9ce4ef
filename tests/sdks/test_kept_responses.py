"""OpenAI's own SDK leans on responses that their provider keeps, by the ids that the proxy gave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy, running_proxy, world
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    item_events,
    response,
    response_events,
    stream,
    text_item,
)
from tests.sdks.conftest import Drive


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    secrets = ("a secret of replicas",)
    folder = tmp_path / "policies"
    async with running_proxy(folder, world(upstream.url), id_secrets=secrets) as running:
        yield running


def step(do: str, **body: Any) -> dict[str, Any]:
    return {"do": do, "with": {"model": "support-chat", "input": "Where?", **body}}


async def test_a_conversation_goes_on_by_its_id(drive: Drive, upstream: ScriptedUpstream) -> None:
    document = response(text_item(" Paris."), id="resp_2", previous_response_id="resp_1")
    events = response_events(item_events(0, text_item(" Paris."), " Par", "is."), document=document)
    upstream.then(answer(response()), answer(document), stream(events, is_done=False))

    [first_document] = await drive("openai", step("respond"))
    value = first_document["data"]["id"]
    second, third = await drive(
        "openai",
        step("respond", previous_response_id=value),
        step("respond-stream", previous_response_id=value),
    )

    for item in (second, third):
        assert (item["ok"], item["text"]) == (True, " Paris."), item
        assert item["data"]["previous_response_id"] == value
        assert item["data"]["id"] not in (value, "resp_2")
    assert second["data"]["id"] == third["data"]["id"]
    assert [item.json.get("previous_response_id") for item in upstream.requests] == [
        None,
        "resp_1",
        "resp_1",
    ]


async def test_it_raises_what_is_not_found(drive: Drive, upstream: ScriptedUpstream) -> None:
    [unknown] = await drive("openai", step("respond", previous_response_id="resp_1"))

    assert (unknown["exception"], unknown["status"]) == ("NotFoundError", 404)
    assert unknown["param"] == "previous_response_id"
    assert upstream.requests == []


THOUGHT: Json = {
    **{"id": "rs_1", "type": "reasoning"},
    "summary": [{"type": "summary_text", "text": "France, hm."}],
}
CALL: Json = {
    **{"id": "fc_1", "type": "function_call", "call_id": "call_1", "status": "completed"},
    **{"name": "look_up", "arguments": '{"place": "Paris"}'},
}


def told(item: Json, text: str) -> list[Json]:
    where: Json = {"item_id": item["id"], "output_index": 0, "summary_index": 0}
    kind, part = "response.reasoning_summary", {"type": "summary_text", "text": text}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "summary": []}},
        {"type": f"{kind}_part.added", **where, "part": {**part, "text": ""}},
        {"type": f"{kind}_text.delta", **where, "delta": text},
        {"type": f"{kind}_text.done", **where, "text": text},
        {"type": f"{kind}_part.done", **where, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("sdk", ["ai-sdk-openai", "openai-agents"])
async def test_a_loop_of_tools_with_what_clients_do_by_default(
    sdk: str, streamed: bool, drive: Drive, upstream: ScriptedUpstream
) -> None:
    fields, last_document = text_item("Let me see."), text_item(" Paris.", "msg_2")
    first_document, second = response(THOUGHT, fields, CALL), response(last_document, id="resp_2")
    if streamed:
        items = [told(THOUGHT, "France, hm."), item_events(1, fields, "Let me ", "see.")]
        calls = item_events(2, CALL, CALL["arguments"])
        ended = response_events(item_events(0, last_document, " Par", "is."), document=second)
        upstream.then(
            stream(response_events(*items, calls, document=first_document), is_done=False)
        )
        upstream.then(stream(ended, is_done=False))
    else:
        upstream.then(answer(first_document), answer(second))

    [result] = await drive(sdk, {"do": "loop", "to": "responses-only", "stream": streamed})

    assert result["ok"], result
    assert result["text"] == " Paris."
    sent_items = [
        (item.get("type"), item.get("id")) for item in upstream.requests[1].json["input"][1:4]
    ]
    kinds = ("reasoning", "message", "function_call")
    assert sent_items == (
        [("item_reference", "rs_1"), ("item_reference", "msg_1"), ("function_call", None)]
        if sdk == "ai-sdk-openai"
        else [*zip(kinds, ("rs_1", "msg_1", "fc_1"), strict=True)]
    )


async def test_works_with_stored_responses(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(answer(response()))
    [first_document] = await drive("openai", step("respond"))
    values = {"response_id": first_document["data"]["id"]}
    content = [{"type": "input_text", "text": "Where?"}]
    pages = [
        {
            "object": "list",
            "data": [{"id": name, "type": "message", "role": "user", "content": content}],
            "first_id": name,
            "last_id": name,
            "has_more": extra,
        }
        for name, extra in (("msg_1", True), ("msg_2", False))
    ]
    deleted = {"id": "resp_1", "object": "response", "deleted": True}
    cancelled = response(status="cancelled")
    upstream.then(*map(answer, (response(), *pages, cancelled, deleted)))

    read, items, stopped, removed = await drive(
        "openai",
        {"do": "retrieve", "with": {**values, "include": ["reasoning.encrypted_content"]}},
        {"do": "items", "with": {**values, "limit": 1, "order": "asc"}},
        {"do": "cancel", "with": values},
        {"do": "delete", "with": values},
    )

    assert (read["ok"], read["text"], read["data"]["id"]) == (
        True,
        " Paris.",
        first_document["data"]["id"],
    )
    stored_items = [item["id"] for item in items["data"]]
    assert [item[:4] for item in stored_items] == ["msg_"] * 2
    assert len({"msg_1", "msg_2", *stored_items}) == 4
    assert (stopped["data"]["status"], removed) == ("cancelled", {"ok": True, "data": None})
    requests = [(item.method, item.path) for item in upstream.requests[1:]]
    assert requests == [
        ("GET", "/v1/responses/resp_1?include%5B%5D=reasoning.encrypted_content"),
        ("GET", "/v1/responses/resp_1/input_items?limit=1&order=asc"),
        ("GET", "/v1/responses/resp_1/input_items?limit=1&order=asc&after=msg_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("DELETE", "/v1/responses/resp_1"),
    ]


async def test_what_is_not_served_is_said_to_it(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(answer(response()))
    [first_document] = await drive("openai", step("respond"))
    value = first_document["data"]["id"]

    unknown, later, repeated = await drive(
        "openai",
        {"do": "retrieve", "with": {"response_id": "resp_1"}},
        step("respond", background=True, store=False),
        {"do": "retrieve", "with": {"response_id": value, "stream": True}},
    )

    assert (unknown["exception"], unknown["param"]) == ("NotFoundError", "response_id")
    assert [document["exception"] for document in (later, repeated)] == ["BadRequestError"] * 2
    assert [document["param"] for document in (later, repeated)] == ["background", "stream"]
    assert len(upstream.requests) == 1


async def test_polls_background(drive: Drive, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    started = response(status="queued", background=True, output=[], usage=None)
    document = response(background=True)
    upstream.then(*map(answer, (started, {**started, "status": "in_progress"}, document, document)))

    [first_document] = await drive("openai", step("respond", background=True))
    values = {"response_id": first_document["data"]["id"]}
    requests = await drive("openai", *[{"do": "retrieve", "with": values}] * 3)

    statuses = [item["data"]["status"] for item in (first_document, *requests)]
    assert statuses == ["queued", "in_progress", "completed", "completed"]
    assert [item["text"] for item in requests] == ["", " Paris.", " Paris."]
    assert requests[1]["data"]["usage"]["total_tokens"] == 8
    records = await proxy.sink.wait(4)
    assert [record.billing.tokens.total for record in records] == [0, 0, 8, 0]
