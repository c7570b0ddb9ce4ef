"""Responses of the demo's model server: direct, through the proxy, and translated to chat."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Proxy
from tests.demo.test_messages import model, post, proxy
from tests.dialects.vendors.test_anthropic import events_of
from tests.sdks.conftest import Drive, drive, drivers, node_drivers

__all__ = ["drive", "drivers", "model", "node_drivers", "proxy"]

PATH = "/v1/responses"
REQUEST: dict[str, Any] = {
    "model": "smol",
    "max_output_tokens": 24,
    "temperature": 0,
    "input": "Name three colours.",
}


def text_of(document: dict[str, Any]) -> str:
    parts = [part for item in document["output"] for part in item.get("content") or ()]
    return "".join(part["text"] for part in parts if part["type"] == "output_text")


async def test_stream_is_equal_through_the_proxy(model: str, proxy: Proxy) -> None:
    models = {"smol": f"{model}{PATH}", "support-chat": PATH, "search-answers": PATH}
    replies = [
        await post(proxy, url, {**REQUEST, "stream": True, "model": to})
        for to, url in models.items()
    ]
    direct, same_api, translated = [events_of(reply.raw)[-1][1]["response"] for reply in replies]
    whole_response = (await post(proxy, PATH, {**REQUEST, "model": "support-chat"})).json

    assert text_of(direct).strip()
    for item in (same_api, translated, whole_response):
        assert text_of(item) == text_of(direct)
        assert item["usage"]["output_tokens"] == direct["usage"]["output_tokens"]


@pytest.mark.parametrize("sdk", ["openai", "openai-async"])
async def test_sdk_helper_reads_unnumbered_stream(
    sdk: str, model: str, proxy: Proxy, drive: Drive
) -> None:
    direct = events_of((await post(proxy, model + PATH, {**REQUEST, "stream": True})).raw)
    assert not any("output_index" in data or "sequence_number" in data for _, data in direct)
    step = {"do": "respond-stream", "with": {**REQUEST, "model": "support-chat"}}

    [result] = await drive(sdk, step)

    assert result["ok"], result
    assert result["text"] == text_of(direct[-1][1]["response"])
