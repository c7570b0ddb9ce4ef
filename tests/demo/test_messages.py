"""Messages of the demo's model server: direct, through the proxy, and translated from chat."""

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

REQUEST = {
    "model": "smol",
    "max_tokens": 24,
    "temperature": 0,
    "messages": [{"role": "user", "content": "Name three colours."}],
}
MODELS = ("via-anthropic", "search-answers")
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


async def post(url: str, path: str, **options: Any) -> tuple[bytes, dict[str, str]]:
    body = {name: value for name, value in {**REQUEST, **options}.items() if value is not None}
    async with (
        aiohttp.ClientSession(base_url=url) as client,
        client.post(path, headers=HEADERS, json=body) as response,
    ):
        raw = await response.read()
        assert response.status == 200, raw
        return raw, {name.lower(): value for name, value in response.headers.items()}


def message_of(raw: bytes) -> dict[str, Any]:
    return accumulated(events_of(raw))


async def test_stream_is_equal_through_the_proxy(model: str, proxy: Proxy) -> None:
    direct = message_of((await post(model, "/v1/messages", stream=True))[0])
    same_api, translated = [
        message_of((await post(proxy.url, "/v1/messages", stream=True, model=to))[0])
        for to in MODELS
    ]

    assert direct["content"][0]["text"].strip()
    for document in (same_api, translated):
        assert document["content"] == direct["content"]
        assert document["stop_reason"] == direct["stop_reason"] == "max_tokens"
        assert document["usage"]["output_tokens"] == direct["usage"]["output_tokens"]


async def test_whole_response_has_sdk_types(model: str, proxy: Proxy, drive: Drive) -> None:
    request = {name: value for name, value in REQUEST.items() if name != "temperature"}
    request["extra_body"] = {"temperature": 0}  # the SDK has no argument for it
    steps = [{"do": "create", "with": {**request, "model": to}} for to in MODELS]

    [direct] = await drive("anthropic", {"do": "create", "with": request}, url=model)
    assert direct["ok"], direct
    same_api, translated = await drive("anthropic", *steps)
    [streamed] = await drive("anthropic", {**steps[0], "do": "stream"})

    for document in (same_api, translated, streamed):
        assert document["ok"], document
        assert document["text"] == direct["text"]
        assert document["blocks"][0].removeprefix("Parsed") == "TextBlock"
        usages = [reply["data"]["usage"]["output_tokens"] for reply in (document, direct)]
        assert usages[0] == usages[1]


async def test_chat_is_served_as_messages(model: str, proxy: Proxy) -> None:
    texts, output_tokens = [], []
    for to in MODELS:
        reply = await proxy.send("/v1/chat/completions", {**REQUEST, "model": to})
        assert reply.status == 200, reply.raw
        answer = reply.json
        texts.append(answer["choices"][0]["message"]["content"])
        output_tokens.append(answer["usage"]["completion_tokens"])

    assert texts[0] == texts[1] != ""
    assert output_tokens[0] == output_tokens[1]


async def test_tokens_are_counted_or_estimated(model: str, proxy: Proxy) -> None:
    body = {"max_tokens": None, "temperature": None}
    path = "/v1/messages/count_tokens"

    direct, _ = await post(model, path, **body)
    counted, headers = await post(proxy.url, path, model="via-anthropic", **body)
    _, estimate_headers = await post(proxy.url, path, model="search-answers", **body)

    assert counted == direct
    assert "x-headrace-warning" not in headers
    assert "input_tokens estimated" in estimate_headers["x-headrace-warning"]
