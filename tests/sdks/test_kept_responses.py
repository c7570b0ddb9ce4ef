"""OpenAI's own SDK leans on responses that their provider keeps, by the ids that the proxy gave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy, running_proxy, world
from tests.doubles import (
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
    whole = response(text_item(" Paris."), id="resp_2", previous_response_id="resp_1")
    events = response_events(item_events(0, text_item(" Paris."), " Par", "is."), whole=whole)
    upstream.then(answer(response()), answer(whole), stream(events, done=False))

    [first] = await drive("openai", step("respond"))
    given = first["data"]["id"]
    second, third = await drive(
        "openai",
        step("respond", previous_response_id=given),
        step("respond-stream", previous_response_id=given),
    )

    for each in (second, third):
        assert (each["ok"], each["text"]) == (True, " Paris."), each
        assert each["data"]["previous_response_id"] == given
        assert each["data"]["id"] not in (given, "resp_2")
    assert second["data"]["id"] == third["data"]["id"]
    assert [each.json.get("previous_response_id") for each in upstream.requests] == [
        None,
        "resp_1",
        "resp_1",
    ]


async def test_it_raises_what_is_not_found(drive: Drive, upstream: ScriptedUpstream) -> None:
    [unknown] = await drive("openai", step("respond", previous_response_id="resp_1"))

    assert (unknown["exception"], unknown["status"]) == ("NotFoundError", 404)
    assert unknown["param"] == "previous_response_id"
    assert upstream.requests == []


async def test_it_reads_cancels_and_deletes_what_is_kept(
    drive: Drive, upstream: ScriptedUpstream
) -> None:
    upstream.then(answer(response()))
    [first] = await drive("openai", step("respond"))
    given = {"response_id": first["data"]["id"]}
    content = [{"type": "input_text", "text": "Where?"}]
    pages = [
        {
            "object": "list",
            "data": [{"id": name, "type": "message", "role": "user", "content": content}],
            "first_id": name,
            "last_id": name,
            "has_more": more,
        }
        for name, more in (("msg_1", True), ("msg_2", False))
    ]
    deleted = {"id": "resp_1", "object": "response", "deleted": True}
    cancelled = response(status="cancelled")
    upstream.then(*map(answer, (response(), *pages, cancelled, deleted)))

    read, items, stopped, gone = await drive(
        "openai",
        {"do": "retrieve", "with": {**given, "include": ["reasoning.encrypted_content"]}},
        {"do": "items", "with": {**given, "limit": 1, "order": "asc"}},
        {"do": "cancel", "with": given},
        {"do": "delete", "with": given},
    )

    assert (read["ok"], read["text"], read["data"]["id"]) == (True, " Paris.", first["data"]["id"])
    assert [each["id"] for each in items["data"]] == ["msg_1", "msg_2"]
    assert (stopped["data"]["status"], gone) == ("cancelled", {"ok": True, "data": None})
    asked = [(each.method, each.path) for each in upstream.requests[1:]]
    assert asked == [
        ("GET", "/v1/responses/resp_1?include%5B%5D=reasoning.encrypted_content"),
        ("GET", "/v1/responses/resp_1/input_items?limit=1&order=asc"),
        ("GET", "/v1/responses/resp_1/input_items?limit=1&order=asc&after=msg_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("DELETE", "/v1/responses/resp_1"),
    ]


async def test_what_is_not_served_is_said_to_it(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(answer(response()))
    [first] = await drive("openai", step("respond"))
    given = first["data"]["id"]

    unknown, later, talk, again = await drive(
        "openai",
        {"do": "retrieve", "with": {"response_id": "resp_1"}},
        step("respond", background=True),
        step("respond", conversation="conv_1"),
        {"do": "retrieve", "with": {"response_id": given, "stream": True}},
    )

    assert (unknown["exception"], unknown["param"]) == ("NotFoundError", "response_id")
    assert [each["exception"] for each in (later, talk, again)] == ["BadRequestError"] * 3
    assert [each["param"] for each in (later, talk, again)] == [
        "background",
        "conversation",
        "stream",
    ]
    assert len(upstream.requests) == 1
