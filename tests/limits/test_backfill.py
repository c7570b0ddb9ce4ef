"""Backfill of new budgets from the ledger, and calls that arrive meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations

import pytest

from proxy.call.record import Record, TraceIds
from proxy.errors import BudgetExceeded, LimitExceeded
from proxy.limits import Limiter
from proxy.limits.backfill import (
    RESTORE_RETRY_S,
    RETRY_INTERVAL_S,
    BackfillUnavailable,
    BudgetBackfill,
)
from proxy.limits.claims import list_non_user_budget_charges
from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MemoryStore
from proxy.limits.stores.redis import RedisStore
from proxy.limits.stores.store import LedgerRun, StoreUnavailable
from proxy.money.usage import Price
from proxy.runtime.redis import create_client
from proxy.types import Call, ModelCall, Plan, RequestHead, ScopedLimit, Target, Upstream
from proxy.types.limit import Claim, Limit
from proxy.types.windows import Calendar
from tests.limits.sample_limits import NOON, Clock, claims
from tests.limits.stores.held_server import HeldServer
from tests.servers import Server

DEAR = Target(
    Upstream("openai", "openai", "http://127.0.0.1:9"),
    "gpt-4o-mini",
    prices=(Price(Decimal(1), Decimal(1)),),
)
MONTH = Limit("month", KINDS["usd"], 10**9, Calendar("month"))
DAY = Limit("day", KINDS["usd"], 10**9, Calendar("day"))
# Nano-USD: above the monthly budget, and just below it.
LARGE_BUDGET, REMAINING = (10**12, 10**9 - 10**5)


def plan(*limits: Limit) -> Plan:
    bounds = tuple(ScopedLimit(limit) for limit in limits)
    return Plan("r", "support-widget", "chat", {}, (ModelCall("m", (DEAR,)),), limits=bounds)


@dataclass
class Ledger:
    """Ledger that returns the spend of each limit once ``go`` is set."""

    spend: dict[str, int | Exception | None]
    go: asyncio.Event = field(default_factory=asyncio.Event)
    reads: list[tuple[str, int]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def recall(self, claim: Claim, process_since_ms: int) -> int | None:
        self.reads.append((claim.limit.name, process_since_ms))
        self.arrived.set()
        await self.go.wait()
        result = self.spend.get(claim.limit.name, 0)
        if isinstance(result, Exception):
            raise result
        return result


@dataclass
class World:
    ledger: Ledger
    clock: Clock = field(default_factory=Clock)
    failed: list[Exception] = field(default_factory=list)
    calls: int = 0

    @asynccontextmanager
    async def admission(self) -> AsyncIterator[Limiter]:
        store, now = self.clock.memory(), self.clock.seconds
        async with BudgetBackfill(
            store, self.ledger.recall, self.failed.append, now, now
        ) as backfill:
            yield Limiter(store, lambda standing: None, backfill)

    async def call(self, admission: Limiter, *limits: Limit) -> None:
        self.calls += 1
        received_at = datetime.fromtimestamp(self.clock.seconds(), UTC)
        head = RequestHead(
            "openai",
            "completions",
            "/v1/completions",
            "r",
            f"n{self.calls}",
            received_at=received_at,
        )
        body = {"model": "m", "prompt": "x", "max_tokens": 5}
        record = Record(TraceIds("a" * 32, "b" * 16, "c" * 16), 0.0, received_at, lambda: 0.0)
        async with admission.make_reservation(plan(*limits), Call(head, body, ("m",)), record):
            pass


@pytest.fixture
def world() -> World:
    return World(Ledger({"month": LARGE_BUDGET}))


async def run_pending_tasks() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_cancelled_call_keeps_recalled_budget(world: World) -> None:
    async with world.admission() as admission:
        first_call = asyncio.ensure_future(world.call(admission, MONTH))
        await world.ledger.arrived.wait()
        first_call.cancel()
        await asyncio.wait([first_call])
        assert admission.store.in_flight == 0
        world.ledger.go.set()

        with pytest.raises(BudgetExceeded):
            await world.call(admission, MONTH)
    assert len(world.ledger.reads) == 1


async def test_concurrent_calls_share_one_backfill(world: World) -> None:
    world.ledger.spend = {"month": REMAINING}
    async with world.admission() as admission:
        crowd = [asyncio.ensure_future(world.call(admission, MONTH)) for _ in range(50)]
        await run_pending_tasks()
        for item in crowd[::7]:
            item.cancel()
        world.ledger.go.set()
        results = await asyncio.gather(*crowd, return_exceptions=True)
        [month] = await admission.store.read(claims((MONTH, 0), scope=""))

    assert [r for r in results if not isinstance(r, asyncio.CancelledError)] == [None] * 42
    assert world.ledger.reads == [("month", NOON)]
    assert month.used == REMAINING


async def test_calls_of_other_budgets_do_not_wait(world: World) -> None:
    calls = Limit("calls", KINDS["requests"], 100, 60)
    async with world.admission() as admission:
        first_call = asyncio.ensure_future(world.call(admission, MONTH))
        await world.ledger.arrived.wait()

        await world.call(admission, calls)
        other_task = asyncio.ensure_future(world.call(admission, DAY))
        await run_pending_tasks()
        assert world.ledger.reads == [("month", NOON), ("day", NOON)]
        world.ledger.go.set()
        await other_task
        with pytest.raises(BudgetExceeded):
            await first_call


async def test_failed_backfill_is_retried_without_later_calls(world: World) -> None:
    world.ledger.go.set()
    world.ledger.spend = {"month": BackfillUnavailable()}
    async with world.admission() as admission:
        await world.call(admission, MONTH)
        await world.call(admission, MONTH)
        assert len(world.ledger.reads) == 1
        world.clock.ms += int(RETRY_INTERVAL_S * 1000)
        await world.call(admission, MONTH)
        world.ledger.spend = {"month": LARGE_BUDGET}
        world.clock.ms += int(RETRY_INTERVAL_S * 1000)
        with pytest.raises(BudgetExceeded):
            await world.call(admission, MONTH)
        with pytest.raises(BudgetExceeded):
            await world.call(admission, MONTH)

    assert world.ledger.reads == [("month", NOON)] * 3


async def test_next_window_counts_from_its_start(world: World) -> None:
    world.ledger.go.set()
    world.ledger.spend = {"day": BackfillUnavailable()}
    async with world.admission() as admission:
        await world.call(admission, DAY)
        world.clock.ms += 86_400_000
        await world.call(admission, DAY)

    assert world.ledger.reads == [("day", NOON), ("day", NOON + 86_400_000 // 2)]


async def test_unexpected_error_is_reported_and_call_admitted(world: World) -> None:
    world.ledger.go.set()
    bug = ZeroDivisionError()
    world.ledger.spend = {"month": bug}
    async with world.admission() as admission:
        await world.call(admission, MONTH)
        world.ledger.spend = {"month": LARGE_BUDGET}
        world.clock.ms += int(RETRY_INTERVAL_S * 1000)
        with pytest.raises(BudgetExceeded):
            await world.call(admission, MONTH)

    assert world.failed == [bug]


async def test_ledger_without_data_is_read_once(world: World) -> None:
    world.ledger.go.set()
    world.ledger.spend = {"month": None}
    async with world.admission() as admission:
        for _ in range(3):
            await world.call(admission, MONTH)
            world.clock.ms += int(RETRY_INTERVAL_S * 1000)

    assert len(world.ledger.reads) == 1


async def test_refused_call_starts_no_budget(world: World) -> None:
    world.ledger.go.set()
    full = Limit("full", KINDS["requests"], 1, 86_400)
    async with world.admission() as admission:
        await admission.store.admit("before", claims((full, 1), scope=""))
        for _ in range(3):
            with pytest.raises(LimitExceeded):
                await world.call(admission, full, replace(MONTH, name="other"))

    assert world.ledger.reads == []


async def test_backfill_task_ends_with_its_owner(world: World) -> None:
    tasks_before = asyncio.all_tasks()
    async with world.admission() as admission:
        call = asyncio.ensure_future(world.call(admission, MONTH))
        await world.ledger.arrived.wait()
    await call

    assert asyncio.all_tasks() == tasks_before


async def test_each_window_is_backfilled(world: World) -> None:
    world.ledger.go.set()
    world.ledger.spend = {"day": REMAINING}
    async with world.admission() as admission:
        for _ in range(3):
            await world.call(admission, DAY)
            [day] = await admission.store.read(claims((DAY, 0), scope=""))
            assert day.used == REMAINING
            world.clock.ms += 86_400_000


async def test_failed_restore_is_repeated(world: World) -> None:
    world.ledger.go.set()
    amounts: list[int] = []

    class FailingStore(MemoryStore):
        async def restore(self, claims: Sequence[Claim]) -> bool:
            amounts.extend(claim.amount for claim in claims)
            raise StoreUnavailable("away")

    store, now = FailingStore(world.clock.seconds, world.clock.seconds), world.clock.seconds
    async with BudgetBackfill(
        store, world.ledger.recall, world.failed.append, now, now
    ) as backfill:
        admission = Limiter(store, lambda standing: None, backfill)
        await world.call(admission, MONTH)
        world.clock.ms += int(RETRY_INTERVAL_S * 1000)
        await world.call(admission, MONTH)

    assert amounts == [LARGE_BUDGET] * 2


async def test_budget_that_cannot_be_restored_yet_is_read_once_a_second(world: World) -> None:
    class WaitingStore(MemoryStore):
        async def restore(self, claims: Sequence[Claim]) -> bool:
            return False

    world.ledger.go.set()
    now = world.clock.seconds
    async with BudgetBackfill(
        WaitingStore(now, now), world.ledger.recall, world.failed.append, now, now
    ) as backfill:
        admission = Limiter(backfill.store, lambda standing: None, backfill)
        for reads in (1, 2):
            for _ in range(3):
                await world.call(admission, MONTH)
            assert len(world.ledger.reads) == reads
            world.clock.ms += int(RESTORE_RETRY_S * 1000)


async def spend(backfill: BudgetBackfill, claim: Claim, call_started_ms: int) -> int:
    """Make a call that costs what it claims. Return the level of its budget afterwards."""
    decision = await backfill.store.admit("call", [claim])
    backfill.track_budgets(decision, call_started_ms)
    await backfill.wait_for_earlier_spend(decision.claims)
    usage = [claim.amount]
    backfill.add_spend(list_non_user_budget_charges(decision, usage), call_started_ms)
    await backfill.store.settle("call", usage)
    return (await backfill.store.read([replace(claim, amount=0)]))[0].used


async def test_call_admitted_before_an_earlier_one_does_not_hide_it(world: World) -> None:
    world.ledger.go.set()
    world.ledger.spend, now = {}, world.clock.seconds
    async with BudgetBackfill(
        world.clock.memory(), world.ledger.recall, world.failed.append, now, now
    ) as backfill:
        await spend(backfill, Claim(MONTH, "", 50), NOON)
        await spend(backfill, Claim(MONTH, "", 70), NOON - 10)
        backfill.store = world.clock.memory()

        assert await spend(backfill, Claim(MONTH, "", 1), NOON) == 121
    assert world.ledger.reads == [("month", NOON), ("month", NOON - 10)]


async def test_users_do_not_displace_spend(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.limits.backfill.MAX_COUNTERS", 1)
    world.ledger.go.set()
    world.ledger.spend, now = {}, world.clock.seconds
    async with BudgetBackfill(
        world.clock.memory(), world.ledger.recall, world.failed.append, now, now
    ) as backfill:
        await spend(backfill, Claim(MONTH, "", 50), NOON)
        for user in ("user:a", "user:b"):
            await spend(backfill, Claim(MONTH, user, 1, is_per_user=True), NOON)
        [state] = await backfill.store.read(claims((MONTH, 0), scope="user:a"))
        assert not state.is_fresh
        backfill.store = world.clock.memory()

        assert await spend(backfill, Claim(MONTH, "", 1), NOON) == 51


SPEND_BY_REPLICA = {"one": 6_000, "two": 5_000, "three": 7_000}
"""What each replica has in its own ledger, in nano-USD."""


@dataclass
class Replica:
    """A process with its own ledger and a shared budget."""

    world: World
    admission: Limiter

    async def call(self, limit: Limit) -> bool:
        """Return True if a call is admitted. It is settled at no cost."""
        try:
            await self.world.call(self.admission, limit)
        except BudgetExceeded:
            return False
        return True


@asynccontextmanager
async def replica(server: Server, name: str, clock: Clock) -> AsyncIterator[Replica]:
    world, now = World(Ledger({"month": SPEND_BY_REPLICA[name]}), clock), clock.seconds
    world.ledger.go.set()
    store = RedisStore(
        create_client(server.at.urls, 5.0, cluster=server.at.cluster),
        now,
        time_ms=lambda: clock.ms,
        ledger=LedgerRun(name),
    )
    backfill = BudgetBackfill(store, world.ledger.recall, world.failed.append, now, now)
    async with store, backfill:
        yield Replica(world, Limiter(store, lambda standing: None, backfill))


async def used(replica: Replica) -> int:
    [standing] = await replica.admission.store.read(claims((MONTH, 0), scope=""))
    return standing.used


@pytest.mark.parametrize("order", list(permutations(SPEND_BY_REPLICA)), ids="-".join)
async def test_replicas_recall_lost_budget_once(order: tuple[str, ...], server: Server) -> None:
    clock = Clock()
    async with AsyncExitStack() as opened:
        replicas = [
            await opened.enter_async_context(replica(server, name, clock)) for name in order
        ]
        for losses in (1, 2):
            server.admin.flushall()
            spend = 0
            for name, item in zip(order, replicas, strict=True):
                spend += SPEND_BY_REPLICA[name]
                assert await item.call(MONTH)
                assert await used(item) == spend
            for item in replicas:
                assert await item.call(MONTH)
                assert item.world.ledger.reads == [("month", NOON)] * losses
            assert await used(replicas[0]) == sum(SPEND_BY_REPLICA.values())

    assert [item.world.failed for item in replicas] == [[], [], []]


async def test_disconnect_during_first_admission_loses_no_spend(server: Server) -> None:
    clock = Clock()
    held_server = HeldServer(create_client(server.at.urls, 5.0, cluster=server.at.cluster))
    async with replica(server, "one", clock) as single_replica:
        store = single_replica.admission.store
        assert isinstance(store, RedisStore)
        store.server, held_server.is_holding = held_server, True
        first_call = asyncio.ensure_future(single_replica.call(MONTH))
        await held_server.wait(1)
        first_call.cancel()
        held_server.is_holding = False
        held_server.gates[0].set()
        await asyncio.wait([first_call])

        assert await single_replica.call(MONTH)
        assert await used(single_replica) == SPEND_BY_REPLICA["one"]


async def test_window_of_an_earlier_version_is_complete(server: Server) -> None:
    """The earlier version wrote one marker for all replicas."""
    clock = Clock()
    store_before = RedisStore(
        create_client(server.at.urls, 5.0, cluster=server.at.cluster),
        clock.seconds,
        time_ms=lambda: clock.ms,
    )
    async with store_before, replica(server, "one", clock) as single_replica:
        await store_before.restore(claims((MONTH, 100), scope=""))
        assert await single_replica.call(MONTH)
        assert await used(single_replica) == 100

    assert single_replica.world.ledger.reads == []
