"""Calls, some cancelled by their clients, while a shared store is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from proxy.call.record import new_record
from proxy.errors import BudgetExceeded
from proxy.limits import Limiter
from proxy.limits.claims import estimate_claims
from proxy.limits.stores.failover import FailoverStore
from proxy.limits.stores.redis import RedisStore
from proxy.runtime.redis import create_client
from proxy.types import CacheRule, Call, Plan, RequestHead, ScopedLimit
from proxy.types.limit import Claim
from tests.limits.sample_limits import MONTH, PLACES, claims
from tests.limits.stores.slow_wire import slow_wire
from tests.limits.stores.test_failover import instance
from tests.servers import Server, eventually

PAUSE_S = 0.15
TIMEOUT_S = 0.1
ROOMY = replace(PLACES, amount=1000)
MONEY = replace(MONTH, amount=10**9)
REQUEST = claims((ROOMY, 1), (MONEY, 10))
CLOSED = claims((replace(ROOMY, on_store_error="closed"), 1))


async def used(store: FailoverStore, call_claims: Sequence[Claim] = REQUEST) -> list[int]:
    return [standing.used for standing in await store.read(call_claims)]


async def admit_and_cancel(store: FailoverStore, name: str, turns: int) -> None:
    """Start a call and cancel it after ``turns`` iterations of the event loop."""
    call = asyncio.ensure_future(store.admit(name, REQUEST))
    for _ in range(turns):
        await asyncio.sleep(0)
    call.cancel()
    try:
        await call
    except asyncio.CancelledError:
        await store.settle_unused(name)
    else:
        await store.settle(name, [0, 0])


async def test_leaving_clients_release_leases_of_slow_store(server: Server) -> None:
    async with slow_wire(server.port) as wire, instance(wire) as node:
        store = node.store
        for number in range(20):
            await store.read(REQUEST)  # open the connection
            pause = asyncio.ensure_future(wire.pause(PAUSE_S))
            await asyncio.sleep(0)
            await asyncio.gather(
                *(admit_and_cancel(store, f"{number}-{n}", 2 * n) for n in range(8))
            )
            await pause
        await eventually(lambda: not store.pending_count and not store.is_degraded)

        assert await used(store) == [0, 0]
        assert store.in_flight == 0
        assert store.dropped_updates == 0


async def test_short_pause_refuses_nothing_and_is_one_failure(server: Server) -> None:
    async with slow_wire(server.port) as wire, instance(wire) as node:
        store = node.store

        async def call(number: int) -> bool:
            await asyncio.sleep(0.001 * (number % 300))  # spread the arrivals
            admitted = (await store.admit(f"call-{number}", CLOSED)).admitted
            await store.settle(f"call-{number}", [0])
            return admitted

        pause = asyncio.ensure_future(wire.pause(PAUSE_S))
        admitted = await asyncio.gather(*map(call, range(600)))
        await pause

        assert admitted.count(False) == 0
        assert node.transitions == []
        await eventually(lambda: not store.pending_count)
        assert await used(store, CLOSED) == [0]


async def test_busy_event_loop_is_no_store_failure(server: Server) -> None:
    async with (
        slow_wire(server.port) as wire,
        RedisStore(
            create_client(wire.at.urls, TIMEOUT_S, cluster=wire.at.cluster), time.time, uuid4().hex
        ) as store,
    ):
        for number in range(8):
            call = asyncio.ensure_future(store.admit(f"call-{number}", CLOSED))
            for _ in range(number):
                await asyncio.sleep(0)
            time.sleep(3 * TIMEOUT_S)  # noqa: ASYNC251  # block the event loop
            assert (await call).admitted


async def test_exit_sends_pending_settlements(server: Server) -> None:
    prefix = uuid4().hex
    async with slow_wire(server.port) as wire:
        async with instance(wire, prefix) as node:
            store = node.store
            for number in range(20):
                await store.admit(f"call-{number}", REQUEST)
            wire.hold()
            for number in range(20):
                await store.settle(f"call-{number}", [0, 3])
            await eventually(lambda: store.pending_count == 20)
            asyncio.get_running_loop().call_later(PAUSE_S, wire.release)
            await store.close()

        async with instance(wire, prefix) as other_node:
            assert await used(other_node.store) == [0, 60]


async def test_leases_of_killed_instance_expire(server: Server) -> None:
    """One instance stops renewing. The other renews its leases, also during a pause."""
    short = claims((replace(ROOMY, lease_s=1), 1))
    prefix = uuid4().hex
    async with (
        slow_wire(server.port) as wire,
        instance(wire, prefix) as living_node,
        instance(wire, prefix) as killed_node,
    ):
        living, killed = living_node.store, killed_node.store
        await living.admit("living", short)
        await killed.admit("killed", short)
        assert await used(living, short) == [2]

        started_at = time.monotonic()
        while time.monotonic() < started_at + 1.2:
            await living.renew()
            await wire.pause(PAUSE_S)

        assert await used(living, short) == [1]
        await living.settle("living", [0])
        assert await used(living, short) == [0]
        await living.renew()
        assert await used(living, short) == [0]


async def test_cacheable_call_over_budget_leaves_no_debt(server: Server) -> None:
    limit = replace(MONTH, amount=10, on_store_error="closed")
    bounds = (ScopedLimit(limit), ScopedLimit(replace(ROOMY, on_store_error="closed")))
    head = RequestHead("openai", "completions", "/v1/completions", "r", call_id="one-call")
    plan = Plan("r", "widget", "chat", {}, (), limits=bounds, cache=CacheRule(60))
    async with slow_wire(server.port) as wire, instance(wire) as node:
        store = node.store
        [claim] = [item for item in estimate_claims(plan, Call(head, {})) if item.limit is limit]
        await store.restore([replace(claim, amount=50)])
        admission = Limiter(store, lambda standing: None)
        pause = asyncio.ensure_future(wire.pause(TIMEOUT_S + 0.02))
        await asyncio.sleep(0)

        async with admission.make_reservation(plan, Call(head, {}), new_record()) as permit:
            await pause
            with pytest.raises(BudgetExceeded):
                permit.raise_deferred_refusal()
        await eventually(lambda: not store.pending_count and not store.is_degraded)

        assert store.has_all_updates
