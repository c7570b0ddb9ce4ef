"""The demo's own model server speaks Responses itself: what it says is the same direct, through the
proxy, and where a client of it is served by a chat."""

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

ASKED: dict[str, Any] = {
    "model": "smol",
    "max_output_tokens": 24,
    "temperature": 0,
    "input": "Name three colours.",
}


async def asked(url: str, **options: Any) -> bytes:
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(base_url=url, headers=headers) as client,
        client.post("/v1/responses", json={**ASKED, **options}) as answered,
    ):
        raw = await answered.read()
        assert answered.status == 200, raw
        return raw


def text_of(document: dict[str, Any]) -> str:
    parts = [part for item in document["output"] for part in item.get("content") or ()]
    return "".join(part["text"] for part in parts if part["type"] == "output_text")


async def test_a_stream_says_the_same_direct_through_the_proxy_and_across(
    model: str, proxy: Proxy
) -> None:
    direct, own_value, crossing = [
        events_of(await asked(url, stream=True, model=to))[-1][1]["response"]
        for url, to in (
            (model, "smol"),
            (proxy.url, "support-chat"),
            (proxy.url, "search-answers"),
        )
    ]

    full_value = json.loads(await asked(proxy.url, model="support-chat"))

    assert text_of(direct).strip()
    for item in (own_value, crossing, full_value):
        assert text_of(item) == text_of(direct)
        assert item["usage"]["output_tokens"] == direct["usage"]["output_tokens"]


@pytest.mark.parametrize("sdk", ["openai", "openai-async"])
async def test_the_sdks_own_helper_reads_a_stream_without_numbers(
    sdk: str, model: str, proxy: Proxy, drive: Drive
) -> None:
    direct = events_of(await asked(model, stream=True))
    assert not any("output_index" in data or "sequence_number" in data for _, data in direct)
    asks = {"do": "respond-stream", "with": {**ASKED, "model": "support-chat"}}

    [observed] = await drive(sdk, asks)

    assert observed["ok"], observed
    assert observed["text"] == text_of(direct[-1][1]["response"])
