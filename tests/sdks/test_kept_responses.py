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
