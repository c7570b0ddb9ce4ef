"""Counters in a cluster: on one of its servers, together, also while that changes."""

from __future__ import annotations

import asyncio
import signal
import time
from uuid import uuid4

from proxy.limits.kinds import KINDS
from proxy.limits.stores.redis_script import ClaimEncoder
from proxy.limits.stores.store import CounterStore
from proxy.types.limit import Limit
from proxy.types.windows import Calendar
from tests.limits.conftest import shared
from tests.limits.stores.test_failover import instance
from tests.limits.world import MONTH, PLACES, REQUESTS, claims
from tests.servers import Cluster, Member

BUDGET = Limit("budget", KINDS["usd"], 1_000_000, Calendar("month"))
CALLS = 500


def owner(cluster: Cluster) -> Member:
    return cluster.owner(_key())


async def test_concurrent_calls_share_a_cluster_trip(shared_cluster: Cluster) -> None:
    call_claims = claims((REQUESTS, 0), (BUDGET, 1), (PLACES, 0))
    async with shared(shared_cluster) as store:
        await store.read(call_claims)
        trips_before = {member.port: member.trips() for member in shared_cluster.members}
        await asyncio.gather(*(store.admit(f"call-{n}", call_claims) for n in range(128)))
        document = {m.port: m.trips() - trips_before[m.port] for m in shared_cluster.members}

    assert document.pop(owner(shared_cluster).port) <= 4
    assert set(document.values()) == {0}


async def test_while_their_slot_moves_calls_are_counted_once(cluster: Cluster) -> None:
    """It is as if the store was away for a moment: with keys on both sides no script runs."""
    call_claims, to = claims((BUDGET, 100), (PLACES, 0)), _other(cluster)

    async def call(store: CounterStore, number: int) -> None:
        assert (await store.admit(f"call-{number}", call_claims)).admitted
        await store.settle(f"call-{number}", [3, 0])

    async with instance(cluster) as node:
        moving = asyncio.ensure_future(asyncio.to_thread(cluster.move, _key(), to))
        result = 0
        while result < CALLS or not moving.done():
            await asyncio.gather(*(call(node.store, result + n) for n in range(50)))
            result += 50
        await moving
        await node.recovered()

        assert owner(cluster) is to
        standings = await node.store.read(call_claims)
        assert [standing.used for standing in standings] == [3 * result, 0]
        assert (node.store.in_flight, node.remote.in_flight, node.store.dropped) == (0, 0, 0)


async def test_replica_takes_over_hanging_server(cluster: Cluster) -> None:
    call_claims, prefix = claims((MONTH, 1), (PLACES, 1)), uuid4().hex
    first_member = owner(cluster)
    replica = cluster.replica(first_member)
    async with instance(cluster, prefix, replicas=2) as node, instance(cluster, prefix, 2) as two:
        for number in range(10):
            await node.store.admit(f"call-{number}", call_claims)
        await asyncio.gather(*(node.store.settle(f"call-{n}", [1, 0]) for n in range(5)))
        cluster.replicated(first_member, replica)
        first_member.signal(signal.SIGSTOP)
        await asyncio.gather(*(node.store.settle(f"call-{n}", [1, 0]) for n in range(5, 10)))
        await node.degrade()
        await two.degrade()
        assert (await two.store.admit("alone", call_claims)).admitted
        await two.store.settle("alone", [1, 0])

        await asyncio.gather(node.recovered(), two.recovered())

        standings = await two.store.read(call_claims)
        assert [standing.used for standing in standings] == [11, 0]
        first_member.signal(signal.SIGCONT)


def _key() -> str:
    return ClaimEncoder(time.time).keys("", ())[0]


def _other(cluster: Cluster) -> Member:
    first_member = owner(cluster)
    return next(member for member in cluster.members if member is not first_member)
