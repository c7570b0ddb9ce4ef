"""Encoding of keys and claims, and batching of script calls."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from proxy.limits.kinds import KINDS
from proxy.limits.stores.redis_script import MAX_WAITING, Batcher, ClaimEncoder, Reply, ScriptCall
from proxy.limits.stores.store import CounterStore, StoreUnavailable
from proxy.types.limit import Limit
from proxy.types.windows import Calendar
from tests.for_each import for_each
from tests.limits.conftest import shared
from tests.limits.sample_limits import MONTH, PLACES, REQUESTS, Clock, claims
from tests.limits.stores.test_failover import instance
from tests.servers import Cluster, Member, eventually


@dataclass
class Trips:
    """Requests of each round trip. ``go`` lets trips end, ``failing`` makes them fail."""

    requests: list[list[str]] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    failing: bool = False

    async def trip(self, questions: Sequence[ScriptCall]) -> list[Reply]:
        self.requests.append([question.text for question in questions])
        self.started.set()
        await self.go.wait()
        if self.failing:
            return [StoreUnavailable("down")] * len(questions)
        return [[int(question.text)] for question in questions]


def ask(batcher: Batcher, *texts: str) -> list[asyncio.Future[Sequence[int]]]:
    return [batcher.submit(ScriptCall(("key",), text)) for text in texts]


async def test_calls_during_a_trip_share_the_next() -> None:
    trips = Trips()
    async with Batcher(trips.trip) as batcher:
        first_futures = ask(batcher, "1")
        await trips.started.wait()
        remainder = ask(batcher, "2", "3", "4")
        trips.go.set()

        assert await asyncio.gather(*first_futures, *remainder) == [[1], [2], [3], [4]]

    assert trips.requests == [["1"], ["2", "3", "4"]]


async def test_piggybacked_calls_precede_the_next_call() -> None:
    trips = Trips()
    trips.go.set()
    async with Batcher(trips.trip) as batcher:
        replies: list[Reply] = []
        for text in "12":
            batcher.submit_lingering(ScriptCall(("key",), text), replies.append)

        assert await ask(batcher, "3")[0] == [3]
        assert replies == [[1], [2]]

    assert trips.requests == [["1", "2", "3"]]


async def test_piggybacked_calls_are_sent_alone_and_on_exit() -> None:
    trips = Trips()
    trips.go.set()
    async with Batcher(trips.trip) as batcher:
        replies: list[Reply] = []
        batcher.submit_lingering(ScriptCall(("key",), "1"), replies.append)
        await eventually(lambda: replies == [[1]])
        batcher.submit_lingering(ScriptCall(("key",), "2"), replies.append)

    assert replies == [[1], [2]]
    assert trips.requests == [["1"], ["2"]]


async def test_calls_queued_behind_a_failed_trip_fail() -> None:
    trips = Trips(failing=True)
    async with Batcher(trips.trip) as batcher:
        first_futures = ask(batcher, "1")
        await trips.started.wait()
        futures = ask(batcher, "2")
        trips.go.set()
        result = await asyncio.gather(*first_futures, *futures, return_exceptions=True)

        assert [type(item) for item in result] == [StoreUnavailable] * 2
        trips.failing = False
        assert await ask(batcher, "3")[0] == [3]

    assert trips.requests == [["1"], ["3"]]


async def test_cancelled_call_does_not_affect_others_of_its_trip() -> None:
    trips = Trips()
    async with Batcher(trips.trip) as batcher:
        future, stays = ask(batcher, "1", "2")
        future.cancel()
        trips.go.set()

        assert await stays == [2]


async def test_exit_sends_queued_calls_and_refuses_new_ones() -> None:
    trips = Trips()
    trips.go.set()
    async with Batcher(trips.trip) as batcher:
        last_futures = ask(batcher, "1")

    assert await last_futures[0] == [1]
    with pytest.raises(StoreUnavailable):
        ask(batcher, "2")


async def test_queue_is_bounded() -> None:
    batcher = Batcher(Trips().trip)
    ask(batcher, *["1"] * MAX_WAITING)

    with pytest.raises(StoreUnavailable):
        ask(batcher, "2")


@for_each("scope", ["key:support-widget", "", "user:}", "user:{x}", "user:{}"])
def test_keys_share_one_hash_tag(scope: str) -> None:
    call_claims = claims((REQUESTS, 1), (PLACES, 1), scope=scope)

    keys = ClaimEncoder(Clock().seconds).encode_keys("call-1", call_claims)

    assert len(set(keys)) == 3
    assert {key[key.index("{") + 1 : key.index("}")] for key in keys} == {"limits"}


BUDGET = Limit("budget", KINDS["usd"], 1_000_000, Calendar("month"))
CALLS = 500


def owner(cluster: Cluster) -> Member:
    return cluster.owner(_key())


async def test_concurrent_calls_share_a_cluster_trip(shared_cluster: Cluster) -> None:
    call_claims = claims((REQUESTS, 0), (BUDGET, 1), (PLACES, 0))
    async with shared(shared_cluster) as store:
        await store.read(call_claims)
        trips_before = {member.port: member.script_calls() for member in shared_cluster.members}
        await asyncio.gather(*(store.admit(f"call-{n}", call_claims) for n in range(128)))
        document = {m.port: m.script_calls() - trips_before[m.port] for m in shared_cluster.members}

    assert document.pop(owner(shared_cluster).port) <= 4
    assert set(document.values()) == {0}


async def test_calls_are_counted_once_during_slot_migration(cluster: Cluster) -> None:
    """No script runs while keys of a slot are on two members, so the store seems unavailable."""
    call_claims, to = claims((BUDGET, 100), (PLACES, 0)), _other_member(cluster)

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
        assert (node.store.in_flight, node.remote.in_flight, node.store.dropped_updates) == (
            0,
            0,
            0,
        )


async def test_replica_takes_over_hanging_server(cluster: Cluster) -> None:
    call_claims, prefix = claims((MONTH, 1), (PLACES, 1)), uuid4().hex
    first_member = owner(cluster)
    replica = cluster.replica(first_member)
    async with instance(cluster, prefix, replicas=2) as node, instance(cluster, prefix, 2) as two:
        for number in range(10):
            await node.store.admit(f"call-{number}", call_claims)
        await asyncio.gather(*(node.store.settle(f"call-{n}", [1, 0]) for n in range(5)))
        cluster.wait_for_replica(first_member, replica)
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
    return ClaimEncoder(time.time).encode_keys("", ())[0]


def _other_member(cluster: Cluster) -> Member:
    first_member = owner(cluster)
    return next(member for member in cluster.members if member is not first_member)
