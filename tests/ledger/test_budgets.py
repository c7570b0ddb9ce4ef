"""Budgets are restored from the ledger after a restart."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from proxy.call.attempts import Attempt, BudgetCharge
from proxy.call.record import Record
from proxy.errors import LimitExceeded
from proxy.ledger.audit import audit
from proxy.ledger.spending import NO_CALLS, CallsOfRun, read_spend_unless_per_user
from proxy.ledger.store import LedgerUnusable
from proxy.limits import Limiter
from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MemoryStore
from proxy.policy.catalog import list_budgets
from proxy.policy.store import read_folder
from proxy.settings import LedgerLocation
from proxy.types import Call, ModelCall, Plan, ScopedLimit, Target
from proxy.types.limit import BudgetQuery, Claim, Limit
from proxy.types.windows import Calendar
from tests.conftest import policies_for, running_proxy
from tests.doubles import ScriptedUpstream, legacy_completion, respond, usage
from tests.ledger import records
from tests.ledger.conftest import Stores
from tests.ledger.test_init import call
from tests.ledger.test_spending import write_ledger
from tests.ledger.test_sqlite import charged, counted
from tests.limits.sample_limits import Clock
from tests.test_pipeline import BEARER

BUDGET = """
policies:
  default: {limits: [{name: month, usd: 0.0001 per month, unpriced: allow, per: [key, tag.team]}]}
"""
MONTH = Limit("month", KINDS["usd"], 10**9, Calendar("month"))
NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
COST = 22_000  # nano-USD per finished record
SUPPORT, SEARCH = "tag.team:support", "tag.team:search"
CALL = BudgetQuery(MONTH, ("tag.team",), frozenset({"support-chat"}))
RULED = BudgetQuery(MONTH, ("tag.team",), None)


async def test_recall_precedes_new_calls(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    policies = policies_for(upstream.url) + BUDGET
    upstream.answer_with(respond(legacy_completion(usage=usage(600, 0))))  # 90 of 100 micro-USD
    async with running_proxy(tmp_path / "policies", policies, ledger=ledger) as proxy:
        assert await call(proxy.client, model="support-chat", max_tokens=20) == 200

    async with running_proxy(tmp_path / "policies", policies, ledger=ledger) as proxy:
        asking = [call(proxy.client, model="support-chat", max_tokens=20) for _ in range(30)]
        statuses = await asyncio.gather(*asking)

    assert set(statuses) == {429}


@pytest.mark.parametrize(
    ("scope", "nano_usd"),
    [
        ("", 66_000),
        ("key:support-widget", 66_000),
        ("key:somebody", 0),
        ("deployment:resilient", 22_000),
        (SUPPORT, 66_000),
        (SEARCH, 0),
        ("tag.env:", 22_000),
        ("model:gpt-4o-mini", 44_000),
        ("key:support-widget|deployment:resilient", 22_000),
        ("key:support-widget|user:somebody", None),
    ],
)
async def test_calls_before_a_budget_are_attributed_by_scope(
    scope: str, nano_usd: int | None, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with records.proxy_with_ledger(tmp_path, upstream) as (proxy, client, path):
        for model in ("support-chat", "support-chat", "resilient"):
            await call(client, model=model)
        await proxy.sink.wait(3)

    per = tuple(part.partition(":")[0] for part in scope.split("|") if part)
    budget = BudgetQuery(MONTH, per, frozenset({"support-chat", "resilient"}))
    spend = await read_spend_unless_per_user(path, budget, [scope], 0)
    assert spend == (None if nano_usd is None else {scope: nano_usd})


def call_at(minutes: int, *charges: tuple[str, str, int], team: str = "support") -> Record:
    """Return a call some minutes after noon, with charges to budgets."""
    record = records.finished_record(team=team)
    record.started_at = NOON + timedelta(minutes=minutes)
    record.charges = [BudgetCharge(*charge) for charge in charges]
    return record


async def of(
    path: Path, budget: BudgetQuery, since_min: int = 0, excluded: CallsOfRun = NO_CALLS
) -> Mapping[str, int] | None:
    scopes = (SUPPORT, SEARCH)
    return await read_spend_unless_per_user(
        path, budget, scopes, NOON_MS + since_min * 60_000, excluded
    )


@pytest.mark.parametrize("budget", [CALL, RULED], ids=["of all calls", "as rules say"])
async def test_counters_hold_every_charge(budget: BudgetQuery, tmp_path: Path) -> None:
    calls = [
        call_at(0, ("month", SUPPORT, COST), ("other", "", COST)),
        call_at(1, ("other", "", COST)),
        call_at(2, ("month", SUPPORT, COST), ("month", SEARCH, 5)),
        call_at(3),
    ]
    path = write_ledger(tmp_path / "ledger", *calls)

    assert await of(path, budget) == {SUPPORT: 2 * COST, SEARCH: 5}
    assert await of(path, budget, since_min=1) == {SUPPORT: COST, SEARCH: 5}
    [run] = records.stored_rows(path, "runs")
    for name, expected in ((run["name"], [COST, 0]), ("other", [2 * COST, 5])):
        excluded = CallsOfRun(name, NOON_MS + 2 * 60_000)
        assert await of(path, budget, excluded=excluded) == dict(
            zip((SUPPORT, SEARCH), expected, strict=True)
        )


async def test_calls_before_the_first_charge_count(tmp_path: Path) -> None:
    charged_call = call_at(2, ("month", SUPPORT, COST))
    calls = [call_at(0), call_at(1, team="search"), charged_call, call_at(3)]
    path = write_ledger(tmp_path / "ledger", *calls)

    assert await of(path, CALL) == {SUPPORT: 2 * COST, SEARCH: COST}
    assert await of(path, RULED) == {SUPPORT: COST, SEARCH: 0}
    elsewhere = BudgetQuery(MONTH, ("tag.team",), frozenset({"legacy-only"}))
    assert await of(path, elsewhere) == {SUPPORT: COST, SEARCH: 0}


async def test_counter_names_are_distinct(tmp_path: Path) -> None:
    values = ["x" * 10_000, "x" * 10_001, "\n", "\ud800"]
    names = [f"tag.team:{value}" for value in values]
    charges = [("month", name, number) for number, name in enumerate(names, 1)]
    path = write_ledger(tmp_path / "ledger", call_at(0, *charges))

    spend = await read_spend_unless_per_user(path, RULED, names, NOON_MS)
    assert spend == {name: n for _, name, n in charges}
    assert max(len(row["scope"]) for row in records.stored_rows(path, "budgets")) < 100


async def test_missing_ledger_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnusable):
        await read_spend_unless_per_user(tmp_path / "none.db", CALL, [SUPPORT], 0)


async def test_late_charge_moves_the_complete_since_mark(tmp_path: Path) -> None:
    path = write_ledger(tmp_path / "ledger", call_at(0), call_at(3, ("month", SUPPORT, 7)))
    assert await of(path, CALL) == {SUPPORT: COST + 7, SEARCH: 0}

    write_ledger(path, call_at(0, ("month", SUPPORT, 5)))  # a long call

    assert await of(path, CALL) == {SUPPORT: 5 + 7, SEARCH: 0}


async def test_recall_reads_one_counter(tmp_path: Path, store: Stores) -> None:
    costs = []
    for counters in (10, 40_000):
        path = tmp_path / str(counters) / "ledger"
        path.parent.mkdir()
        keeping, _ = store(path)
        charges = ((n, "month", f"tag.team:{n}", NOON_MS) for n in range(counters))
        keeping.write(charged(*charges), counted(1))
        costs.append(min([await recall_s(path) for _ in range(5)]))

    few_items, items = costs
    assert items < 4 * few_items


async def recall_s(path: Path) -> float:
    started_at = time.process_time()
    for _ in range(10):
        spend = await read_spend_unless_per_user(path, CALL, ["tag.team:1"], NOON_MS - 1)
        assert spend == {"tag.team:1": 7}
    return time.process_time() - started_at


RULES = """
policies:
  default:
    match: all
    limits: [{name: house, usd: 1 per month, unpriced: allow}]
    rules:
      - name: research
        when: {header: {x-team: research}}
        without: {limits: [house]}
        limits: [{name: research, usd: 1 per month, unpriced: allow, per: deployment}]
      - name: support
        when: {header: {x-team: support}}
        limits: [{name: support, usd: 0.0001 per month, unpriced: allow, per: [key, user]}]
      - name: support-all
        when: {header: {x-team: support}}
        limits: [{name: support-all, usd: 0.0001 per month, unpriced: allow}]
"""


async def gauges(proxy: Any, client: ClientSession) -> dict[str, int]:
    families = text_string_to_metric_families(await proxy.metrics())
    samples = [s for f in families for s in f.samples if s.name == "headrace_budget_spent_usd"]
    return {sample.labels["budget"]: round(sample.value * 10**9) for sample in samples}


@pytest.mark.parametrize("first_item", [["research"] * 3 + ["support"], ["research"] * 3, []])
async def test_budget_of_a_rule_is_recalled(
    first_item: list[str], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Research spends more than the budget of support allows."""
    path = tmp_path / "ledger.db"
    costs = {"research": 90_000, "support": 15_000}

    async def call_team(client: ClientSession, team: str) -> int:
        upstream.answer_with(respond(legacy_completion(usage=usage(costs[team] // 150, 0))))
        headers = {**BEARER, "x-team": team}
        return await call(client, model="support-chat", max_tokens=1, headers=headers)

    snapshots: list[dict[str, int]] = []
    for teams in (first_item, ["research", "support"]):
        async with running_proxy(
            tmp_path / "policies",
            policies_for(upstream.url) + RULES,
            ledger=LedgerLocation("sqlite", path),
        ) as proxy:
            assert [await call_team(proxy.client, team) for team in teams] == [200] * len(teams)
            snapshots.append(await gauges(proxy, proxy.client))

    teams = [*first_item, "research", "support"]
    sums = {team: costs[team] * teams.count(team) for team in costs}
    expected = {"house": sums["support"], "support-all": sums["support"]}
    assert snapshots[-1] == {**expected, "research": sums["research"]}
    assert audit(path).violations == ()
    known_values = list_budgets(read_folder(tmp_path / "policies", None))
    for name, nano in snapshots[-1].items():
        budget = known_values[name]
        spend = await read_spend_unless_per_user(path, budget, budget.scopes, 0) or {}
        assert sum(spend.values()) == nano
    names = {row["name"] for row in records.stored_rows(path, "budgets")}
    assert names == {"house", "research", "support-all"}


CALENDAR_MONTH = Calendar("month")
LIMITS = {
    ScopedLimit(Limit("all", KINDS["usd"], 10**7, CALENDAR_MONTH)),
    ScopedLimit(Limit("teams", KINDS["usd"], 10**6, CALENDAR_MONTH), ("tag.team",)),
    ScopedLimit(Limit("models", KINDS["usd"], 10**7, CALENDAR_MONTH), ("key", "model")),
    ScopedLimit(Limit("shadow", KINDS["usd"], 300_000, CALENDAR_MONTH, shadow=True), ("key",)),
    ScopedLimit(Limit("tiny", KINDS["usd"], 200_000, CALENDAR_MONTH), ("key",)),
}


@dataclass
class RandomCalls:
    """Writes random calls under some limits each to a real ledger."""

    path: Path
    draw: random.Random
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock.seconds, self.clock.seconds)
        self.admission = Limiter(self.store, lambda standing: None)
        self.ledger = records.ledger_at(self.path, records.FakeLog())

    def random_call(self, number: int) -> tuple[Plan, Call, Record]:
        draw = self.draw
        target: Target = draw.choice((records.PRICED, records.PRICED, records.UNPRICED))
        counts = usage(draw.randrange(20), draw.randrange(20))
        record = records.finished_record(target, fields={"usage": counts})
        if draw.random() < 0.2:  # no attempt
            record.attempts.clear()
            record.used_attempts.clear()
        names = draw.sample(sorted(LIMITS, key=lambda bound: bound.limit.name), draw.randint(1, 5))
        plan = replace(
            record.plan or Plan("", "", "", {}, ()),
            tags={"team": draw.choice(("support", "search"))},
            model_calls=tuple(
                ModelCall(t.model, (t,)) for t in (records.PRICED, replace(target, model="other"))
            ),
            limits=tuple(names),
        )
        record.plan = plan
        head = replace(records.HEAD, call_id=f"n{number}", received_at=record.started_at)
        return plan, Call(head, {"prompt": "Hi", "max_tokens": draw.randrange(40)}), record

    async def run(self, calls: int) -> int:
        refused = 0
        for number in range(calls):
            plan, request, record = self.random_call(number)
            self.clock.ms = int(record.started_at.timestamp() * 1000)
            attempts: list[Attempt] = [*record.attempts]
            self.ledger.count_begin(record)
            try:
                async with self.admission.make_reservation(plan, request, record):
                    pass
            except LimitExceeded as error:
                record.fail(error)
                record.attempts.clear()
                record.used_attempts.clear()
                refused += 1
            assert len(record.attempts) in (0, len(attempts))
            self.ledger.count_end(record)
            self.ledger.emit(record)
        self.ledger.close()
        return refused

    def queries(self) -> Iterator[BudgetQuery]:
        for limit, scope in self.store._counters:
            [bound] = [bound for bound in LIMITS if bound.limit.key == limit]
            yield BudgetQuery(bound.limit, bound.per, None, frozenset({scope}))


@pytest.mark.parametrize("seed", range(5))
async def test_counters_and_ledger_agree(seed: int, tmp_path: Path) -> None:
    house = RandomCalls(tmp_path / "ledger.db", random.Random(seed))  # noqa: S311  # reproducible
    refused = await house.run(120)

    assert 0 < refused < 120
    assert audit(house.path).violations == ()
    queries = [*house.queries()]
    assert len(queries) >= 6
    for query in queries:
        [scope] = query.scopes
        [standing] = house.store.preview([Claim(query.limit, scope, 0)]).counter_states
        spend = await read_spend_unless_per_user(house.path, query, [scope], 0)
        assert spend == {scope: standing.used}, query
