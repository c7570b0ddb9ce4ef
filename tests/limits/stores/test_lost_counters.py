"""When a fresh counter means that a budget was lost, and when that its window is new."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.limits.stores.lost_counters import CLOSE_MS, LostCounters
from proxy.types.limit import Claim, Limit
from proxy.types.outcome import FRESH, outcome
from tests.limits.world import MONTH, REQUESTS, SUPPORT

RESET_MS = 60_000


@dataclass
class World:
    """Losses, and the time as a test says."""

    ms: int = 5_000

    def __post_init__(self) -> None:
        self.losses = LostCounters(lambda: self.ms / 1000)

    def decided(self, *, fresh: bool, wait: int = 0, scope: str = SUPPORT) -> list[Limit]:
        claims = [Claim(REQUESTS, scope, 1), Claim(MONTH, scope, 1)]
        readings = [1, -1, 0, FRESH, 1, RESET_MS, wait, FRESH if fresh else 0]
        return [claim.limit for claim in self.losses.find(outcome(claims, readings))]


def test_a_counter_that_begins_anew_within_its_window_is_lost() -> None:
    world = World()

    told = [world.decided(fresh=fresh) for fresh in (True, False, True, False, True)]

    assert told == [[], [], [MONTH], [], [MONTH]]


def test_a_window_that_follows_another_is_no_loss() -> None:
    world = World()
    world.decided(fresh=True)
    world.ms += RESET_MS - CLOSE_MS

    assert world.decided(fresh=True) == []


def test_a_budget_that_refused_was_not_begun_by_that() -> None:
    world = World()
    world.decided(fresh=True, wait=10)

    assert world.decided(fresh=True) == []


def test_budgets_of_others_are_theirs() -> None:
    world = World()
    world.decided(fresh=True)

    assert world.decided(fresh=True, scope="key:other") == []
