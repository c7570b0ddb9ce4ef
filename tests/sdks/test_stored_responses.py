"""OpenAI's SDKs continue stored responses and conversations by the ids that the proxy gave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy, policies_for, running_proxy
from tests.dialects.responses.test_conversations import PAGE, QUESTION, TALK, USER_ITEM
from tests.dialects.responses.test_id_fields import DELETED
from tests.dialects.responses.test_items import NUMBERS, STREAM, drop_members
from tests.doubles import (
    Json,
    ScriptedUpstream,
    item_events,
    respond,
    response,
    response_events,
    stream,
    text_item,
)
from tests.sdks.conftest import Drive
from tests.sdks.upstream_scripts import thought_events


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    secrets = ("a secret of replicas",)
    folder = tmp_path / "policies"
    async with running_proxy(folder, policies_for(upstream.url), id_secrets=secrets) as running:
        yield running


def step(do: str, **body: Any) -> dict[str, Any]:
    return {"do": do, "with": {"model": "support-chat", "input": "Where?", **body}}


async def test_conversation_continues_by_its_id(drive: Drive, upstream: ScriptedUpstream) -> None:
    document = response(text_item(" Paris."), id="resp_2", previous_response_id="resp_1")
    events = response_events(item_events(0, text_item(" Paris."), " Par", "is."), document=document)
    upstream.then(respond(response()), respond(document), stream(events, is_done=False))

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


async def test_missing_response_raises_not_found(drive: Drive, upstream: ScriptedUpstream) -> None:
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


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("sdk", ["ai-sdk-openai", "openai-agents"])
async def test_tool_loop_with_client_defaults(
    sdk: str, streamed: bool, drive: Drive, upstream: ScriptedUpstream
) -> None:
    fields, last_document = text_item("Let me see."), text_item(" Paris.", "msg_2")
    first_document, second = response(THOUGHT, fields, CALL), response(last_document, id="resp_2")
    if streamed:
        items = [thought_events(THOUGHT), item_events(1, fields, "Let me ", "see.")]
        calls = item_events(2, CALL, CALL["arguments"])
        ended = response_events(item_events(0, last_document, " Par", "is."), document=second)
        upstream.then(
            stream(response_events(*items, calls, document=first_document), is_done=False)
        )
        upstream.then(stream(ended, is_done=False))
    else:
        upstream.then(respond(first_document), respond(second))

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


async def test_stored_responses_are_usable(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(response()))
    [first_document] = await drive("openai", step("respond"))
    values = {"response_id": first_document["data"]["id"]}
    pages = page("msg_1", extra=True), page("msg_2", extra=False)
    deleted = {"id": "resp_1", "object": "response", "deleted": True}
    cancelled = response(status="cancelled")
    upstream.then(*map(respond, (response(), *pages, cancelled, deleted)))

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


async def test_unsupported_call_has_a_clear_error(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(response()))
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


async def test_background_response_is_polled(
    drive: Drive, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    started = response(status="queued", background=True, output=[], usage=None)
    document = response(background=True)
    upstream.then(
        *map(respond, (started, {**started, "status": "in_progress"}, document, document))
    )

    [first_document] = await drive("openai", step("respond", background=True))
    values = {"response_id": first_document["data"]["id"]}
    requests = await drive("openai", *[{"do": "retrieve", "with": values}] * 3)

    statuses = [item["data"]["status"] for item in (first_document, *requests)]
    assert statuses == ["queued", "in_progress", "completed", "completed"]
    assert [item["text"] for item in requests] == ["", " Paris.", " Paris."]
    assert requests[1]["data"]["usage"]["total_tokens"] == 8
    records = await proxy.sink.wait(4)
    assert [record.billing.tokens.total for record in records] == [0, 0, 8, 0]


ITEMS: Json = {"items": [QUESTION]}
TO = {"x-headrace-deployment": "support-chat"}
TURN: Json = {"model": "support-chat", "input": "Where?"}
ANSWER = response(conversation={"id": "conv_1"})


def step_of(method: str, *of: str, **fields: Any) -> Json:
    return {"do": "call", "method": method, "of": of, "with": fields}


async def test_python_client_keeps_conversation(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(*map(respond, (TALK, PAGE)))
    [document] = await drive("openai", step_of("conversations.create", **ITEMS, extra_headers=TO))
    assert document["ok"], document
    value = document["data"]["id"]
    [added] = await drive("openai", step_of("conversations.items.create", value, **ITEMS))
    item = added["data"]["data"][0]["id"]
    upstream.then(*map(respond, (ANSWER, TALK, TALK, PAGE, USER_ITEM, TALK, DELETED)))

    observed = await drive(
        "openai",
        {"do": "respond", "with": {**TURN, "conversation": value}},
        step_of("conversations.retrieve", value),
        step_of("conversations.update", value, metadata={"a": "b"}),
        step_of("conversations.items.list", value, limit=1, order="asc"),
        step_of("conversations.items.retrieve", item, conversation_id=value),
        step_of("conversations.items.delete", item, conversation_id=value),
        step_of("conversations.delete", value),
        step_of("conversations.retrieve", "conv_1"),
    )

    assert all(item["ok"] for item in observed[:-1]), observed
    turn, read, changed, listed, single_document, remaining, removed, unknown = observed
    assert (turn["text"], turn["data"]["conversation"]) == (" Paris.", {"id": value})
    assert [item["data"]["id"] for item in (read, changed, remaining, removed)] == [value] * 4
    assert [item["kind"] for item in (read, single_document, removed)] == [
        *("Conversation", "Message", "ConversationDeletedResource")
    ]
    assert [item["id"] for item in (*listed["data"]["data"], single_document["data"])] == [item] * 2
    assert (unknown["exception"], unknown["param"]) == ("NotFoundError", "conversation_id")
    position = "/v1/conversations"
    assert [(item.method, item.path) for item in upstream.requests] == [
        ("POST", position),
        ("POST", f"{position}/conv_1/items"),
        ("POST", "/v1/responses"),
        ("GET", f"{position}/conv_1"),
        ("POST", f"{position}/conv_1"),
        ("GET", f"{position}/conv_1/items?limit=1&order=asc"),
        ("GET", f"{position}/conv_1/items/msg_a1"),
        ("DELETE", f"{position}/conv_1/items/msg_a1"),
        ("DELETE", f"{position}/conv_1"),
    ]


async def results(drive: Drive, *calls: list[Any]) -> list[Any]:
    [result] = await drive("node-openai-stored", {"do": "calls", "calls": calls})
    assert result["ok"], result
    results: list[Any] = result["results"]
    return results


async def test_node_client_keeps_conversation(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(*map(respond, (TALK, ANSWER, PAGE, TALK, DELETED)))

    conversation, turn, listed, read, removed, unknown = await results(
        drive,
        ["conversations.create", ITEMS, {"headers": TO}],
        ["responses.create", {**TURN, "conversation": {"id": "$1"}}],
        ["conversations.items.list", "$1", {"limit": 1}],
        ["conversations.retrieve", "$1"],
        ["conversations.delete", "$1"],
        ["responses.create", {**TURN, "conversation": "conv_1"}],
    )

    value = conversation["id"]
    assert (turn["output_text"], turn["conversation"]) == (" Paris.", {"id": value})
    assert [item["id"][:4] for item in listed["data"]] == ["msg_"]
    assert (read["id"], removed["id"], removed["deleted"]) == (value, value, True)
    assert unknown == {"status": 404, "param": "conversation"}


def page(name: str, *, extra: bool) -> Json:
    content = [{"type": "input_text", "text": "Where?"}]
    item = {"id": name, "type": "message", "role": "user", "content": content}
    ends = {"first_id": name, "last_id": name, "has_more": extra}
    return {"object": "list", "data": [item], **ends}


async def test_node_client_uses_stored_responses(drive: Drive, upstream: ScriptedUpstream) -> None:
    second = response(text_item(" Lyon."), id="resp_2", previous_response_id="resp_1")
    pages = page("msg_1", extra=True), page("msg_2", extra=False)
    deleted = {"id": "resp_1", "object": "response", "deleted": True}
    scripts = response(), second, response(), *pages, response(status="cancelled"), deleted
    upstream.then(*map(respond, scripts))

    first_value, value_after, read, items, cancelled, removed, unknown = await results(
        drive,
        ["responses.create", {**TURN, "store": True}],
        ["responses.create", {**TURN, "previous_response_id": "$1"}],
        ["responses.retrieve", "$1", {"include": ["reasoning.encrypted_content"]}],
        ["responses.inputItems.list", "$1", {"limit": 1, "order": "asc"}],
        ["responses.cancel", "$1"],
        ["responses.delete", "$1"],
        ["responses.retrieve", "resp_1"],
    )

    value = first_value["id"]
    assert value not in ("resp_1", value_after["id"])
    assert (value_after["output_text"], value_after["previous_response_id"]) == (" Lyon.", value)
    assert (read["id"], read["output_text"]) == (value, " Paris.")
    assert len({"msg_1", "msg_2", *(request["id"] for request in items["data"])}) == 4
    assert (cancelled["id"], cancelled["status"]) == (value, "cancelled")
    assert (removed["id"], removed["deleted"]) == (value, True)
    assert unknown == {"status": 404, "param": "response_id"}
    assert upstream.requests[0].json["store"] is True
    assert upstream.requests[1].json["previous_response_id"] == "resp_1"
    assert [(request.method, request.path) for request in upstream.requests[2:]] == [
        ("GET", "/v1/responses/resp_1?include%5B%5D=reasoning.encrypted_content"),
        ("GET", "/v1/responses/resp_1/input_items?limit=1&order=asc"),
        ("GET", "/v1/responses/resp_1/input_items?limit=1&order=asc&after=msg_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("DELETE", "/v1/responses/resp_1"),
    ]


async def test_unnumbered_events_are_read(drive: Drive, upstream: ScriptedUpstream) -> None:
    bare = stream([drop_members(event, *NUMBERS) for event in STREAM], is_done=False)
    upstream.then(bare, bare, stream(STREAM, is_done=False))

    events, gathered, numbered = await results(
        drive,
        ["responses.create", {**TURN, "stream": True}],
        ["responses.stream", TURN],
        ["responses.stream", TURN],
    )

    assert [item["sequence_number"] for item in events["data"]] == [*range(len(STREAM))]
    assert [item["type"] for item in gathered["output"]] == ["message", *["function_call"] * 2]
    assert gathered["output_text"] == "Let me see."
    assert gathered["output"] == numbered["output"]
