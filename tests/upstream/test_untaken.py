"""Calls that must be sent once go elsewhere after what proves that nothing was done, and after
nothing else: over sockets, a failure and a kind of call at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import running_proxy
from tests.dialects.test_leaning import house, policy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    answer,
    cut_before_head,
    response,
)
from tests.passthrough.world import BEARER, policies

Send = Callable[[], Awaitable[int]]
QUEUED = response(status="queued", background=True, output=[], usage=None)
TALK: Json = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}}


def error(status: int, **said: Any) -> Script:
    return answer({"error": {"message": "No.", **said}}, status)


UNTAKEN: dict[str, Script] = {
    "our key is wrong": error(401),
    "our account is empty": error(402),
    "our key may not": error(403),
    "no such model": error(404, code="model_not_found"),
    "no such model, under another status": error(400, code="model_not_found"),
    "no such path": error(404),
    "lost by a balancer": answer(b"<html>", 404, media_type="text/html"),
    "no such method": error(405),
    "too many requests": error(429),
    "not available": error(503),
    "overloaded": error(529),
}
TAKEN: dict[str, Script] = {
    "at fault": error(400),
    "out of time": error(408),
    "broken": error(500),
    "a bad gateway": error(502),
    "a gateway out of time": error(504),
    "no answer at all": cut_before_head(),
    "garbled": answer(b"{"),
    "moved": answer(b"", 307, "location: http://127.0.0.1:1/"),
}


@asynccontextmanager
async def leaning(
    folder: Path, upstream: ScriptedUpstream, path: str, said: Json, answered: Json
) -> AsyncIterator[Send]:
    told = policy(upstream.url).replace(", api_key", ", breaker: off, api_key")
    async with house(folder, upstream, told) as there:
        upstream.answer_with(answer(response()))
        await there.id_of()  # a connection rests
        upstream.answer_with(answer(answered))
        headers = {**BEARER, "x-headrace-deployment": "resilient"}

        async def send() -> int:
            async with there.session.post(path, headers=headers, json=said) as got:
                await got.read()
                return got.status

        yield send


@asynccontextmanager
async def passing(folder: Path, upstream: ScriptedUpstream) -> AsyncIterator[Send]:
    again = "{times: 1, on: [503], wait: 1ms}"
    spare = "[{upstream: openai, model: rerank-2, price: {input: 3, output: 0}}]"
    told = policies(upstream.url, retry=f"{again}\n    fallback: {spare}")
    told = told.replace("    timeouts:", "    breaker: off\n    timeouts:")
    async with (
        running_proxy(folder, told) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        upstream.answer_with(answer({"results": []}))

        async def send() -> int:
            async with client.post("/v1/moderations", headers=BEARER, json={"input": "x"}) as got:
                await got.read()
                return got.status

        assert await send() == 200  # a connection rests
        yield send


def made_in_the_background(folder: Path, upstream: ScriptedUpstream) -> Any:
    said = {"model": "primary", "input": "Go on.", "background": True}
    return leaning(folder, upstream, "/v1/responses", said, QUEUED)


def a_conversation(folder: Path, upstream: ScriptedUpstream) -> Any:
    return leaning(folder, upstream, "/v1/conversations", {}, TALK)


@pytest.mark.parametrize("kind", [made_in_the_background, a_conversation, passing])
async def test_what_must_be_sent_once_goes_elsewhere_where_nothing_was_done(
    kind: Callable[[Path, ScriptedUpstream], Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    seen: dict[str, tuple[bool, int]] = {}
    async with kind(tmp_path / "policies", upstream) as send:
        for name, script in (UNTAKEN | TAKEN).items():
            before = len(upstream.requests)
            upstream.then(script)
            status = await send()
            seen[name] = (status == 200, len(upstream.requests) - before)

    expected = {name: (True, 2) for name in UNTAKEN} | {name: (False, 1) for name in TAKEN}
    assert {name: each for name, each in seen.items() if each != expected[name]} == {}
