"""Places are leased for seconds: the living renew theirs, the killed do not."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from proxy.limits.kinds import KINDS
from proxy.limits.stores.leases import renewing
from proxy.types.limit import LEASE_S, RENEW_S, Limit
from tests.cli.test_init import serving
from tests.conftest import world
from tests.doubles import ScriptedUpstream, answer, hang, legacy
from tests.limits.world import Clock, claims
from tests.servers import Server
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]
ONE = "\npolicies: {default: {limits: [{name: at-once, concurrency: 1}]}}\n"


async def test_a_call_that_outlasts_its_lease_keeps_its_place() -> None:
    clock, asked = Clock(), claims((Limit("at-once", KINDS["concurrency"], 1), 1))
    store = clock.memory()
    await store.admit("long", asked)
    passed = asyncio.Event()

    async def sleep(seconds: float) -> None:
        clock.ms += int(seconds * 1000)
        if clock.seconds() > Clock().seconds() + 10 * LEASE_S:
            passed.set()
        await asyncio.sleep(0)

    task = asyncio.ensure_future(renewing(store, sleep))
    await passed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not (await store.admit("other", asked)).admitted


def test_two_renewals_may_fail() -> None:
    assert RENEW_S * 3 <= LEASE_S


async def test_a_process_that_is_killed_leaves_places_that_come_free(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    """The lease itself is let pass by moving its end, as the server keeps it."""
    upstream.then(hang())
    upstream.answer_with(answer(legacy()))
    shared = {"HEADRACE_REDIS_URL": server.url, "HEADRACE_SECRET": "0123456789abcdef"}
    body = ROUTE.body(streamed=False)
    async with aiohttp.ClientSession(headers=BEARER) as client:
        async with serving(tmp_path / "one", world(upstream.url) + ONE, **shared) as (served, url):
            asking = asyncio.ensure_future(client.post(url + ROUTE.path, json=body))
            await upstream.came.wait()
            served.process.send_signal(signal.SIGKILL)
            with pytest.raises(aiohttp.ClientError):
                await asking
        [key] = server.told("KEYS", "*concurrency*").split()
        place = server.told("ZRANGE", key, 0, -1)
        ends = float(server.told("ZSCORE", key, place))
        now = int(server.told("TIME").split()[0])
        assert ends / 1000 - now <= LEASE_S + 1  # the clock tells whole seconds

        async with serving(tmp_path / "two", world(upstream.url) + ONE, **shared) as (_, url):
            async with client.post(url + ROUTE.path, json=body) as response:
                assert response.status == 429
            server.told("ZADD", key, now * 1000, place)
            async with client.post(url + ROUTE.path, json=body) as response:
                assert response.status == 200
