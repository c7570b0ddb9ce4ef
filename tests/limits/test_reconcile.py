"""The drift between what budgets counted and what the ledger knows, while calls go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from proxy.limits import Admission
from proxy.limits.reconcile import EVERY_S, SHARE, TRIES, Reconciler
from proxy.limits.stores.memory import MemoryStore
from proxy.record import Record, TraceIds
from proxy.types import Call, RequestHead
from proxy.types.budget import BudgetQuery
from proxy.types.limit import Claim, Limit
from proxy.types.windows import Calendar
from tests.limits.test_backfill import plan
from tests.limits.world import Clock

MONTH = Limit("month", "usd", 1_000_000, Calendar("month"))
SUPPORT, SEARCH = "tag.team:support", "tag.team:search"
SCOPES = frozenset({SUPPORT, SEARCH})
BUDGET = BudgetQuery(MONTH, ("tag.team",), frozenset({"support-chat"}), SCOPES)
Kept = Mapping[str, int]


class Stop(Exception):
    """Enough was seen."""


@dataclass
class World:
    """Counters, a ledger that says what a test has it say, and a clock that only sleeps move."""

    clock: Clock = field(default_factory=Clock)
    budgets: list[BudgetQuery] = field(default_factory=lambda: [BUDGET])
    kept: list[Kept] = field(default_factory=list)
    told: list[Mapping[str, int]] = field(default_factory=list)
    failed: list[Exception] = field(default_factory=list)
    rests: list[float] = field(default_factory=list)
    takes_s: float = 0.0

    def __post_init__(self) -> None:
        self.store = self.clock.memory()
        self.admission = Admission(self.store, lambda standing: None)
        self.drift = Reconciler(
            self.admission,
            lambda: self.budgets,
            self.spent,
            self.told.append,
            self.failed.append,
            self.sleep,
            self.clock.seconds,
            self.clock.seconds,
        )

    async def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.clock.ms += int(seconds * 1000)

    async def spent(self, budget: BudgetQuery, since_ms: int) -> Kept:
        self.clock.ms += int(self.takes_s * 1000)
        return self.kept.pop(0) if len(self.kept) > 1 else self.kept[0]

    async def use(self, amount: int, scope: str = SUPPORT, call: str = "call") -> None:
        await self.store.admit(call, [Claim(MONTH, scope, amount)])
        await self.store.settle(call, [amount])


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    ("kept", "drift"),
    [
        ({SUPPORT: 100, SEARCH: 50}, 0),
        ({SUPPORT: 90, SEARCH: 50}, 10),
        ({SUPPORT: 100, SEARCH: 80}, -30),
        ({SUPPORT: 95, SEARCH: 80}, -30),
        ({}, 100),
    ],
)
async def test_the_largest_difference_of_any_counter_is_told(
    kept: Kept, drift: int, world: World
) -> None:
    await world.use(100)
    await world.use(50, SEARCH)
    world.kept = [kept]

    assert await world.drift.look() == {"month": drift}


async def test_what_is_spent_while_it_looks_is_no_drift(world: World) -> None:
    await world.use(100)

    async def sleep(seconds: float) -> None:
        await world.use(30)

    world.drift.sleep = sleep
    world.kept = [{SUPPORT: 115}]

    assert await world.drift.look() == {"month": 0}


async def test_what_comes_and_goes_is_no_drift(world: World) -> None:
    await world.use(100)
    world.kept = [{SUPPORT: 60}, {SUPPORT: 98}, {SUPPORT: 100}]

    assert await world.drift.look() == {"month": 0}


async def test_what_stays_is_told_as_the_least_that_was_seen(world: World) -> None:
    await world.use(100)
    world.kept = [{SUPPORT: 60}, {SUPPORT: 95}, {SUPPORT: 80}]

    assert await world.drift.look() == {"month": 5}
    assert len(world.rests) == TRIES


async def test_a_counter_that_nobody_has_asked_since_the_start_is_not_known(world: World) -> None:
    world.kept = [{SUPPORT: 100}]

    assert await world.drift.look() == {}


async def test_unknown_is_not_zero(world: World) -> None:
    await world.use(100)
    world.kept = [{SUPPORT: 100}]
    world.budgets = [replace(BUDGET, limit=replace(MONTH, shadow=True))]

    assert await world.drift.look() == {}


async def test_a_store_that_is_away_is_not_known(world: World) -> None:
    class Away(MemoryStore):
        certain = False

    store = Away(world.clock.seconds, world.clock.seconds)
    world.drift.admission = Admission(store, lambda standing: None)
    await store.admit("call", [Claim(MONTH, SUPPORT, 100)])
    world.kept = [{SUPPORT: 100}]

    assert await world.drift.look() == {}


async def test_a_window_that_ends_meanwhile_is_not_known(world: World) -> None:
    await world.use(100)
    world.kept = [{SUPPORT: 100}]
    world.takes_s = 40 * 86_400

    assert await world.drift.look() == {}


async def test_a_budget_of_other_deployments_than_before_is_not_known_until_its_window_ends(
    world: World,
) -> None:
    await world.use(100)
    world.kept = [{SUPPORT: 100}]
    before = await world.drift.look()
    world.budgets = [replace(BUDGET, deployments=frozenset({"support-chat", "search-answers"}))]
    changed = await world.drift.look()
    world.clock.ms += 31 * 86_400_000
    await world.use(7)
    world.kept = [{SUPPORT: 7}]

    assert (before, changed, await world.drift.look()) == ({"month": 0}, {}, {"month": 0})


async def test_what_rules_say_of_a_budget_is_in_its_charges_and_may_change(world: World) -> None:
    await world.use(100)
    world.kept = [{SUPPORT: 90}]
    world.budgets = [replace(BUDGET, deployments=None)]

    assert await world.drift.look() == {"month": 10}


async def test_it_looks_again_and_again_and_takes_little_of_the_time(world: World) -> None:
    await world.use(100)
    world.kept = [{SUPPORT: 100}]
    world.takes_s = 60.0
    tell = world.drift.report

    def enough(drifts: Mapping[str, int]) -> None:
        tell(drifts)
        if len(world.told) == 2:
            raise Stop

    world.drift.report = enough
    with pytest.raises(Stop):
        await world.drift.run()

    assert world.told == [{"month": 0}, {"month": 0}]
    assert world.rests[0] == EVERY_S
    assert world.rests[2] == pytest.approx(SHARE * 62.0)


async def test_a_look_that_fails_is_told_and_ends_nothing(world: World) -> None:
    await world.use(100)

    def enough(drifts: Mapping[str, int]) -> None:
        world.told.append(drifts)
        world.kept = [{SUPPORT: 100}]
        if len(world.told) == 2:
            raise Stop

    world.drift.report = enough
    with pytest.raises(Stop):
        await world.drift.run()

    assert [type(error) for error in world.failed] == [IndexError]
    assert world.told == [{}, {"month": 0}]


async def test_what_calls_hold_is_theirs_under_later_policies_with_the_same_limit(
    world: World,
) -> None:
    at = datetime.fromtimestamp(world.clock.seconds(), UTC)
    head = RequestHead("openai", "completions", "/v1/completions", "r", "n", at=at)
    record = Record(TraceIds("a" * 32, "b" * 16, "c" * 16), 0.0, at, lambda: 0.0)
    call = Call(head, {"model": "m", "prompt": "x", "max_tokens": 5}, ("m",))
    world.kept = [{}]
    async with world.admission.admit(plan(MONTH), call, record):
        for limit in (MONTH, replace(MONTH)):  # policies are read again: an equal limit
            world.budgets = [BudgetQuery(limit, (), frozenset({"chat"}), frozenset({""}))]

            assert await world.drift.look() == {"month": 0}
