"""Messages and Responses of the demo's model server, direct, translated and through the proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.demo.serving import run_model_server
from proxy.settings import Address
from tests.conftest import KEY, Proxy, Reply, policies_for, running_proxy
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
HEADERS = {"authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}


@pytest.fixture
async def model() -> AsyncIterator[str]:
    """Run the real model and return its address."""
    address = Address("127.0.0.1", free_port())
    async with run_model_server(installed_model(address)):
        yield f"http://{address}"


@pytest.fixture
async def proxy(model: str, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(tmp_path / "policies", policies_for(model)) as running:
        yield running


async def post(proxy: Proxy, url: str, body: dict[str, Any]) -> Reply:
    reply = await proxy.send(url, body, HEADERS)
    assert reply.status == 200, reply.raw
    return reply


async def test_stream_is_equal_through_the_proxy(model: str, proxy: Proxy) -> None:
    paths = {"smol": f"{model}/v1/messages"} | dict.fromkeys(MODELS, "/v1/messages")
    replies = [
        await post(proxy, url, {**REQUEST, "stream": True, "model": to})
        for to, url in paths.items()
    ]
    direct, same_api, translated = [accumulated(events_of(reply.raw)) for reply in replies]

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


async def test_tokens_are_counted_or_estimated(model: str, proxy: Proxy) -> None:
    path, body = "/v1/messages/count_tokens", {"messages": REQUEST["messages"]}

    direct = await post(proxy, model + path, {**body, "model": "smol"})
    counted, estimate = [await post(proxy, path, {**body, "model": to}) for to in MODELS]

    assert counted.raw == direct.raw
    assert "x-headrace-warning" not in counted.headers
    assert "input_tokens estimated" in estimate.headers["x-headrace-warning"]


PATH = "/v1/responses"
RESPONSES_REQUEST: dict[str, Any] = {
    "model": "smol",
    "max_output_tokens": 24,
    "temperature": 0,
    "input": "Name three colours.",
}


def text_of(document: dict[str, Any]) -> str:
    parts = [part for item in document["output"] for part in item.get("content") or ()]
    return "".join(part["text"] for part in parts if part["type"] == "output_text")


async def test_responses_stream_is_equal_through_the_proxy(model: str, proxy: Proxy) -> None:
    models = {"smol": f"{model}{PATH}", "support-chat": PATH, "search-answers": PATH}
    replies = [
        await post(proxy, url, {**RESPONSES_REQUEST, "stream": True, "model": to})
        for to, url in models.items()
    ]
    direct, same_api, translated = [events_of(reply.raw)[-1][1]["response"] for reply in replies]
    whole_response = (await post(proxy, PATH, {**RESPONSES_REQUEST, "model": "support-chat"})).json

    assert text_of(direct).strip()
    for item in (same_api, translated, whole_response):
        assert text_of(item) == text_of(direct)
        assert item["usage"]["output_tokens"] == direct["usage"]["output_tokens"]


@pytest.mark.parametrize("sdk", ["openai", "openai-async"])
async def test_sdk_helper_reads_unnumbered_stream(
    sdk: str, model: str, proxy: Proxy, drive: Drive
) -> None:
    direct = events_of((await post(proxy, model + PATH, {**RESPONSES_REQUEST, "stream": True})).raw)
    assert not any("output_index" in data or "sequence_number" in data for _, data in direct)
    step = {"do": "respond-stream", "with": {**RESPONSES_REQUEST, "model": "support-chat"}}

    [result] = await drive(sdk, step)

    assert result["ok"], result
    assert result["text"] == text_of(direct[-1][1]["response"])
