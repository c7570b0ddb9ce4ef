"""An instance without its shared store: what it lets through by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from proxy.limits.stores.local_fallback import (
    CLOCK_TOLERANCE_MS,
    LocalFallback,
    LostCounterDetector,
)
from proxy.types.limit import Claim, Limit, OnStoreError
from proxy.types.outcome import FRESH, LimitDecision, outcome
from tests.for_each import for_each
from tests.limits.world import MONTH, PLACES, REQUESTS, SUPPORT, TOKENS, Clock, claims, would_refuse


def alone(clock: Clock, replicas: int = 1) -> LocalFallback:
    return LocalFallback(clock.seconds, clock.seconds, replicas)


def admitted(fallback: LocalFallback, limit: Limit, times: int, amount: int = 1) -> int:
    call_claims = claims((limit, amount))
    return sum(fallback.admit(f"call-{n}", call_claims).admitted for n in range(times))


def seen(clock: Clock, limit: Limit, used: int) -> LimitDecision:
    store = clock.memory()
    store.admit_sync("all", claims((limit, used)))
    return store.admit_sync("last", claims((limit, 0)))


def test_an_instance_keeps_to_its_share() -> None:
    assert admitted(alone(Clock(), replicas=4), REQUESTS, 100) == 25
    assert admitted(alone(Clock(), replicas=4), MONTH, 100) == 25
    assert admitted(alone(Clock(), replicas=1000), PLACES, 100) == 1


def test_it_bears_its_share_of_what_all_have_used() -> None:
    clock = Clock()
    for limit in (MONTH, TOKENS):
        fallback = alone(clock, replicas=2)
        fallback.observe(seen(clock, limit, 90))

        assert admitted(fallback, limit, 100) == 5


def test_what_has_drained_or_ended_since_is_not_borne() -> None:
    clock = Clock()
    for limit, later, remaining in ((TOKENS, 30_000, 60), (MONTH, 31 * 86_400_000, 100)):
        fallback = alone(clock)
        fallback.observe(seen(clock, limit, 90))
        clock.ms += later

        assert admitted(fallback, limit, 200) == remaining


def test_open_counts_nothing_and_closed_refuses_for_a_while() -> None:
    fallback = alone(Clock())
    how: list[OnStoreError] = ["open", "closed"]
    opened, closed = (replace(MONTH, on_store_error=way) for way in how)

    assert admitted(fallback, opened, 200) == 200
    refused = fallback.admit("call", claims((REQUESTS, 1), (closed, 1)))
    assert refused.refusal is not None
    assert (refused.refusal.limit, refused.refusal.retry_after_s) == (closed, 1.0)
    assert fallback.local.check(claims((REQUESTS, 0))).standings[0].used == 0


def test_closed_in_shadow_refuses_nobody() -> None:
    shadow = replace(MONTH, on_store_error="closed", shadow=True)

    outcome = alone(Clock()).admit("call", claims((shadow, 1)))

    assert outcome.admitted
    assert would_refuse(outcome) == ("month",)


def test_what_only_the_share_is_too_small_for_is_not_refused_for_good() -> None:
    fallback = alone(Clock(), replicas=4)

    for amount, wait in ((50, 1.0), (101, None)):
        refusal = fallback.admit("call", claims((TOKENS, amount))).refusal
        assert refusal is not None
        assert refusal.retry_after_s == wait


def test_places_of_calls_that_were_under_way_are_held_until_they_end() -> None:
    fallback, limit = alone(Clock(), replicas=2), replace(PLACES, amount=4)
    claims_before = claims((REQUESTS, 1), (limit, 1))
    fallback.restore_leases("before", claims_before)

    assert admitted(fallback, limit, 5) == 1
    fallback.settle("before", claims_before, [1, 1])
    assert admitted(fallback, limit, 5) == 2


RESET_MS = 60_000


@dataclass
class World:
    ms: int = 5_000

    def __post_init__(self) -> None:
        self.losses = LostCounterDetector(lambda: self.ms / 1000)

    def decided(self, *, fresh: bool, wait: int = 0, scope: str = SUPPORT) -> list[Limit]:
        claims = [Claim(REQUESTS, scope, 1), Claim(MONTH, scope, 1)]
        readings = [1, -1, 0, FRESH, 1, RESET_MS, wait, FRESH if fresh else 0]
        return [claim.limit for claim in self.losses.find(outcome(claims, readings))]


@for_each(
    ("steps", "losses"),
    [
        ([{"fresh": each} for each in (True, False, True, False, True)], [0, 0, 1, 0, 1]),
        ([{"fresh": True}, {"fresh": True, "later": RESET_MS - CLOCK_TOLERANCE_MS}], [0, 0]),
        ([{"fresh": True, "wait": 10}, {"fresh": True}], [0, 0]),
        ([{"fresh": True}, {"fresh": True, "scope": "key:other"}], [0, 0]),
    ],
    ids=["begins again", "next window", "refused", "other scope"],
)
def test_counter_that_begins_again_in_its_window_is_lost(
    steps: list[dict[str, Any]], losses: list[int]
) -> None:
    world = World()

    results = []
    for step in steps:
        world.ms += step.get("later", 0)
        results.append(world.decided(**{k: v for k, v in step.items() if k != "later"}))

    assert results == [[MONTH] * count for count in losses]
