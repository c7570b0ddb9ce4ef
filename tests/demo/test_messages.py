"""The demo's own model server speaks Messages itself: what it says is the same direct, through the
proxy, and where a client of one form is served at its endpoint of the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.demo.serving import running_model
from proxy.settings import Address
from tests.conftest import KEY, Proxy, running_proxy, world
from tests.demo.test_model import installed_model
from tests.dialects.vendors.test_anthropic import accumulated, events_of
from tests.sdks.conftest import Drive, drive, drivers, node_drivers
from tests.servers import free_port

__all__ = ["drive", "drivers", "node_drivers"]

ASKED = {
    "model": "smol",
    "max_tokens": 24,
    "temperature": 0,
    "messages": [{"role": "user", "content": "Name three colours."}],
}
HEADERS = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}


@pytest.fixture
async def model() -> AsyncIterator[str]:
    """Run the real model and return its address."""
    address = Address("127.0.0.1", free_port())
    async with running_model(installed_model(address)):
        yield f"http://{address}"


@pytest.fixture
async def proxy(model: str, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(tmp_path / "policies", world(model)) as running:
        yield running


async def said(url: str, path: str, **options: Any) -> tuple[bytes, dict[str, str]]:
    async with (
        aiohttp.ClientSession(base_url=url) as client,
        client.post(path, headers=HEADERS, json=_without_nulls({**ASKED, **options})) as response,
    ):
        raw = await response.read()
        assert response.status == 200, raw
        return raw, {name.lower(): value for name, value in response.headers.items()}


def _without_nulls(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def message_of(raw: bytes) -> dict[str, Any]:
    return accumulated(events_of(raw))


async def test_a_stream_says_the_same_direct_through_the_proxy_and_across(
    model: str, proxy: Proxy
) -> None:
    direct = message_of((await said(model, "/v1/messages", stream=True))[0])
    own_document, crossing = [
        message_of((await said(proxy.url, "/v1/messages", stream=True, model=to))[0])
        for to in ("via-anthropic", "search-answers")
    ]

    assert direct["content"][0]["text"].strip()
    for document in (own_document, crossing):
        assert document["content"] == direct["content"]
        assert document["stop_reason"] == direct["stop_reason"] == "max_tokens"
        assert document["usage"]["output_tokens"] == direct["usage"]["output_tokens"]


async def test_a_whole_answer_is_of_the_types_that_the_sdk_knows_and_says_the_same(
    model: str, proxy: Proxy, drive: Drive
) -> None:
    request = {name: value for name, value in ASKED.items() if name != "temperature"}
    request["extra_body"] = {"temperature": 0}  # which the SDK has no more argument for
    steps = [{"do": "create", "with": {**request, "model": to}} for to in MODELS]

    [direct] = await drive("anthropic", {"do": "create", "with": request}, url=model)
    assert direct["ok"], direct
    own_document, crossing = await drive("anthropic", *steps)
    [streamed] = await drive("anthropic", {**steps[0], "do": "stream"})

    for document in (own_document, crossing, streamed):
        assert document["ok"], document
        assert document["text"] == direct["text"]
        assert document["blocks"][0].removeprefix("Parsed") == "TextBlock"
        assert (
            document["data"]["usage"]["output_tokens"] == direct["data"]["usage"]["output_tokens"]
        )


MODELS = ("via-anthropic", "search-answers")


async def test_a_chat_is_served_at_the_endpoint_of_messages(model: str, proxy: Proxy) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    texts, used = [], []
    for to in MODELS:
        async with (
            aiohttp.ClientSession(base_url=proxy.url, headers=headers) as client,
            client.post("/v1/chat/completions", json={**ASKED, "model": to}) as response,
        ):
            answer = await response.json()
            assert response.status == 200, answer
        texts.append(answer["choices"][0]["message"]["content"])
        used.append(answer["usage"]["completion_tokens"])

    assert texts[0] == texts[1] != ""
    assert used[0] == used[1]


async def test_tokens_are_counted_by_the_server_and_estimated_where_it_only_chats(
    model: str, proxy: Proxy
) -> None:
    body = {"max_tokens": None, "temperature": None}
    path = "/v1/messages/count_tokens"

    direct, _ = await said(model, path, **body)
    own_data, warned = await said(proxy.url, path, model="via-anthropic", **body)
    _, estimated = await said(proxy.url, path, model="search-answers", **body)

    assert own_data == direct
    assert "x-headrace-warning" not in warned
    assert "input_tokens estimated" in estimated["x-headrace-warning"]
