"""Calls while a shared store is killed, stopped, paused, emptied and restarted."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from proxy.limits.claims import list_non_user_budget_charges
from proxy.limits.kinds import KINDS
from proxy.limits.stores.failover import FailoverStore
from proxy.limits.stores.local_fallback import LocalFallback
from proxy.limits.stores.redis import RedisStore
from proxy.limits.stores.store import NO_LEDGER, LedgerRun, StoreUnavailable
from proxy.runtime.background import background_task
from proxy.types.limit import Claim, CounterState, Limit, LimitDecision, OnStoreError
from proxy.types.windows import Calendar
from tests.for_each import for_each
from tests.limits.conftest import shared
from tests.limits.sample_limits import MONTH, PLACES, claims
from tests.limits.stores.held_server import HeldServer
from tests.limits.stores.slow_wire import SlowWire
from tests.servers import Cluster, Server, eventually

BUDGET = Limit("budget", KINDS["usd"], 1_000_000, Calendar("month"))
TIMEOUT_S = 0.1


def failover(
    remote: Any,
    transitions: list[str],
    alone: LocalFallback | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    on_lost_budget: Callable[[Claim], None] = lambda claim: None,
) -> FailoverStore:
    """Return a store that fails over from ``remote`` and reports its transitions."""
    ids = (f"{uuid4().hex}-{n}" for n in count())
    return FailoverStore(
        remote,
        alone or LocalFallback(time.monotonic, time.time),
        lambda cause: transitions.append("recovered" if cause is None else "degraded"),
        sleep,
        lambda: 0.5,
        lambda: next(ids),
        on_lost_budget,
    )


@dataclass
class Instance:
    """One proxy's store, the transitions it reported, and its waits between probes."""

    store: FailoverStore
    remote: RedisStore
    transitions: list[str]
    lost_claims: list[Claim]
    rests: list[float] = field(default_factory=list)

    async def recovered(self) -> None:
        await eventually(lambda: not self.store.is_degraded and not self.store.pending_count)

    async def degrade(self) -> None:
        """Call until the store is considered unavailable."""
        for number in count():
            if self.store.is_degraded:
                return
            await self.store.read(claims((BUDGET, 0)))
            assert number < 10


async def has_to_wait(call: Coroutine[Any, Any, LimitDecision]) -> bool:
    """Return True if an admission waits for anything, and check that it admits."""
    admission = asyncio.ensure_future(call)
    await asyncio.sleep(0)  # one step of the task
    waits = not admission.done()
    assert (await admission).admitted
    return waits


@asynccontextmanager
async def instance(
    server: Server | Cluster | SlowWire,
    prefix: str = "",
    replicas: int = 1,
    ledger: LedgerRun = NO_LEDGER,
) -> AsyncIterator[Instance]:
    transitions: list[str] = []
    lost_claims: list[Claim] = []
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        await asyncio.sleep(min(seconds, 0.05))

    own_text = prefix or uuid4().hex
    async with shared(server, prefix=own_text, timeout_s=TIMEOUT_S, ledger=ledger) as remote:
        alone = LocalFallback(time.monotonic, time.time, replicas)
        store = failover(remote, transitions, alone, sleep, lost_claims.append)
        async with background_task(store.probe_and_send_pending()):
            yield Instance(store, remote, transitions, lost_claims, rests)


async def _kill(server: Server) -> Callable[[], None]:
    server.kill()
    return server.start


async def _stop(server: Server) -> Callable[[], None]:
    server.signal(signal.SIGSTOP)
    return lambda: server.signal(signal.SIGCONT)


async def _pause(server: Server) -> Callable[[], None]:
    with server.admin as admin:
        admin.execute_command("CLIENT", "PAUSE", 2000, "ALL")
    return lambda: None  # the pause ends by itself; a paused server accepts no commands


WAYS = pytest.mark.parametrize("go_away", [_kill, _stop, _pause], ids=["kill", "stop", "pause"])
GoAway = Callable[[Server], Awaitable[Callable[[], None]]]


@WAYS
async def test_calls_continue_during_outage(server: Server, go_away: GoAway) -> None:
    async with instance(server) as node:
        come_back = await go_away(server)
        waits = 0
        for number in range(200):
            call_claims = claims((BUDGET, 10), (PLACES, 1))
            waits += await has_to_wait(node.store.admit(f"call-{number}", call_claims))
            await node.store.settle(f"call-{number}", [10, 0])
        assert waits <= node.store.max_failures
        assert node.transitions == ["degraded"]

        come_back()
        await node.recovered()

        assert node.transitions == ["degraded", "recovered"]
        standings = await node.store.read(claims((BUDGET, 0), (PLACES, 0)))
        assert [standing.used for standing in standings] == [2000, 0]
        assert node.store.dropped_updates == 0


@pytest.mark.parametrize("shadow", [True, False], ids=["in shadow", "in force"])
@pytest.mark.parametrize("amount", [1_000_000, 25], ids=["much", "little"])
@pytest.mark.parametrize("on_store_error", ["local", "open", "closed"])
async def test_recovered_budget_equals_recorded_charges(
    on_store_error: OnStoreError, amount: int, shadow: bool, server: Server
) -> None:
    limit = replace(BUDGET, amount=amount, shadow=shadow, on_store_error=on_store_error)
    charged: list[int] = []

    async def call(node: Instance, name: str) -> None:
        decided = await node.store.admit(name, claims((limit, 10)))
        if decided.admitted:
            await node.store.settle(name, [10])
            charged.extend(charge.cost for charge in list_non_user_budget_charges(decided, [10]))

    async with instance(server) as single_instance:
        await call(single_instance, "before")
        come_back = await _stop(server)
        for number in range(8):
            await call(single_instance, f"away-{number}")
        come_back()
        await single_instance.recovered()
        await call(single_instance, "after")

        [standing] = await single_instance.store.read(claims((limit, 0)))
        assert standing.used == sum(charged)


@pytest.mark.parametrize("go_away", [_stop, _pause], ids=["stop", "pause"])
async def test_settlements_reach_recovered_store(server: Server, go_away: GoAway) -> None:
    call_claims = claims((BUDGET, 100), (PLACES, 1))
    async with instance(server) as node:
        for number in range(100):
            await node.store.admit(f"call-{number}", call_claims)
        come_back = await go_away(server)

        await asyncio.gather(*(node.store.settle(f"call-{n}", [7, 0]) for n in range(100)))
        await node.degrade()
        come_back()
        await node.recovered()

        standings = await node.store.read(call_claims)
        assert [standing.used for standing in standings] == [700, 0]
        assert (node.store.in_flight, node.remote.in_flight) == (0, 0)


async def test_empty_store_learns_cost_of_running_calls(server: Server) -> None:
    call_claims = claims((BUDGET, 100), (PLACES, 1))
    async with instance(server) as node:
        for number in range(20):
            await node.store.admit(f"call-{number}", call_claims)
        server.kill()
        await node.degrade()
        await asyncio.gather(*(node.store.settle(f"call-{n}", [7, 0]) for n in range(20)))
        server.start()
        await node.recovered()

        outcome = await node.store.admit("next", call_claims)
        assert [standing.used for standing in outcome.counter_states] == [240, 1]
        assert outcome.counter_states[0].is_fresh


async def test_ledger_spend_counts_during_outage(server: Server) -> None:
    """The shared store gets it from a later call."""
    async with instance(server) as node:
        server.signal(signal.SIGSTOP)
        await node.degrade()
        await node.store.restore(claims((MONTH, 60)))

        outcome = await node.store.admit("alone", claims((MONTH, 40)))
        assert outcome.counter_states[0].used == 100
        assert not outcome.counter_states[0].is_fresh
        await node.store.settle_unused("alone")
        server.signal(signal.SIGCONT)
        await node.recovered()
        [standing] = await node.store.read(claims((MONTH, 0)))
        assert (standing.used, standing.is_fresh) == (0, True)


async def test_budget_stays_fresh_until_settlements_are_sent(server: Server) -> None:
    async with shared(server) as remote:
        store = failover(remote, [])  # nothing sends what is pending
        await store.admit("call", claims((BUDGET, 10)))
        server.kill()
        await store.settle("call", [7])
        await eventually(lambda: store.pending_count > 0)
        server.start()

        readings: list[CounterState] = []
        for is_restored in (False, True):
            assert await store.restore(claims((BUDGET, 7))) is is_restored
            readings += await store.read(claims((BUDGET, 0)))
            await store.close()

    assert [(state.used, state.is_fresh) for state in readings] == [(0, True), (7, False)]


async def test_lost_call_is_charged_by_a_repeated_settlement(server: Server) -> None:
    """The budget is restored meanwhile, without the call."""
    async with shared(server) as remote:
        remote.server = wire = HeldServer(remote.server)
        store = failover(remote, [])  # nothing sends what is pending
        await store.admit("first", claims((BUDGET, 100)))
        await store.restore(claims((BUDGET, 0)))
        server.admin.flushall()
        await store.admit("second", claims((BUDGET, 50)))
        await store.restore(claims((BUDGET, 0)))
        wire.is_away = True
        await store.settle("first", [100])
        await eventually(lambda: store.pending_count > 0)
        wire.is_away = False
        await store.close()
        await store.settle("second", [50])

        assert [state.used for state in await store.read(claims((BUDGET, 0)))] == [150]


async def test_loss_of_a_restored_budget_is_reported_once(server: Server) -> None:
    async with instance(server) as node:
        for number in range(6):
            if number == 3:
                server.admin.flushall()
            await node.store.admit(f"call-{number}", claims((BUDGET, 1)))
            if number in (0, 5):
                await node.store.restore(claims((BUDGET, 1)))

        assert node.lost_claims == claims((BUDGET, 1))


async def test_two_instances_share_a_budget_during_an_outage(server: Server) -> None:
    limit, prefix = replace(MONTH, amount=1000), uuid4().hex
    async with (
        instance(server, prefix, replicas=2) as node,
        instance(server, prefix, replicas=2) as two,
    ):
        stores = (node.store, two.store)
        admitted_count = [await _spend(stores, limit, "before", 300)]
        server.signal(signal.SIGSTOP)
        admitted_count.append(await _spend(stores, limit, "during", 300))
        server.signal(signal.SIGCONT)
        await asyncio.gather(node.recovered(), two.recovered())
        admitted_count.append(await _spend(stores, limit, "after", 600))

        assert admitted_count[0] == 300
        assert sum(admitted_count) == 1000
        assert (await node.store.read(claims((limit, 0))))[0].used == 1000


async def _spend(stores: tuple[FailoverStore, ...], limit: Limit, when: str, calls: int) -> int:
    """Make calls of one micro-USD each at alternate instances. Return how many were admitted."""
    admitted_count = 0
    for number in range(calls):
        store = stores[number % len(stores)]
        name = f"{when}-{number}"
        if (await store.admit(name, claims((limit, 1)))).admitted:
            await store.settle(name, [1])
            admitted_count += 1
    return admitted_count


async def test_probes_of_unavailable_store_back_off(server: Server) -> None:
    async with instance(server) as node:
        server.kill()
        await node.degrade()
        await eventually(lambda: len(node.rests) >= 8)

        assert node.rests[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


async def test_call_takes_one_round_trip(server: Server) -> None:
    """No call waits for a settlement, but the next call to the store sends it first."""
    one_place = replace(PLACES, amount=1)
    call_claims = claims((one_place, 1), (BUDGET, 100))
    async with instance(server) as node:
        await node.store.read(call_claims)
        trips_before = server.script_calls()
        for number in range(20):
            assert (await node.store.admit(f"call-{number}", call_claims)).admitted
            await node.store.settle(f"call-{number}", [0, 7])
        assert server.script_calls() - trips_before == 20

        await eventually(lambda: server.script_calls() - trips_before == 21)
        assert node.remote.in_flight == 0
        standings = await node.store.read(call_claims)
        assert [standing.used for standing in standings] == [0, 140]


async def test_bills_of_an_outage_reach_the_store(server: Server) -> None:
    prefix = uuid4().hex
    async with instance(server, prefix) as node, instance(server, prefix) as two:
        assert await node.store.claim_bill("before", "one")
        come_back = await _stop(server)
        await node.degrade()

        assert not await node.store.claim_bill("before", "again")
        assert await node.store.claim_bill("meanwhile", "one")
        assert await node.store.claim_bill("meanwhile", "one")  # the same call may repeat it
        assert not await node.store.claim_bill("meanwhile", "again")

        come_back()
        await node.recovered()
        await two.recovered()
        for name in ("before", "meanwhile"):
            assert not await two.store.claim_bill(name, "two")


async def test_bills_booked_during_an_outage_are_confirmed_later(server: Server) -> None:
    async with instance(server, ledger=LedgerRun("id", "a1")) as node:
        assert await node.store.claim_bill("before", "call-1")
        come_back = await _stop(server)
        await node.degrade()
        assert await node.store.claim_bill("meanwhile", "call-2")
        for name in ("before", "meanwhile", "never billed"):
            await node.store.mark_bill_booked(name)

        come_back()
        await node.recovered()
        await node.store.renew()

        with server.admin as admin:
            states = [admin.get(key) for key in sorted(admin.keys("*:billed:*"))]
        assert states == [b"booked a1 call-1", b"booked a1 call-2"]


async def test_store_unavailable_at_start_is_reported_before_a_call(server: Server) -> None:
    async with instance(server) as local_value:
        await local_value.store.probe_at_start()
        assert (local_value.transitions, local_value.store.is_degraded) == ([], False)

    server.kill()
    async with instance(server) as local_value:
        await local_value.store.probe_at_start()
        assert (local_value.transitions, local_value.store.is_degraded) == (["degraded"], True)
        server.start()
        await local_value.recovered()
        assert local_value.transitions == ["degraded", "recovered"]


class Flaky:
    def __init__(self) -> None:
        self.asked = 0

    def __getattr__(self, name: str) -> Callable[..., Awaitable[bool]]:
        async def ask(*requests: object, **how: object) -> bool:
            self.asked += 1
            if self.asked % 2:
                raise StoreUnavailable("away", trip=object())
            return True

        return ask


@for_each("description", ["claim_bill", "restore", "read", "renew"])
async def test_error_replies_do_not_mark_the_store_unavailable(description: str) -> None:
    transitions: list[str] = []
    remote = Flaky()
    store = failover(remote, transitions)
    asking: dict[str, Callable[[int], Awaitable[object]]] = {
        "claim_bill": lambda number: store.claim_bill(f"name-{number}", "one"),
        "restore": lambda number: store.restore(claims((BUDGET, 1))),
        "read": lambda _: store.read(claims((BUDGET, 0))),
        "renew": lambda _: store.renew(),
    }

    for number in range(2 * store.max_failures):
        await asking[description](number)

    assert (transitions, remote.asked) == ([], 2 * store.max_failures)
