"""The store of one process: what it forgets, and what it must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MIN_SWEEP_SIZE
from proxy.limits.stores.store import BillingOwners
from proxy.types.limit import Limit
from proxy.types.windows import Calendar
from tests.limits.world import MONTH, PLACES, REQUESTS, Clock, claims

HOUR_MS = 3_600_000


def test_counters_that_say_nothing_are_forgotten() -> None:
    clock = Clock()
    store = clock.memory()
    for number in range(20 * MIN_SWEEP_SIZE):
        clock.ms += 60  # a request is drained in 600
        store.admit_sync(f"call-{number}", claims((REQUESTS, 1), scope=f"user:{number}"))
        store.settle_sync(f"call-{number}", [1])

    assert store.size <= MIN_SWEEP_SIZE
    assert store.evicted == 0


def test_there_is_a_most_and_what_goes_is_counted() -> None:
    clock = Clock()
    store = replace(clock.memory(), max_counters=100)
    for number in range(1000):
        store.admit_sync(f"call-{number}", claims((REQUESTS, 9), scope=f"user:{number}"))
        store.settle_sync(f"call-{number}", [9])

    assert store.size <= 100
    assert store.evicted >= 900
    newest = store.check(claims((REQUESTS, 0), scope="user:999")).standings[0]
    assert newest.used == 9


def test_a_counter_with_a_call_under_way_is_not_forgotten() -> None:
    clock = Clock()
    store = clock.memory()
    store.admit_sync("slow", claims((REQUESTS, 1), scope="user:slow"))
    clock.ms += HOUR_MS
    for number in range(2 * MIN_SWEEP_SIZE):
        store.admit_sync(f"call-{number}", claims((REQUESTS, 1), scope=f"user:{number}"))
        store.settle_sync(f"call-{number}", [0])

    store.settle_sync("slow", [51])

    used = store.check(claims((REQUESTS, 0), scope="user:slow")).standings[0].used
    assert used == 50


def test_calls_that_nobody_settles_are_bounded_and_stay_charged() -> None:
    store = replace(Clock().memory(), max_counters=100)
    for number in range(150):
        store.admit_sync(f"call-{number}", claims((MONTH, 0), (PLACES, 0)))

    assert store.in_flight == 100


@pytest.mark.parametrize(("hours", "stored_count"), [(1, 10), (30, 0)])
def test_money_is_forgotten_long_after_its_window_only(hours: int, stored_count: int) -> None:
    clock, hour = Clock(), Limit("hour", KINDS["usd"], 100, Calendar("hour"))
    store = clock.memory()
    store.admit_sync("call", claims((hour, 10)))
    store.settle_sync("call", [10])
    clock.ms += hours * HOUR_MS
    for number in range(2 * MIN_SWEEP_SIZE):
        store.admit_sync(f"call-{number}", claims((PLACES, 0), scope=f"u:{number}"))
        store.settle_sync(f"call-{number}", [0])

    clock.ms -= hours * HOUR_MS

    assert store.check(claims((hour, 0))).standings[0].used == stored_count


def test_asking_twice_for_a_call_charges_it_once() -> None:
    store = Clock().memory()
    call_claims = claims((MONTH, 60), (PLACES, 1))

    assert store.admit_sync("call", call_claims).admitted
    assert store.admit_sync("call", call_claims).admitted

    standings = store.check(call_claims).standings
    assert [standing.used for standing in standings] == [60, 1]


def test_what_was_billed_is_known_up_to_a_most() -> None:
    billed = BillingOwners(max_owners=3)
    for number in range(5):
        assert billed.bill(f"name-{number}", "one")

    assert [billed.bill(f"name-{number}", "two") for number in (2, 3, 4)] == [False] * 3
    assert billed.bill("name-0", "two")
