"""Bills of background responses in Redis, and bounds of limits in memory."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from importlib.resources import files
from itertools import product
from uuid import uuid4

import pytest
from redis.exceptions import ResponseError

from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MIN_SWEEP_SIZE
from proxy.limits.stores.redis import RedisStore
from proxy.limits.stores.redis_script import to_call_json
from proxy.limits.stores.store import BillingOwners, LedgerRun
from proxy.runtime.redis import create_client
from proxy.types.limit import LEASE_S, Limit
from proxy.types.windows import Calendar
from tests.limits.conftest import shared
from tests.limits.sample_limits import MONTH, PLACES, REQUESTS, Clock, claims, run_sync
from tests.limits.stores.held_server import HeldServer
from tests.servers import Server


async def test_bill_lives_until_booked_or_orphaned(server: Server) -> None:
    def bills() -> list[tuple[bytes, bool]]:
        with server.admin as admin:
            keys = sorted(admin.keys("*:billed:*"))
            return [(admin.get(key), admin.ttl(key) > LEASE_S) for key in keys]

    prefix, dead = uuid4().hex, [""]
    first_run, other_run = LedgerRun("id", "a1"), LedgerRun("other", "b2", lambda: tuple(dead))
    async with (
        shared(server, prefix=prefix, ledger=first_run) as store,
        shared(server, prefix=prefix, ledger=other_run) as two,
        shared(server, prefix=prefix) as excluded,
    ):
        for name in ("booked", "charged"):
            assert await store.claim_bill(name, "call-1")
            assert await store.claim_bill(name, "call-1")  # the same call may repeat its request
        await store.mark_bill_booked("booked")
        assert bills() == [(b"booked a1 call-1", True), (b"charged a1 call-1", False)]
        for name in ("booked", "charged"):
            assert not await two.claim_bill(name, "call-2")
            assert not await excluded.claim_bill(name, "call-3")

        dead.append("a1")
        assert not await two.claim_bill("booked", "call-2")
        assert await two.claim_bill("charged", "call-2")
        await store.renew()  # by an instance whose lease had expired
        await store.mark_bill_booked("charged")
        assert bills() == [(b"booked a1 call-1", True), (b"charged b2 call-2", False)]
    assert [text for text, _ in bills()] == [b"booked a1 call-1", b"booked b2 call-2"]


@pytest.mark.parametrize("answered_first", [0, 1])
@pytest.mark.parametrize("verbs", list(product(["book", "renew"], repeat=2)), ids="-".join)
async def test_concurrent_bookings_of_a_bill_all_succeed(
    verbs: tuple[str, str], answered_first: int, shared_server: Server
) -> None:
    server = HeldServer(create_client(shared_server.at.urls, 5.0, cluster=shared_server.at.cluster))
    prefix, ledger = uuid4().hex, LedgerRun("id", "a1")
    async with RedisStore(server, time.time, prefix, ledger=ledger) as store:
        assert await store.claim_bill("one", "call-1")
        server.is_holding = True
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number, verb in enumerate(verbs, 1):
                work = store.mark_bill_booked("one") if verb == "book" else store.renew()
                tasks.append(group.create_task(work))
                await server.wait(number)
            server.gates[answered_first].set()
            await asyncio.wait([tasks[answered_first]])
            server.gates[1 - answered_first].set()
        server.is_holding = False
        await store.mark_bill_booked("one")
    with shared_server.admin as admin:
        assert admin.get(f"{prefix}:billed:one") == b"booked a1 call-1"


async def test_bills_are_bounded_and_renewed_after_calls(shared_server: Server) -> None:
    server = HeldServer(create_client(shared_server.at.urls, 5.0, cluster=shared_server.at.cluster))
    prefix, ledger = uuid4().hex, LedgerRun("id", "a1")
    async with RedisStore(server, time.time, prefix, ledger=ledger, max_bills=2) as store:
        for number in range(4):
            assert await store.claim_bill(f"bill-{number}", "call")
        await store.admit("call", claims((PLACES, 1)))
        server.commands.clear()
        await store.renew()
        assert [command[:9] for command in server.commands] == ['["renew",', *['["charged'] * 2]
        with shared_server.admin as admin:
            states = [admin.get(f"{prefix}:billed:bill-{number}").split()[0] for number in range(4)]
        assert states == [b"charged", b"charged", b"booked", b"booked"]


async def test_bill_of_an_earlier_version_is_booked(server: Server) -> None:
    prefix, later = uuid4().hex, LedgerRun("id", "b2", lambda: ("a1",))
    async with shared(server, prefix=prefix, ledger=later) as store:
        with server.admin as admin:
            admin.set(f"{prefix}:billed:one", "call-1")

        assert not await store.claim_bill("one", "call-2")


async def test_script_refuses_calls_after_a_bill(shared_server: Server) -> None:
    script = files("proxy.limits.stores").joinpath("counters.lua").read_text()
    bill = to_call_json("booked", 0, '"owner"', "[]")
    with shared_server.admin as admin, pytest.raises(ResponseError, match="only call"):
        admin.eval(script, 1, uuid4().hex, "", bill, bill)


HOUR_MS = 3_600_000


def test_drained_counters_are_removed() -> None:
    clock = Clock()
    store = clock.memory()
    for number in range(20 * MIN_SWEEP_SIZE):
        clock.ms += 60  # a request drains in 600 ms
        run_sync(store.admit(f"call-{number}", claims((REQUESTS, 1), scope=f"user:{number}")))
        run_sync(store.settle(f"call-{number}", [1]))

    assert len(store._counters) <= MIN_SWEEP_SIZE
    assert store.evicted_count == 0


def test_counters_are_bounded_and_evictions_counted() -> None:
    clock = Clock()
    store = replace(clock.memory(), max_counters=100)
    for number in range(1000):
        run_sync(store.admit(f"call-{number}", claims((REQUESTS, 9), scope=f"user:{number}")))
        run_sync(store.settle(f"call-{number}", [9]))

    assert len(store._counters) <= 100
    assert store.evicted_count >= 900
    newest = store.preview(claims((REQUESTS, 0), scope="user:999")).counter_states[0]
    assert newest.used == 9


def test_counter_of_a_call_in_flight_is_not_removed() -> None:
    clock = Clock()
    store = clock.memory()
    run_sync(store.admit("slow", claims((REQUESTS, 1), scope="user:slow")))
    clock.ms += HOUR_MS
    for number in range(2 * MIN_SWEEP_SIZE):
        run_sync(store.admit(f"call-{number}", claims((REQUESTS, 1), scope=f"user:{number}")))
        run_sync(store.settle(f"call-{number}", [0]))

    run_sync(store.settle("slow", [51]))

    used = store.preview(claims((REQUESTS, 0), scope="user:slow")).counter_states[0].used
    assert used == 50


def test_unsettled_calls_are_bounded() -> None:
    store = replace(Clock().memory(), max_counters=100)
    for number in range(150):
        run_sync(store.admit(f"call-{number}", claims((MONTH, 0), (PLACES, 0))))

    assert store.in_flight == 100


@pytest.mark.parametrize(("hours", "stored_count"), [(1, 10), (30, 0)])
def test_spend_is_removed_only_long_after_its_window(hours: int, stored_count: int) -> None:
    clock, hour = Clock(), Limit("hour", KINDS["usd"], 100, Calendar("hour"))
    store = clock.memory()
    run_sync(store.admit("call", claims((hour, 10))))
    run_sync(store.settle("call", [10]))
    clock.ms += hours * HOUR_MS
    for number in range(2 * MIN_SWEEP_SIZE):
        run_sync(store.admit(f"call-{number}", claims((PLACES, 0), scope=f"u:{number}")))
        run_sync(store.settle(f"call-{number}", [0]))

    clock.ms -= hours * HOUR_MS

    assert store.preview(claims((hour, 0))).counter_states[0].used == stored_count


def test_repeated_admission_is_charged_once() -> None:
    store = Clock().memory()
    call_claims = claims((MONTH, 60), (PLACES, 1))

    assert run_sync(store.admit("call", call_claims)).admitted
    assert run_sync(store.admit("call", call_claims)).admitted

    standings = store.preview(call_claims).counter_states
    assert [standing.used for standing in standings] == [60, 1]


def test_billing_owners_are_bounded() -> None:
    billed = BillingOwners(max_owners=3)
    for number in range(5):
        assert billed.claim_bill(f"name-{number}", "one")

    assert [billed.claim_bill(f"name-{number}", "two") for number in (2, 3, 4)] == [False] * 3
    assert billed.claim_bill("name-0", "two")
