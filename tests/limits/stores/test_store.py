"""Guarantees of every store under concurrent calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from uuid import uuid4

import pytest

from proxy.limits.kinds import KINDS
from proxy.limits.stores.store import CounterStore, renew_leases
from proxy.types.limit import LEASE_S, Claim, CounterState, Limit, LimitDecision
from proxy.types.windows import Calendar
from tests.limits.conftest import shared
from tests.limits.sample_limits import MONTH, PLACES, REQUESTS, TOKENS, Clock, claims, would_refuse
from tests.servers import Cluster, Server

CALLS = 500
WIDE = Limit("wide", KINDS["requests"], 10_000, 60)
BUDGET = Limit("budget", KINDS["usd"], 10_000, Calendar("day"))
WAYS: dict[str, Sequence[int] | None] = {
    "done": (1, 700, 0),
    "cancelled": (1, 250, 0),
    "upstream error": (1, 0, 0),
    "blocked": None,
    "cache hit": (1, 0, 0),
    "retry": (1, 1500, 0),
    "fallback": (1, 1400, 0),
}


@dataclass
class Instances:
    stores: list[CounterStore]

    def of(self, number: int) -> CounterStore:
        return self.stores[number % len(self.stores)]

    async def admit_all(self, call_claims: Sequence[Claim]) -> list[LimitDecision]:
        return await asyncio.gather(
            *(self.of(n).admit(f"call-{n}", call_claims) for n in range(CALLS))
        )

    async def standings(self, call_claims: Sequence[Claim]) -> tuple[CounterState, ...]:
        return await self.stores[0].read(call_claims)


@asynccontextmanager
async def _instances(server: Server | Cluster | None, number: int) -> AsyncIterator[Instances]:
    clock = Clock()
    if server is None:
        yield Instances([clock.memory()])
        return
    async with AsyncExitStack() as opened:
        prefix = uuid4().hex
        stores = [shared(server, clock, prefix) for _ in range(number)]
        yield Instances([await opened.enter_async_context(store) for store in stores])


COUNTERS = {
    "memory": (None, 1),
    "redis-1": ("shared_server", 1),
    "redis-2": ("shared_server", 2),
    "cluster-2": ("shared_cluster", 2),
}


@pytest.fixture(params=[*COUNTERS.values()], ids=[*COUNTERS])
async def instances(request: pytest.FixtureRequest) -> AsyncIterator[Instances]:
    name, number = request.param
    server = request.getfixturevalue(name) if name else None
    async with _instances(server, number) as running:
        yield running


@pytest.mark.parametrize(
    ("limit", "amount", "fit"),
    [(REQUESTS, 1, 100), (TOKENS, 7, 14), (MONTH, 9, 11), (PLACES, 1, 100)],
    ids=lambda value: value.kind.name if isinstance(value, Limit) else "",
)
async def test_concurrent_calls_fill_a_limit_exactly(
    instances: Instances, limit: Limit, amount: int, fit: int
) -> None:
    call_claims = claims((WIDE, 1), (limit, amount))

    outcomes = await instances.admit_all(call_claims)

    assert sum(outcome.admitted for outcome in outcomes) == fit
    wide, tight = await instances.standings(call_claims)
    assert (wide.used, tight.used) == (fit, fit * amount)


async def test_actual_usage_remains_after_any_end(instances: Instances) -> None:
    call_claims = claims((WIDE, 1), (BUDGET, 100), (PLACES, 1))
    outcomes = await instances.admit_all(call_claims)
    admitted = [number for number, outcome in enumerate(outcomes) if outcome.admitted]
    ways = [list(WAYS.values())[number % len(WAYS)] for number in range(len(admitted))]

    await asyncio.gather(
        *(
            instances.of(n).settle_unused(f"call-{n}") if way is None
            else instances.of(n).settle(f"call-{n}", way)
            for n, way in zip(admitted, ways, strict=True)
        )
    )  # fmt: skip

    wide, money, places = await instances.standings(call_claims)
    assert len(admitted) == 100
    assert wide.used == sum(way[0] for way in ways if way)
    assert money.used == sum(way[1] for way in ways if way)
    assert places.used == 0
    assert sum(store.in_flight for store in instances.stores) == 0


async def test_settlement_counts_once_and_only_admitted_calls(instances: Instances) -> None:
    store, call_claims = instances.stores[0], claims((BUDGET, 100), (PLACES, 1))
    await store.admit("call", call_claims)
    for actual in (60, 90, 0):
        await store.settle("call", [actual, 0])
    await store.settle_unused("call")
    await store.settle("never-seen", [500, 0])

    money, places = await instances.standings(call_claims)
    assert (money.used, places.used) == (60, 0)


@pytest.mark.parametrize(
    ("other_values", "used"), [((), 0), (("other_values",), 5)], ids=["alone", "shared"]
)
async def test_refund_is_at_most_the_claim(
    other_values: tuple[str, ...], used: int, instances: Instances
) -> None:
    store, call_claims = instances.stores[0], claims((REQUESTS, 5), (BUDGET, 5))
    for name in (*other_values, "call"):
        await store.admit(name, call_claims)
    await store.settle("call", [-1000, -1000])

    assert [standing.used for standing in await instances.standings(call_claims)] == [used, used]


@pytest.mark.parametrize("limit", [REQUESTS, TOKENS, MONTH, PLACES], ids=lambda it: it.kind.name)
async def test_negative_claim_is_refused(instances: Instances, limit: Limit) -> None:
    store, shadow = instances.stores[0], replace(limit, name="shadow", shadow=True)
    await store.admit("before", claims((limit, 3), (shadow, 3)))

    refused = await store.admit("negative", claims((limit, -2)))
    unseen = await store.admit("in-shadow", claims((shadow, -2)))
    await store.restore(claims((limit, -2), (shadow, -2)))
    await store.settle("in-shadow", [0])

    assert not refused.admitted
    assert refused.longest_refusal is not None
    assert refused.longest_refusal.retry_after_s is None
    assert would_refuse(unseen) == ("shadow",)
    assert [item.used for item in await store.read(claims((limit, 0), (shadow, 0)))] == [3, 3]


async def test_shadow_limit_counts_and_refuses_nothing(instances: Instances) -> None:
    shadow = Limit("shadow", KINDS["requests"], 60, 60, shadow=True)
    call_claims = claims((WIDE, 1), (shadow, 1))

    outcomes = await instances.admit_all(call_claims)

    assert all(outcome.admitted for outcome in outcomes)
    assert sum(would_refuse(outcome) == ("shadow",) for outcome in outcomes) == CALLS - 60
    assert [standing.used for standing in await instances.standings(call_claims)] == [CALLS, 60]


async def test_exactly_one_call_reaches_the_warning(instances: Instances) -> None:
    limit = Limit("warned", KINDS["usd"], 1000, Calendar("day"), warn_at=0.8)

    outcomes = await instances.admit_all(claims((limit, 2)))

    assert sum(outcome.counter_states[0].is_warned for outcome in outcomes) == 1


async def test_budget_is_fresh_until_restored(instances: Instances) -> None:
    """Spend that was settled before is part of the restored amount."""
    store = instances.stores[0]
    for number, spend in enumerate((20, 30)):
        outcome = await store.admit(f"early-{number}", claims((BUDGET, 100)))
        assert outcome.counter_states[0].is_fresh
        await store.settle(f"early-{number}", [spend])
    for amount in (9950, 20_000):
        await store.restore(claims((BUDGET, amount)))

    outcomes = await instances.admit_all(claims((BUDGET, 10)))

    assert sum(outcome.admitted for outcome in outcomes) == 5
    assert not any(outcome.counter_states[0].is_fresh for outcome in outcomes)


async def test_read_reports_whether_a_claim_would_be_refused(instances: Instances) -> None:
    await instances.stores[0].admit("call", claims((BUDGET, 9000)))

    for amount, fits in ((1000, True), (1001, False)):
        assert (await instances.standings(claims((BUDGET, amount))))[0].would_refuse != fits


async def test_concurrent_bills_of_a_name_have_one_owner(instances: Instances) -> None:
    owners = [f"call-{number}" for number in range(40)]

    async def bill(name: str) -> list[bool]:
        asking = (instances.of(n).claim_bill(name, owner) for n, owner in enumerate(owners))
        return await asyncio.gather(*asking)

    for name in ("one", "two"):
        first_item = await bill(name)
        assert sum(first_item) == 1
        assert await bill(name) == first_item  # the owner may repeat its request


@pytest.mark.parametrize("limit", [MONTH, TOKENS], ids=lambda limit: limit.kind.name)
async def test_count_only_limit_never_refuses(instances: Instances, limit: Limit) -> None:
    store, [call_claims] = instances.stores[0], claims((limit, 0))
    free = [replace(call_claims, is_count_only=True)]
    used = [replace(call_claims, amount=limit.capacity)]
    assert (await store.admit("spends", used)).admitted
    await store.settle("spends", [limit.capacity + 1])
    assert not (await store.admit("asks", [call_claims])).admitted

    outcome = await store.admit("counts", free)
    await store.settle("counts", [9])

    assert (outcome.admitted, outcome.longest_refusal) == (True, None)
    assert [state.would_refuse for state in await instances.standings(free)] == [False]
    [standing] = await instances.standings([call_claims])
    assert (standing.used, standing.would_refuse) == (limit.capacity + 10, True)


async def test_renewed_lease_outlasts_its_period() -> None:
    clock, call_claims = Clock(), claims((Limit("at-once", KINDS["concurrency"], 1), 1))
    store = clock.memory()
    await store.admit("long", call_claims)
    event = asyncio.Event()

    async def sleep(seconds: float) -> None:
        clock.ms += int(seconds * 1000)
        if clock.seconds() > Clock().seconds() + 10 * LEASE_S:
            event.set()
        await asyncio.sleep(0)

    task = asyncio.ensure_future(renew_leases(store, sleep))
    await event.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not (await store.admit("other", call_claims)).admitted
