"""Trips to a shared store that fail one at a time: each call is decided once, by one of the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from proxy.limits.stores.failover import FailoverStore
from proxy.limits.stores.local_fallback import LocalFallback
from proxy.limits.stores.memory import MemoryStore
from proxy.limits.stores.store import StoreUnavailable
from proxy.types.limit import Claim, Limit
from proxy.types.outcome import LimitDecision
from tests.limits.stores.test_failover import noting
from tests.limits.world import MONTH, PLACES, REQUESTS, TOKENS, Clock, claims

HOURLY = replace(REQUESTS, window=3600)
WORDS = replace(TOKENS, window=3600)


@dataclass
class Slow(MemoryStore):
    """A shared store to which the trips fail that a test says, each for all calls on it."""

    fails: object = None
    tell: list[str] = field(default_factory=list)

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        if self.fails is not None:
            raise StoreUnavailable("TimeoutError", trip=self.fails)
        return self.admit_sync(request_id, claims)

    def settle_deferred(
        self, request_id: str, actuals: Sequence[int], on_error: Callable[[StoreUnavailable], None]
    ) -> None:
        self.settle_sync(request_id, actuals)

    async def ping(self) -> None:
        """It is there."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slow(clock: Clock) -> Slow:
    return Slow(clock.seconds, clock.seconds)


def sheltered(slow: Slow, clock: Clock, replicas: int = 1) -> FailoverStore:
    async def sleep(seconds: float) -> None:
        raise AssertionError

    alone = LocalFallback(clock.seconds, clock.seconds, replicas)
    tell = noting(slow.tell)
    return FailoverStore(slow, alone, tell, sleep, lambda: 0.5, lambda: "id", lambda claim: None)


async def call(store: FailoverStore, name: str, call_claims: Sequence[Claim], used: int) -> bool:
    admitted = (await store.admit(name, call_claims)).admitted
    if admitted:
        await store.settle(name, [used] * len(call_claims))
    return admitted


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("limit", [MONTH, HOURLY, WORDS], ids=lambda limit: limit.kind.name)
async def test_single_failures_fit(limit: Limit, replicas: int, slow: Slow, clock: Clock) -> None:
    store = sheltered(slow, clock, replicas)
    refused = []
    for number in range(60):
        slow.fails = object() if number % 5 == 4 else None
        if not await call(store, f"call-{number}", claims((limit, 1)), 1):
            refused.append(number)
        share = store.fallback.check(claims((limit, 0))).standings[0].used
        assert share <= -(-number // replicas) + 1

    assert refused == []
    assert slow.tell == []


async def test_local_use_counts_until_next_reading(slow: Slow, clock: Clock) -> None:
    store, other_claims = sheltered(slow, clock), claims((HOURLY, 1))
    slow.admit_sync("others", claims((MONTH, 90)))
    assert await call(store, "first", claims((MONTH, 0)), 0)
    admitted_count = 0
    for number in range(10):
        slow.fails = object()
        admitted_count += await call(store, f"alone-{number}", claims((MONTH, 2)), 2)
        slow.fails = None
        await call(store, f"other-{number}", other_claims, 1)

    assert admitted_count == 5


async def test_failed_trip_keeps_leases_of_running_calls(slow: Slow, clock: Clock) -> None:
    store, single_claims = sheltered(slow, clock), claims((replace(PLACES, amount=10), 1))
    for number in range(6):
        assert (await store.admit(f"shared-{number}", single_claims)).admitted
    slow.fails = object()
    alone = [(await store.admit(f"alone-{number}", single_claims)).admitted for number in range(6)]
    slow.fails = None
    await store.settle("shared-0", [0])
    await store.settle("alone-0", [0])
    await store.admit("heard", claims((HOURLY, 1)))
    slow.fails = object()
    later = [(await store.admit(f"later-{number}", single_claims)).admitted for number in range(4)]

    assert alone == [True] * 4 + [False] * 2
    assert later == [True] * 2 + [False] * 2


async def test_what_calls_had_claimed_and_not_used_is_not_borne(slow: Slow, clock: Clock) -> None:
    store, shadow = sheltered(slow, clock), replace(MONTH, name="shadow", shadow=True)
    slow.admit_sync("others", claims((shadow, 100)))
    call_claims = claims((MONTH, 40), (shadow, 40), (HOURLY, 1))
    for number, used in enumerate((3, 0, 2)):
        await call(store, f"call-{number}", call_claims, used)
    slow.fails = object()
    await store.admit("alone", claims((MONTH, 1), (shadow, 0)))

    states = store.fallback.check(claims((MONTH, 0), (shadow, 0))).standings
    assert [standing.used for standing in states] == [6, 100]


async def test_earlier_window_is_not_refunded_here(slow: Slow, clock: Clock) -> None:
    store = sheltered(slow, clock)
    await store.admit("long", claims((MONTH, 40)))
    clock.ms += 31 * 86_400_000
    await call(store, "next", claims((MONTH, 10)), 10)
    await store.settle("long", [0])
    slow.fails = object()
    await store.admit("alone", claims((MONTH, 1)))

    assert store.fallback.check(claims((MONTH, 0))).standings[0].used == 11
