"""Concurrent equal calls share one request, despite disconnects and failures."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from tests.cache.cached_proxy import RULE, Cached, until_asked
from tests.cache.stores import until
from tests.doubles import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    event,
    gated,
    hang,
    head,
    http_chunk,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.server.test_exchange import stable_value
from tests.test_pipeline import BEARER, ROUTES, reply_text

ROUTE = ROUTES["openai"]
HERD = 200
COST = 5 * 150 + 3 * 600
FORMS = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
Answered = tuple[int, str, bytes]


def good(*, streamed: bool, **how: Any) -> Script:
    return stream(legacy_events(" Par", "is."), **how) if streamed else respond(legacy_completion())


async def ask(cached: Cached, *, streamed: bool, **body: Any) -> Answered:
    return await cached.post(ROUTE.path, BEARER, ROUTE.body(streamed=streamed, **body))


async def wait_until_served(cached: Cached, calls: int) -> None:
    """Wait until ``calls`` calls are being served."""

    async def served() -> bool:
        return len(cached.calls._tasks) == calls

    await until(served)


async def wait_for_disconnect(cached: Cached) -> None:
    """Wait until the proxy notices a disconnect."""

    async def is_known() -> bool:
        return any(task.cancelling() for task in cached.calls._tasks)

    await until(is_known)


async def call_concurrently(
    cached: Cached, gate: asyncio.Event, *, streamed: bool, size: int = HERD
) -> list[Answered]:
    """Make equal concurrent calls. The upstream responds once all have arrived."""
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(ask(cached, streamed=streamed)) for _ in range(size)]
        await wait_until_served(cached, size)
        gate.set()
    return [task.result() for task in asking]


@FORMS
async def test_two_hundred_equal_calls_make_one_request(
    streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, good(streamed=streamed)))

    answers = await call_concurrently(cached, gate, streamed=streamed)

    assert len(upstream.requests) == 1
    assert sorted(result for _, result, _ in answers) == ["coalesced"] * (HERD - 1) + ["miss"]
    assert len({(status, body) for status, _, body in answers}) == 1
    records = await cached.sink.wait(HERD)
    assert sum(record.billing.cost for record in records) == COST
    assert sum(record.saved.cost for record in records if record.saved) == COST * (HERD - 1)
    assert {record.outcome for record in records} == {"success"}
    assert cached.counted('headrace_cache_lookups_total{result="coalesced"}') == HERD - 1
    assert (await ask(cached, streamed=streamed))[1] == "hit"


async def test_wait_for_leader_is_not_overhead(cached: Cached, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, good(streamed=False)))
    opened = asyncio.get_running_loop().call_later(0.5, gate.set)

    await asyncio.gather(*(ask(cached, streamed=False) for _ in range(5)))

    opened.cancel()
    assert cached.counted('headrace_overhead_seconds_sum{deployment="support-chat"}') < 0.4


async def test_upstream_flag_reaches_listeners(cached: Cached, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, respond(legacy_completion(), 246)))
    headers = {**ROUTES["portkey"].credential, "x-portkey-virtual-key": "via-portkey"}
    body = ROUTE.body(streamed=False)
    responses = asyncio.gather(*(cached.post(ROUTE.path, headers, body) for _ in range(2)))
    await wait_until_served(cached, 2)
    gate.set()
    answers = [*await responses, await cached.post(ROUTE.path, headers, body)]

    assert [status for status, _, _ in answers] == [246, 246, 246]
    assert sorted(result for _, result, _ in answers) == ["coalesced", "miss", "miss"]


async def test_late_listener_gets_all_chunks(cached: Cached, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(good(streamed=True, gate=gate))
    async with cached.client.post(
        ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=True)
    ) as leader:
        first_data = await leader.content.readany()
        listener = asyncio.gather(ask(cached, streamed=True))
        await wait_until_served(cached, 2)
        gate.set()
        full_body = first_data + await leader.content.read()

    [(status, result, body)] = await listener
    assert (status, result, body) == (200, "coalesced", full_body)
    assert reply_text(ROUTE, body, streamed=True) == " Paris."


async def test_timeout_or_form_prevents_sharing(cached: Cached, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, respond(legacy_completion())))
    scale = ROUTES["scale-5"]
    bodies: list[dict[str, Any]] = [{}, {"inference_timeout": 5}, {"stream": True}]
    async with asyncio.TaskGroup() as group:
        for other_body in bodies:
            body = scale.body(streamed=False, **other_body)
            group.create_task(cached.post(scale.path, scale.credential, body))
        await until_asked(upstream, 3)
        gate.set()

    assert len(upstream.requests) == 3


def long(counted: list[int]) -> Script:
    """Stream twenty megabytes and count the sent pieces."""
    values = [*[event(legacy_events("x" * 20_000)[0])] * 1000, event(legacy_events("")[-2])]

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        for data in values:
            await wire.send(http_chunk(data))
            counted[0] += 1
        await wire.send(http_chunk(event(b"[DONE]")), b"0\r\n\r\n")

    return script


async def test_slow_client_delays_no_other(cached: Cached, upstream: ScriptedUpstream) -> None:
    cached.rule(replace(RULE, max_bytes=100_000_000))
    upstream.answer_with(long([0]))
    async with aiohttp.ClientSession(base_url=cached.url, read_bufsize=1024) as slow:
        stuck = await slow.post(ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=True))
        status, result, raw = await ask(cached, streamed=True)
        stuck.close()

    assert (status, result) == (200, "coalesced")
    assert len(reply_text(ROUTE, raw, streamed=True)) == 20_000_000


async def test_oversize_response_is_not_held(cached: Cached, upstream: ScriptedUpstream) -> None:
    cached.rule(replace(RULE, max_bytes=2_000_000))
    counted = [0]
    upstream.answer_with(long(counted))
    async with aiohttp.ClientSession(base_url=cached.url, read_bufsize=1024) as slow:
        stuck = await slow.post(ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=True))
        listener = asyncio.gather(ask(cached, streamed=True))
        await stable_value(lambda: counted[0])
        assert counted[0] < 900
        stuck.close()
        [(status, result, raw)] = await listener

    assert (status, result) == (200, "coalesced")
    assert len(reply_text(ROUTE, raw, streamed=True)) == 20_000_000


async def test_oversize_response_is_not_shared(cached: Cached, upstream: ScriptedUpstream) -> None:
    cached.rule(replace(RULE, max_bytes=1000))
    gate = asyncio.Event()
    upstream.answer_with(stream(legacy_events("x" * 2000, "y"), gate=gate))
    async with cached.client.post(
        ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=True)
    ) as leader:
        await leader.content.readany()
        listener = asyncio.gather(ask(cached, streamed=True))
        await until_asked(upstream, 2)
        gate.set()
        await leader.content.read()

    assert [result for _, result, _ in await listener] == ["miss"]


async def test_shutdown_ends_all_listeners(cached: Cached, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    calls = asyncio.gather(*(ask(cached, streamed=False) for _ in range(5)))
    await wait_until_served(cached, 5)
    await until_asked(upstream, 1)

    await cached.calls.drain(0.05)

    assert {status for status, *_ in await calls} == {503}
    records = await cached.sink.wait(5)
    assert {record.outcome for record in records} == {"proxy_error"}
    assert len(upstream.requests) == 1


async def test_max_age_refreshes_older_entries(cached: Cached, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(legacy_completion("old")), respond(legacy_completion("new")))
    await ask(cached, streamed=False)
    cached.clock.now += 10

    body = ROUTE.body(streamed=False)
    young = {**BEARER, "cache-control": "max-age=5"}
    asking = [cached.post(ROUTE.path, h, body) for h in (young, BEARER, young)]
    answers = await asyncio.gather(*asking)
    results = [(r, reply_text(ROUTE, b, streamed=False)) for _, r, b in answers]

    assert results[1][1] in ("old", "new")
    assert ("refresh", "new") in results
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("seed", range(4))
async def test_each_call_is_billed_once(
    seed: int, cached: Cached, upstream: ScriptedUpstream
) -> None:
    """Clients disconnect and upstreams fail at random moments."""
    chance = random.Random(seed)  # noqa: S311  # no cryptography

    async def moody(request: ReceivedRequest, wire: Wire) -> None:
        mood = chance.random()
        streamed = request.json.get("stream") is True
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0.001)
        if mood < 0.2:
            await respond({"error": {"message": "x"}}, 500)(request, wire)
        elif mood < 0.4 and streamed:
            await stream(legacy_events(*"abcd"), cut_after=2)(request, wire)
        else:
            await good(streamed=streamed)(request, wire)

    async def run_call(number: int) -> None:
        streamed = chance.random() < 0.5
        patience = chance.choice([0.005, 0.02, 5, 5])
        headers = {**BEARER, "cache-control": chance.choice(["", "", "no-cache", "no-store"])}
        body = ROUTE.body(streamed=streamed, seed=chance.randrange(3))
        await asyncio.sleep(chance.random() * 0.1)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                status, _, raw = await cached.post(ROUTE.path, headers, body)
                assert status in (200, 502), raw
                if status == 200 and b'"error"' not in raw:
                    assert reply_text(ROUTE, raw, streamed=streamed) == " Paris."

    upstream.answer_with(moody)
    await asyncio.gather(*(run_call(number) for number in range(150)))
    await wait_until_served(cached, 0)

    records = cached.sink.records
    attempts = [attempt for record in records for attempt in record.attempts]
    answered = [attempt for attempt in attempts if attempt.status is not None]
    assert len(answered) <= len(upstream.requests) <= len(attempts)  # some disconnected before
    assert all(r.billing.cost == 0 for r in records if r.cache in ("hit", "coalesced"))
    assert all(not record.attempts for record in records if record.saved)
