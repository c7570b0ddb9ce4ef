"""However many streams a key has at once, and however fast their upstreams send, a call of another
key waits for little more than one of them: of words, and of what makes no word.

The measure is the processor time of the loop's own thread while the other's call is served. What
seems too long is tried again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.adversary.loops import upstream_aside
from tests.conftest import KEY, running_proxy, world
from tests.doubles import PATIENCE_S, Asked, Wire, answer, chat, chat_events, event, head

ONE, OTHER = KEY, "hr-search-key"
STREAMS = 80
MOST_S = 0.5  # it was 1.3 s and more where each of them had its turn in each round of the loop
TRIES = 4
FLOODS = {
    "words": b"".join(map(event, chat_events(*["word "] * 2000)[1:-2])),
    "events that say nothing": event({"choices": []}) * 2000,
    "comments": b": still here\n\n" * 4000,
}


def body(model: str) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}]}


async def flooded(url: str) -> None:
    headers = {"Authorization": f"Bearer {ONE}"}
    request = {**body("support-chat"), "stream": True}
    async with (
        ClientSession() as client,
        client.post(f"{url}/v1/chat/completions", headers=headers, json=request) as response,
    ):
        async for _ in response.content.iter_any():
            pass


async def other(url: str) -> int:
    headers = {"Authorization": f"Bearer {OTHER}"}
    async with (
        ClientSession() as client,
        client.post(
            f"{url}/v1/chat/completions", headers=headers, json=body("search-answers")
        ) as response,
    ):
        await response.read()
        return response.status


@pytest.mark.parametrize("kind", FLOODS)
async def test_they_hold_up_no_call_of_another(kind: str, tmp_path: Path) -> None:
    streaming, all_stream = 0, threading.Event()

    async def script(request: Asked, wire: Wire) -> None:
        nonlocal streaming
        if not request.json.get("stream"):
            await answer(chat())(request, wire)
            return
        streaming += 1
        if streaming == STREAMS:
            all_stream.set()
        await wire.send(head(200, "text/event-stream", "connection: close"))
        while not request.closed.is_set():
            await wire.send(FLOODS[kind])

    took: list[float] = []
    async with (
        upstream_aside(script) as (other_loop, url),
        running_proxy(tmp_path / "policies", world(url)) as proxy,
    ):
        reading = [
            asyncio.ensure_future(other_loop.run(flooded(proxy.url))) for _ in range(STREAMS)
        ]
        try:
            assert await asyncio.to_thread(all_stream.wait, PATIENCE_S)
            while not took or (took[-1] >= MOST_S and len(took) < TRIES):
                started_at = time.thread_time()
                assert await other_loop.run(other(proxy.url)) == 200
                took.append(time.thread_time() - started_at)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    assert took[-1] < MOST_S, took
