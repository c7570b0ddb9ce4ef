"""OpenAI's SDKs use stored conversations by the ids of the proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy, running_proxy, world
from tests.dialects.responses.test_conversations import ASKED, DELETED, PAGE, QUESTION, TALK
from tests.doubles import Json, ScriptedUpstream, answer, response
from tests.sdks.conftest import Drive

ITEMS: Json = {"items": [QUESTION]}
TO = {"x-headrace-deployment": "support-chat"}
TURN: Json = {"model": "support-chat", "input": "Where?"}
ANSWER = response(conversation={"id": "conv_1"})


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    folder, secrets = tmp_path / "policies", ("a secret of replicas",)
    async with running_proxy(folder, world(upstream.url), id_secrets=secrets) as running:
        yield running


def step(method: str, *of: str, **fields: Any) -> Json:
    return {"do": "call", "method": method, "of": of, "with": fields}


async def test_pythons_has_a_whole_conversation(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(*map(answer, (TALK, PAGE)))
    [document] = await drive("openai", step("conversations.create", **ITEMS, extra_headers=TO))
    assert document["ok"], document
    value = document["data"]["id"]
    [added] = await drive("openai", step("conversations.items.create", value, **ITEMS))
    item = added["data"]["data"][0]["id"]
    upstream.then(*map(answer, (ANSWER, TALK, TALK, PAGE, ASKED, TALK, DELETED)))

    observed = await drive(
        "openai",
        {"do": "respond", "with": {**TURN, "conversation": value}},
        step("conversations.retrieve", value),
        step("conversations.update", value, metadata={"a": "b"}),
        step("conversations.items.list", value, limit=1, order="asc"),
        step("conversations.items.retrieve", item, conversation_id=value),
        step("conversations.items.delete", item, conversation_id=value),
        step("conversations.delete", value),
        step("conversations.retrieve", "conv_1"),
    )

    assert all(each["ok"] for each in observed[:-1]), observed
    turn, read, changed, listed, single_document, remaining, removed, unknown = observed
    assert (turn["text"], turn["data"]["conversation"]) == (" Paris.", {"id": value})
    assert [each["data"]["id"] for each in (read, changed, remaining, removed)] == [value] * 4
    assert [each["kind"] for each in (read, single_document, removed)] == [
        *("Conversation", "Message", "ConversationDeletedResource")
    ]
    assert [each["id"] for each in (*listed["data"]["data"], single_document["data"])] == [item] * 2
    assert (unknown["exception"], unknown["param"]) == ("NotFoundError", "conversation_id")
    position = "/v1/conversations"
    assert [(each.method, each.path) for each in upstream.requests] == [
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


async def test_nodes_has_one_too(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(*map(answer, (TALK, ANSWER, PAGE, TALK, DELETED)))
    calls = [
        ["conversations.create", ITEMS, {"headers": TO}],
        ["responses.create", {**TURN, "conversation": {"id": "$1"}}],
        ["conversations.items.list", "$1", {"limit": 1}],
        ["conversations.retrieve", "$1"],
        ["conversations.delete", "$1"],
        ["responses.create", {**TURN, "conversation": "conv_1"}],
    ]

    [result] = await drive("node-openai-stored", {"do": "calls", "calls": calls})

    assert result["ok"], result
    made, turn, listed, read, removed, unknown = result["results"]
    value = made["id"]
    assert (turn["output_text"], turn["conversation"]) == (" Paris.", {"id": value})
    assert [item["id"][:4] for item in listed["data"]] == ["msg_"]
    assert (read["id"], removed["id"], removed["deleted"]) == (value, value, True)
    assert unknown == {"status": 404, "param": "conversation"}
