"""Admission by one instance while its shared store is unavailable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from proxy.limits.stores.failover import FailoverStore
from proxy.limits.stores.local_fallback import CLOCK_TOLERANCE_MS, LocalFallback
from proxy.limits.stores.memory import MemoryStore
from proxy.limits.stores.store import StoreUnavailable
from proxy.types.limit import (
    FRESH_FLAG,
    Claim,
    Limit,
    LimitDecision,
    OnStoreError,
    build_limit_decision,
)
from tests.for_each import for_each
from tests.limits.sample_limits import (
    MONTH,
    PLACES,
    REQUESTS,
    SUPPORT,
    TOKENS,
    Clock,
    claims,
    run_sync,
    would_refuse,
)
from tests.limits.stores.test_failover import failover


def alone(clock: Clock, replicas: int = 1) -> LocalFallback:
    return LocalFallback(clock.seconds, clock.seconds, replicas)


def admitted(fallback: LocalFallback, limit: Limit, times: int, amount: int = 1) -> int:
    call_claims = claims((limit, amount))
    return sum(run_sync(fallback.admit(f"call-{n}", call_claims)).admitted for n in range(times))


def observe(clock: Clock, limit: Limit, used: int) -> LimitDecision:
    store = clock.memory()
    run_sync(store.admit("all", claims((limit, used))))
    return run_sync(store.admit("last", claims((limit, 0))))


def test_instance_admits_its_share() -> None:
    assert admitted(alone(Clock(), replicas=4), REQUESTS, 100) == 25
    assert admitted(alone(Clock(), replicas=4), MONTH, 100) == 25
    assert admitted(alone(Clock(), replicas=1000), PLACES, 100) == 1


def test_share_of_large_rate_is_exact_in_a_longer_window() -> None:
    clock = Clock()
    month_s = 30 * 86_400
    limit = replace(TOKENS, amount=100_000_000, window=month_s, burst=None)
    fallback = alone(clock, replicas=3)

    assert admitted(fallback, limit, 10, amount=11_111_111) == 3
    clock.ms += month_s * 1000 // 3
    assert not run_sync(fallback.admit("too much", claims((limit, 11_111_112)))).admitted
    assert run_sync(fallback.admit("next", claims((limit, 11_111_111)))).admitted


def test_known_usage_is_divided_by_instances() -> None:
    clock = Clock()
    for limit in (MONTH, TOKENS):
        fallback = alone(clock, replicas=2)
        fallback.record_decision(observe(clock, limit, 90))

        assert admitted(fallback, limit, 100) == 5


def test_drained_or_ended_usage_is_not_counted() -> None:
    clock = Clock()
    for limit, later, remaining in ((TOKENS, 30_000, 60), (MONTH, 31 * 86_400_000, 100)):
        fallback = alone(clock)
        fallback.record_decision(observe(clock, limit, 90))
        clock.ms += later

        assert admitted(fallback, limit, 200) == remaining


def test_open_counts_nothing_and_closed_refuses() -> None:
    fallback = alone(Clock())
    how: list[OnStoreError] = ["open", "closed"]
    opened, closed = (replace(MONTH, on_store_error=way) for way in how)

    assert admitted(fallback, opened, 200) == 200
    refused = run_sync(fallback.admit("call", claims((REQUESTS, 1), (closed, 1))))
    assert refused.longest_refusal is not None
    assert (refused.longest_refusal.limit, refused.longest_refusal.retry_after_s) == (closed, 1.0)
    assert fallback.local.preview(claims((REQUESTS, 0))).counter_states[0].used == 0


def test_closed_shadow_limit_refuses_nothing() -> None:
    shadow = replace(MONTH, on_store_error="closed", shadow=True)

    outcome = run_sync(alone(Clock()).admit("call", claims((shadow, 1))))

    assert outcome.admitted
    assert would_refuse(outcome) == ("month",)


def test_claim_above_the_share_has_a_retry_after() -> None:
    fallback = alone(Clock(), replicas=4)

    for amount, wait in ((50, 1.0), (101, None)):
        refusal = run_sync(fallback.admit("call", claims((TOKENS, amount)))).longest_refusal
        assert refusal is not None
        assert refusal.retry_after_s == wait


def test_leases_of_calls_in_flight_are_held() -> None:
    fallback, limit = alone(Clock(), replicas=2), replace(PLACES, amount=4)
    claims_before = claims((REQUESTS, 1), (limit, 1))
    fallback.restore_leases("before", claims_before)

    assert admitted(fallback, limit, 5) == 1
    run_sync(fallback.settle("before", claims_before, [1, 1]))
    assert admitted(fallback, limit, 5) == 2


RESET_MS = 60_000


@dataclass
class OutageRun:
    ms: int = 5_000

    def __post_init__(self) -> None:
        self.fallback = LocalFallback(lambda: self.ms / 1000, lambda: self.ms / 1000)

    def decide(self, *, fresh: bool, wait: int = 0, scope: str = SUPPORT) -> list[Limit]:
        claims = [Claim(REQUESTS, scope, 1), Claim(MONTH, scope, 1)]
        readings = [1, -1, 0, FRESH_FLAG, 1, RESET_MS, wait, FRESH_FLAG if fresh else 0]
        return [
            claim.limit
            for claim in self.fallback.record_decision(build_limit_decision(claims, readings))
        ]


@for_each(
    ("steps", "losses"),
    [
        ([{"fresh": is_fresh} for is_fresh in (True, False, True, False, True)], [0, 0, 1, 0, 1]),
        ([{"fresh": True}, {"fresh": True, "later": RESET_MS - CLOCK_TOLERANCE_MS}], [0, 0]),
        ([{"fresh": True, "wait": 10}, {"fresh": True}], [0, 0]),
        ([{"fresh": True}, {"fresh": True, "scope": "key:other"}], [0, 0]),
    ],
    ids=["begins again", "next window", "refused", "other scope"],
)
def test_restarted_counter_is_lost(steps: list[dict[str, Any]], losses: list[int]) -> None:
    world = OutageRun()

    results = []
    for step in steps:
        world.ms += step.get("later", 0)
        results.append(world.decide(**{k: v for k, v in step.items() if k != "later"}))

    assert results == [[MONTH] * count for count in losses]


HOURLY = replace(REQUESTS, window=3600)
WORDS = replace(TOKENS, window=3600)


@dataclass
class UnreliableStore(MemoryStore):
    """Shared store whose round trips fail as a test sets, each for all its calls."""

    fails: object = None
    tell: list[str] = field(default_factory=list)

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        if self.fails is not None:
            raise StoreUnavailable("TimeoutError", trip=self.fails)
        return await super().admit(request_id, claims)

    def settle_deferred(
        self, request_id: str, actuals: Sequence[int], on_error: Callable[[StoreUnavailable], None]
    ) -> None:
        run_sync(self.settle(request_id, actuals))

    async def ping(self) -> None:
        """Succeed."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def unreliable_store(clock: Clock) -> UnreliableStore:
    return UnreliableStore(clock.seconds, clock.seconds)


def with_fallback(
    unreliable_store: UnreliableStore, clock: Clock, replicas: int = 1
) -> FailoverStore:
    async def sleep(seconds: float) -> None:
        raise AssertionError

    alone = LocalFallback(clock.seconds, clock.seconds, replicas)
    return failover(unreliable_store, unreliable_store.tell, alone, sleep)


async def call(store: FailoverStore, name: str, call_claims: Sequence[Claim], used: int) -> bool:
    admitted = (await store.admit(name, call_claims)).admitted
    if admitted:
        await store.settle(name, [used] * len(call_claims))
    return admitted


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("limit", [MONTH, HOURLY, WORDS], ids=lambda limit: limit.kind.name)
async def test_single_failures_keep_the_budget(
    limit: Limit, replicas: int, unreliable_store: UnreliableStore, clock: Clock
) -> None:
    store = with_fallback(unreliable_store, clock, replicas)
    refused = []
    for number in range(60):
        unreliable_store.fails = object() if number % 5 == 4 else None
        if not await call(store, f"call-{number}", claims((limit, 1)), 1):
            refused.append(number)
        share = store.fallback.preview(claims((limit, 0))).counter_states[0].used
        assert share <= -(-number // replicas) + 1

    assert refused == []
    assert unreliable_store.tell == []


async def test_local_use_counts_until_next_reading(
    unreliable_store: UnreliableStore, clock: Clock
) -> None:
    store, other_claims = with_fallback(unreliable_store, clock), claims((HOURLY, 1))
    run_sync(unreliable_store.admit("others", claims((MONTH, 90))))
    assert await call(store, "first", claims((MONTH, 0)), 0)
    admitted_count = 0
    for number in range(10):
        unreliable_store.fails = object()
        admitted_count += await call(store, f"alone-{number}", claims((MONTH, 2)), 2)
        unreliable_store.fails = None
        await call(store, f"other-{number}", other_claims, 1)

    assert admitted_count == 5


async def test_failed_trip_keeps_leases_of_running_calls(
    unreliable_store: UnreliableStore, clock: Clock
) -> None:
    store, single_claims = (
        with_fallback(unreliable_store, clock),
        claims((replace(PLACES, amount=10), 1)),
    )
    for number in range(6):
        assert (await store.admit(f"shared-{number}", single_claims)).admitted
    unreliable_store.fails = object()
    alone = [(await store.admit(f"alone-{number}", single_claims)).admitted for number in range(6)]
    unreliable_store.fails = None
    await store.settle("shared-0", [0])
    await store.settle("alone-0", [0])
    await store.admit("heard", claims((HOURLY, 1)))
    unreliable_store.fails = object()
    later = [(await store.admit(f"later-{number}", single_claims)).admitted for number in range(4)]

    assert alone == [True] * 4 + [False] * 2
    assert later == [True] * 2 + [False] * 2


async def test_unused_claims_do_not_count(unreliable_store: UnreliableStore, clock: Clock) -> None:
    store, shadow = (
        with_fallback(unreliable_store, clock),
        replace(MONTH, name="shadow", shadow=True),
    )
    run_sync(unreliable_store.admit("others", claims((shadow, 100))))
    call_claims = claims((MONTH, 40), (shadow, 40), (HOURLY, 1))
    for number, used in enumerate((3, 0, 2)):
        await call(store, f"call-{number}", call_claims, used)
    unreliable_store.fails = object()
    await store.admit("alone", claims((MONTH, 1), (shadow, 0)))

    states = store.fallback.preview(claims((MONTH, 0), (shadow, 0))).counter_states
    assert [standing.used for standing in states] == [6, 100]


async def test_settlement_of_earlier_window_is_not_refunded(
    unreliable_store: UnreliableStore, clock: Clock
) -> None:
    store = with_fallback(unreliable_store, clock)
    await store.admit("long", claims((MONTH, 40)))
    clock.ms += 31 * 86_400_000
    await call(store, "next", claims((MONTH, 10)), 10)
    await store.settle("long", [0])
    unreliable_store.fails = object()
    await store.admit("alone", claims((MONTH, 1)))

    assert store.fallback.preview(claims((MONTH, 0))).counter_states[0].used == 11
