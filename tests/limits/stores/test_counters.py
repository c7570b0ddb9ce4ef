"""Arithmetic of limits, through a store with a clock that the test sets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MemoryStore
from proxy.types.limit import Limit, LimitDecision
from proxy.types.windows import Calendar
from tests.limits.sample_limits import (
    MONTH,
    PLACES,
    REQUESTS,
    TOKENS,
    Clock,
    claims,
    run_sync,
)

DAY_MS = 86_400_000


def admit(store: MemoryStore, name: str, limit: Limit, amount: int = 1) -> LimitDecision:
    return run_sync(store.admit(name, claims((limit, amount))))


def used(store: MemoryStore, limit: Limit) -> int:
    return store.preview(claims((limit, 0))).counter_states[0].used


def wait_ms(outcome: LimitDecision) -> int:
    assert outcome.longest_refusal is not None
    assert outcome.longest_refusal.retry_after_s is not None
    return round(outcome.longest_refusal.retry_after_s * 1000)


@settings(deadline=None)
@given(
    amount=st.integers(1, 5000),
    window=st.integers(1, 4000),
    burst=st.integers(1, 5000),
    request_times=st.lists(st.integers(1, 5000), min_size=1, max_size=20),
)
def test_retry_after_is_exact(
    amount: int, window: int, burst: int, request_times: list[int]
) -> None:
    clock = Clock()
    store, limit = clock.memory(), Limit("team", KINDS["tokens"], amount, window, burst)
    for number, count in enumerate(request_times):
        outcome = admit(store, f"call-{number}", limit, min(count, burst))
        if outcome.admitted:
            continue
        clock.ms += wait_ms(outcome) - 1
        assert not admit(store, f"call-{number}", limit, min(count, burst)).admitted
        clock.ms += 1
        assert admit(store, f"call-{number}", limit, min(count, burst)).admitted


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 9)), min_size=1, max_size=60))
def test_no_interval_exceeds_burst_and_rate(steps: list[tuple[int, int]]) -> None:
    clock, limit = Clock(), Limit("team", KINDS["tokens"], 7, 1, burst=11)
    store, admitted_count = clock.memory(), []
    for number, (passes, amount) in enumerate(steps):
        clock.ms += passes
        if admit(store, f"call-{number}", limit, amount).admitted:
            admitted_count.append((clock.ms, amount))

    for first_count, (begin, _) in enumerate(admitted_count):
        total = 0
        for position, amount in admitted_count[first_count:]:
            total += amount
            assert total * 1000 <= 11 * 1000 + 7 * (position - begin)


@pytest.mark.parametrize("limit", [TOKENS, MONTH, PLACES], ids=lambda limit: limit.kind.name)
def test_claim_above_the_limit_has_no_retry_after(limit: Limit) -> None:
    outcome = admit(Clock().memory(), "call", limit, 101)

    assert outcome.longest_refusal is not None
    assert outcome.longest_refusal.retry_after_s is None


def test_drained_amount_is_not_refunded() -> None:
    clock = Clock()
    store, limit = clock.memory(), Limit("team", KINDS["requests"], 100, 60)
    admit(store, "slow", limit, 100)
    clock.ms += 60_000
    admit(store, "others", limit, 100)

    run_sync(store.settle("slow", [0]))

    assert used(store, limit) == 100


def test_changed_limit_keeps_usage() -> None:
    store = Clock().memory()
    admit(store, "call", REQUESTS, 60)

    assert used(store, replace(REQUESTS, amount=77)) == 60
    assert used(store, replace(REQUESTS, window=3600)) == 60


def test_backward_clock_drains_nothing() -> None:
    clock = Clock()
    store = clock.memory()
    admit(store, "call", REQUESTS, 60)
    admit(store, "paid", MONTH, 60)

    clock.ms -= 3_600_000

    assert (used(store, REQUESTS), used(store, MONTH)) == (60, 60)


def test_budget_resets_at_end_of_window() -> None:
    clock = Clock()
    store = clock.memory()
    admit(store, "call", MONTH, 100)
    refused = admit(store, "refused", MONTH)

    clock.ms += wait_ms(refused) - 1
    assert not admit(store, "too-soon", MONTH).admitted
    clock.ms += 1
    assert admit(store, "next", MONTH).admitted


def test_late_call_is_settled_in_the_window_of_its_charge() -> None:
    clock = Clock()
    store, limit = clock.memory(), Limit("day", KINDS["usd"], 100, Calendar("day"))
    admit(store, "late", limit, 10)
    clock.ms += DAY_MS
    admit(store, "today", limit, 50)

    run_sync(store.settle("late", [90]))

    assert used(store, limit) == 50
    clock.ms -= DAY_MS
    assert used(store, limit) == 90


def test_backward_clock_does_not_reopen_a_window() -> None:
    clock = Clock()
    store, limit = clock.memory(), Limit("day", KINDS["usd"], 100, Calendar("day"))
    admit(store, "today", limit, 100)
    clock.ms += DAY_MS
    admit(store, "tomorrow", limit, 100)
    clock.ms -= DAY_MS

    assert not admit(store, "again", limit).admitted


def test_budget_warns_once_per_window_and_is_fresh_until_restored() -> None:
    clock = Clock()
    store, limit = clock.memory(), replace(MONTH, warn_at=0.8)
    states = []
    for number, amount in enumerate([79, 1, 1]):
        states.append(admit(store, f"call-{number}", limit, amount).counter_states[0])
        if number == 1:
            run_sync(store.restore(claims((limit, 0))))
    clock.ms += 31 * DAY_MS
    states.append(admit(store, "next", limit, 80).counter_states[0])

    assert [standing.is_warned for standing in states] == [False, True, False, True]
    assert [standing.is_fresh for standing in states] == [True, True, False, True]


def test_lease_ends_by_settlement_or_expiry() -> None:
    clock, limit = Clock(), Limit("at-once", KINDS["concurrency"], 2, lease_s=30)
    store = clock.memory()
    admit(store, "lost", limit)
    clock.ms += 10_000
    admit(store, "done", limit)
    assert not admit(store, "third", limit).admitted
    run_sync(store.settle("done", [1]))
    assert used(store, limit) == 1
    clock.ms += 20_000
    assert used(store, limit) == 0

    run_sync(store.settle("lost", [1]))

    assert used(store, limit) == 0


def test_renewed_lease_stays() -> None:
    clock, limit = Clock(), Limit("at-once", KINDS["concurrency"], 2, lease_s=30)
    store = clock.memory()
    admit(store, "long", limit)
    for _ in range(5):
        clock.ms += 20_000
        run_sync(store.renew())
    assert used(store, limit) == 1

    clock.ms += 40_000  # the process was paused, so the lease expired
    assert used(store, limit) == 0
    run_sync(store.renew())
    assert used(store, limit) == 1
    run_sync(store.settle("long", [1]))
    run_sync(store.renew())
    assert used(store, limit) == 0
