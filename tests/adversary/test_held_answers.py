"""Responses that guards hold share one bound of bytes, and every end releases them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.conftest import Proxy, running_proxy, world
from tests.doubles import (
    Asked,
    Json,
    ScriptedUpstream,
    Wire,
    chat_events,
    event,
    head,
    item_events,
    response_events,
    text_item,
)
from tests.test_pipeline import BEARER

SIZE = 100_000
EVENTS = chat_events("x" * SIZE)


def under(guard: str) -> str:
    return f"\npolicies: {{default: {{match: all, output: [{{guard: {guard}}}]}}}}\n"


RETRY = under("keywords, words: [zqforbidden], action: retry")
DOCUMENT = {
    "a judged one": under("length, characters: 1000000, action: block"),
    "a counted one": under("sponge, action: flag"),
    "a pattern without end": under("keywords, patterns: ['zq.*forbidden'], action: mask"),
    "a context": under("grounded, action: block"),
}
PASSING = under("keywords, words: [zqforbidden], action: block")


async def held(proxy: Proxy, client: ClientSession) -> float:
    lines = (await proxy.metrics()).splitlines()
    [line] = [line for line in lines if line.startswith("headrace_answer_body_bytes ")]
    return float(line.split()[1])


CHAT = "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}
RESPONSES = "/v1/responses", {"input": "Hi"}


async def status_of(
    proxy: Proxy,
    client: ClientSession,
    *,
    stream: bool,
    requests: tuple[str, Json] = CHAT,
    model: str = "support-chat",
) -> int:
    path, question = requests
    body = {**question, "model": model, "stream": stream}
    async with client.post(f"{proxy.url}{path}", headers=BEARER, json=body) as response:
        if response.status == 503:
            assert (await response.json())["error"]["code"] == "overloaded"
        await response.read()
        return response.status


def unfinished(go_on: asyncio.Event, *, stream: bool, events: Sequence[Json] = EVENTS) -> object:
    """Answer with most of an answer, and with its end once that is wanted."""

    async def script(request: Asked, wire: Wire) -> None:
        if stream:
            first_data, last_data = (
                b"".join(map(event, events[:-1])),
                event(events[-1]) + event(b"[DONE]"),
            )
            kind = "text/event-stream"
        else:
            first_data = b'{"choices":[{"index":0,"message":{"content":"' + b"x" * SIZE
            last_data, kind = b'"},"finish_reason":"stop"}]}', "application/json"
        length = f"content-length: {len(first_data) + len(last_data)}"
        await wire.send(head(200, kind, length) + first_data)
        await go_on.wait()
        await wire.send(last_data)

    return script


@pytest.mark.parametrize(
    ("policies", "stream", "bounded"),
    [
        *(("", False, True), (RETRY, False, True), (RETRY, True, True), ("", True, False)),
        *((PASSING, True, False), *((policies, True, True) for policies in DOCUMENT.values())),
    ],
    ids=[
        *("whole", "whole under a guard", "a stream that is kept", "a stream"),
        *("a stream that a guard follows", *DOCUMENT),
    ],
)
async def test_answers_that_are_held_have_one_bound(
    policies: str, stream: bool, bounded: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    go_on = asyncio.Event()
    upstream.answer_with(unfinished(go_on, stream=stream))  # type: ignore[arg-type]
    async with running_proxy(
        tmp_path / "p", world(upstream.url) + policies, answers_bytes=5 * SIZE
    ) as proxy:
        calls = [
            asyncio.ensure_future(status_of(proxy, proxy.client, stream=stream)) for _ in range(4)
        ]
        if bounded:
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert 0 < await held(proxy, proxy.client) <= 5 * SIZE // 2
        go_on.set()
        statuses = sorted(await asyncio.gather(*calls))
        records = await proxy.sink.wait(4)
        assert await held(proxy, proxy.client) == 0

        assert await status_of(proxy, proxy.client, stream=stream) == 200
    assert statuses == ([200, 200, 503, 503] if bounded else [200] * 4)
    refused = [record for record in records if record.status == 503]
    assert all(
        record.outcome == "proxy_error" and not record.is_internal_error for record in refused
    )
    assert all(fate.loss for record in refused for _, fate, bill in record.billing.attempts if bill)


FIELDS = response_events(item_events(0, text_item("x"), "x" * SIZE))


@pytest.mark.parametrize(
    ("model", "events"), [("support-chat", FIELDS), ("search-answers", EVENTS)], ids=["own", "chat"]
)
async def test_a_stream_that_ends_with_all_it_has_said_is_held_till_then(
    model: str, events: Sequence[Json], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    go_on = asyncio.Event()
    upstream.answer_with(unfinished(go_on, stream=True, events=events))  # type: ignore[arg-type]
    policies = tmp_path / "p", world(upstream.url)
    async with running_proxy(*policies, answers_bytes=6 * SIZE) as proxy:
        calls = [
            asyncio.ensure_future(
                status_of(proxy, proxy.client, stream=True, requests=RESPONSES, model=model)
            )
            for _ in range(4)
        ]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert 0 < await held(proxy, proxy.client) <= 3 * SIZE
        go_on.set()
        statuses = sorted(await asyncio.gather(*calls))
        await proxy.sink.wait(4)

        assert await held(proxy, proxy.client) == 0
    assert statuses[0] == 200
    assert statuses[-1] == 503
