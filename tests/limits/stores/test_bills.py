"""Bills of responses that are made in the background, as Redis keeps them."""

from __future__ import annotations

import asyncio
import time
from importlib.resources import files
from itertools import product
from uuid import uuid4

import pytest
from redis.exceptions import ResponseError

from proxy.limits.stores.redis import RedisStore
from proxy.limits.stores.redis_script import encode
from proxy.limits.stores.store import LedgerRun
from proxy.runtime.redis import connect
from proxy.types.limit import LEASE_S
from tests.limits.conftest import shared
from tests.limits.stores.held_server import HeldServer
from tests.limits.world import PLACES, claims
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
            assert await store.bill_once(name, "call-1")
            assert await store.bill_once(name, "call-1")  # it asks again
        await store.book("booked")
        assert bills() == [(b"booked a1 call-1", True), (b"charged a1 call-1", False)]
        for name in ("booked", "charged"):
            assert not await two.bill_once(name, "call-2")
            assert not await excluded.bill_once(name, "call-3")

        dead.append("a1")
        assert not await two.bill_once("booked", "call-2")
        assert await two.bill_once("charged", "call-2")
        await store.renew()  # it was taken for dead
        await store.book("charged")
        assert bills() == [(b"booked a1 call-1", True), (b"charged b2 call-2", False)]
    assert [text for text, _ in bills()] == [b"booked a1 call-1", b"booked b2 call-2"]


@pytest.mark.parametrize("answered_first", [0, 1])
@pytest.mark.parametrize("verbs", list(product(["book", "renew"], repeat=2)), ids="-".join)
async def test_concurrent_bookings_of_a_bill_all_succeed(
    verbs: tuple[str, str], answered_first: int, shared_server: Server
) -> None:
    server = HeldServer(connect(shared_server.at.urls, 5.0, cluster=shared_server.at.cluster))
    prefix, ledger = uuid4().hex, LedgerRun("id", "a1")
    async with RedisStore(server, time.time, prefix, ledger=ledger) as store:
        assert await store.bill_once("one", "call-1")
        server.is_holding = True
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number, verb in enumerate(verbs, 1):
                work = store.book("one") if verb == "book" else store.renew()
                tasks.append(group.create_task(work))
                await server.wait(number)
            server.gates[answered_first].set()
            await asyncio.wait([tasks[answered_first]])
            server.gates[1 - answered_first].set()
        server.is_holding = False
        await store.book("one")
    with shared_server.admin as admin:
        assert admin.get(f"{prefix}:billed:one") == b"booked a1 call-1"


async def test_bills_are_bounded_and_renewed_after_calls(shared_server: Server) -> None:
    server = HeldServer(connect(shared_server.at.urls, 5.0, cluster=shared_server.at.cluster))
    prefix, ledger = uuid4().hex, LedgerRun("id", "a1")
    async with RedisStore(server, time.time, prefix, ledger=ledger, max_bills=2) as store:
        for number in range(4):
            assert await store.bill_once(f"bill-{number}", "call")
        await store.admit("call", claims((PLACES, 1)))
        server.commands.clear()
        await store.renew()
        assert [command[:9] for command in server.commands] == ['["renew",', *['["charged'] * 2]
        with shared_server.admin as admin:
            states = [admin.get(f"{prefix}:billed:bill-{number}").split()[0] for number in range(4)]
        assert states == [b"charged", b"charged", b"booked", b"booked"]


async def test_a_bill_that_an_earlier_version_made_is_booked(server: Server) -> None:
    prefix, later = uuid4().hex, LedgerRun("id", "b2", lambda: ("a1",))
    async with shared(server, prefix=prefix, ledger=later) as store:
        with server.admin as admin:
            admin.set(f"{prefix}:billed:one", "call-1")

        assert not await store.bill_once("one", "call-2")


async def test_script_refuses_calls_after_a_bill(shared_server: Server) -> None:
    script = files("proxy.limits.stores").joinpath("counters.lua").read_text()
    bill = encode("booked", 0, '"owner"', "[]")
    with shared_server.admin as admin, pytest.raises(ResponseError, match="only call"):
        admin.eval(script, 1, uuid4().hex, "", bill, bill)
