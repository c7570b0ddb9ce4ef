"""Responses of the demo's model server: direct, through the proxy, and translated to chat."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from tests.conftest import KEY, Proxy
from tests.demo.test_messages import model, proxy
from tests.dialects.vendors.test_anthropic import events_of
from tests.sdks.conftest import Drive, drive, drivers, node_drivers

__all__ = ["drive", "drivers", "model", "node_drivers", "proxy"]

REQUEST: dict[str, Any] = {
    "model": "smol",
    "max_output_tokens": 24,
    "temperature": 0,
    "input": "Name three colours.",
}


async def post(url: str, **options: Any) -> bytes:
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(base_url=url, headers=headers) as client,
        client.post("/v1/responses", json={**REQUEST, **options}) as response,
    ):
        raw = await response.read()
        assert response.status == 200, raw
        return raw


def text_of(document: dict[str, Any]) -> str:
    parts = [part for item in document["output"] for part in item.get("content") or ()]
    return "".join(part["text"] for part in parts if part["type"] == "output_text")


async def test_stream_is_equal_through_the_proxy(model: str, proxy: Proxy) -> None:
    direct, same_api, translated = [
        events_of(await post(url, stream=True, model=to))[-1][1]["response"]
        for url, to in (
            (model, "smol"),
            (proxy.url, "support-chat"),
            (proxy.url, "search-answers"),
        )
    ]

    whole_response = json.loads(await post(proxy.url, model="support-chat"))

    assert text_of(direct).strip()
    for item in (same_api, translated, whole_response):
        assert text_of(item) == text_of(direct)
        assert item["usage"]["output_tokens"] == direct["usage"]["output_tokens"]


@pytest.mark.parametrize("sdk", ["openai", "openai-async"])
async def test_sdk_helper_reads_unnumbered_stream(
    sdk: str, model: str, proxy: Proxy, drive: Drive
) -> None:
    direct = events_of(await post(model, stream=True))
    assert not any("output_index" in data or "sequence_number" in data for _, data in direct)
    step = {"do": "respond-stream", "with": {**REQUEST, "model": "support-chat"}}

    [result] = await drive(sdk, step)

    assert result["ok"], result
    assert result["text"] == text_of(direct[-1][1]["response"])
