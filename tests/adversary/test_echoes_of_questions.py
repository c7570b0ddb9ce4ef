"""A response that repeats its request shows no user the identity of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cache.test_cache_call import all_in, gated
from tests.cache.world import Cached, cached_proxy, until_asked
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    answer,
    item_events,
    response,
    response_events,
    stream,
    text_item,
)
from tests.test_pipeline import BEARER

ITEM = text_item("Let me see.")


def of(who: str) -> Json:
    return {"user": who, "metadata": {"for": who}, "safety_identifier": f"safe-{who}"}


def answering(gate: asyncio.Event, *, streamed: bool) -> Script:
    """Answer the first call as an upstream does that repeats all of its question."""
    document = response(ITEM, **of("anna"))
    events = response_events(item_events(0, ITEM, "Let me ", "see."), document=document)
    if streamed:
        return stream(events, is_done=False, gate=gate)
    return gated(gate, answer(document))


@pytest.fixture
async def cached(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Cached]:
    async with cached_proxy(tmp_path / "policies", upstream) as running:
        yield running


@pytest.mark.parametrize("streamed", [True, False])
async def test_echo_is_own(streamed: bool, cached: Cached, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(answering(gate, streamed=streamed))
    request: Json = {"model": "gpt-4o-mini", "input": "Hi", "stream": streamed}
    users = ("anna", "bertha", "carla")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        tasks = []
        for who in users[:2]:
            body = {**request, **of(who)}
            tasks.append(group.create_task(cached.post("/v1/responses", BEARER, body)))
            await until_asked(upstream, 1)
        await all_in(cached, 2)
        gate.set()
    answers = [task.result() for task in tasks]
    answers.append(await cached.post("/v1/responses", BEARER, {**request, **of(users[2])}))

    assert [result for _, result, _ in answers] == ["miss", "coalesced", "hit"]
    assert len(upstream.requests) == 1
    for who, (status, _, raw) in zip(users, answers, strict=True):
        assert status == 200
        assert b"safe-" + who.encode() in raw
        assert not any(other_user.encode() in raw for other_user in users if other_user != who)
