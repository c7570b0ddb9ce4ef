"""Responses with too much nesting or too many values are a 502."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.conftest import running_proxy, world
from tests.doubles import Asked, ScriptedUpstream, Wire, answer, head
from tests.test_pipeline import BEARER

POLICIES = """
policies:
  default:
    match: all
    cache: {ttl: 1h}
    output: [{guard: keywords, words: [zqforbidden], action: mask}]
"""
CHOICE = (
    '{"choices":[{"index":0,"PART":{"role":"assistant","content":CONTENT},"finish_reason":"stop"'
)
PLACES = {
    "content": CHOICE.replace("CONTENT", "DEEP") + "}]}",
    "choice": CHOICE.replace("CONTENT", '"ok"') + ',"x":DEEP}]}',
    "top": CHOICE.replace("CONTENT", '"ok"') + '}],"x":DEEP}',
}
DEPTHS = [240, 250, 260, 300, 900, 1100, 5000]


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


async def status_of(upstream: ScriptedUpstream, tmp_path: Path, text: str, streamed: bool) -> int:
    async def events(request: Asked, wire: Wire) -> None:
        event = f"data: {text}\n\ndata: [DONE]\n\n".encode()
        await wire.send(head(200, "text/event-stream", f"content-length: {len(event)}") + event)

    upstream.answer_with(events if streamed else answer(text.encode()))
    body = {
        "model": "search-answers",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": streamed,
    }
    async with running_proxy(tmp_path / "policies", world(upstream.url) + POLICIES) as proxy:
        async with proxy.client.post("/v1/chat/completions", headers=BEARER, json=body) as response:
            status = response.status
            await response.read()
        repeated = {**body, "stream": not streamed}
        async with proxy.client.post(
            "/v1/chat/completions", headers=BEARER, json=repeated
        ) as response:
            assert response.status in (200, 502)
            await response.read()
        records = await proxy.sink.wait(2)
    assert all(record.error is None or record.error.status == 502 for record in records)
    return status


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("place", PLACES)
async def test_depth_is_the_upstreams_fault(
    place: str, depth: int, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    part = "delta" if streamed else "message"
    text = PLACES[place].replace("PART", part).replace("DEEP", nested(depth))

    status = await status_of(upstream, tmp_path, text, streamed)

    assert status in ((200, 502) if depth < 254 else (502,))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_excess_values(streamed: bool, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    part = "delta" if streamed else "message"
    choice = {"index": 0, part: {"content": "ok"}, "finish_reason": "stop"}
    text = orjson.dumps({"choices": [choice], "x": [0] * 1_000_001}).decode()

    assert await status_of(upstream, tmp_path, text, streamed) == 502
