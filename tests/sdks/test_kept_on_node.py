"""OpenAI's Node SDK uses stored responses and reads events without numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy, running_proxy, world
from tests.dialects.responses.test_items import NUMBERS, STREAM, drop_members
from tests.doubles import Json, ScriptedUpstream, answer, response, stream, text_item
from tests.sdks.conftest import Drive

REQUEST: Json = {"model": "support-chat", "input": "Where?"}


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    folder, secrets = tmp_path / "policies", ("a secret of replicas",)
    async with running_proxy(folder, world(upstream.url), id_secrets=secrets) as running:
        yield running


async def results(drive: Drive, *calls: list[Any]) -> list[Any]:
    [result] = await drive("node-openai-stored", {"do": "calls", "calls": calls})
    assert result["ok"], result
    results: list[Any] = result["results"]
    return results


def page(name: str, *, extra: bool) -> Json:
    content = [{"type": "input_text", "text": "Where?"}]
    item = {"id": name, "type": "message", "role": "user", "content": content}
    ends = {"first_id": name, "last_id": name, "has_more": extra}
    return {"object": "list", "data": [item], **ends}


async def test_works_with_stored_responses(drive: Drive, upstream: ScriptedUpstream) -> None:
    second = response(text_item(" Lyon."), id="resp_2", previous_response_id="resp_1")
    pages = page("msg_1", extra=True), page("msg_2", extra=False)
    deleted = {"id": "resp_1", "object": "response", "deleted": True}
    scripts = response(), second, response(), *pages, response(status="cancelled"), deleted
    upstream.then(*map(answer, scripts))

    first_value, value_after, read, items, cancelled, removed, unknown = await results(
        drive,
        ["responses.create", {**REQUEST, "store": True}],
        ["responses.create", {**REQUEST, "previous_response_id": "$1"}],
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


async def test_reads_unnumbered_events(drive: Drive, upstream: ScriptedUpstream) -> None:
    bare = stream([drop_members(event, *NUMBERS) for event in STREAM], is_done=False)
    upstream.then(bare, bare, stream(STREAM, is_done=False))

    events, gathered, numbered = await results(
        drive,
        ["responses.create", {**REQUEST, "stream": True}],
        ["responses.stream", REQUEST],
        ["responses.stream", REQUEST],
    )

    assert [item["sequence_number"] for item in events["data"]] == [*range(len(STREAM))]
    assert [item["type"] for item in gathered["output"]] == ["message", *["function_call"] * 2]
    assert gathered["output_text"] == "Let me see."
    assert gathered["output"] == numbered["output"]
