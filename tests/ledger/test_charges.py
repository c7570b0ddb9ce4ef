"""What a budget has counted is what the ledger says: by rules, over restarts, of every call."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from proxy.call.attempts import Attempt
from proxy.call.record import Record
from proxy.errors import LimitExceeded
from proxy.ledger.audit import audit
from proxy.ledger.budgets import read_budget_spend
from proxy.limits import Limiter
from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MemoryStore
from proxy.policy.catalog import budgets
from proxy.policy.store import read_folder
from proxy.settings import LedgerAt
from proxy.types import Call, ModelCall, Plan, ScopedLimit, Target
from proxy.types.limit import BudgetQuery, Claim, Limit
from proxy.types.windows import Calendar
from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream, answer, legacy, usage
from tests.ledger.kept import HEAD, PRICED, UNPRICED, FakeLog, finished, kept, ledger_at
from tests.ledger.test_init import call
from tests.limits.world import Clock
from tests.test_pipeline import BEARER

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
async def test_rule_recall(
    first_item: list[str], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Research spends by itself more than the budget of support allows."""
    path = tmp_path / "ledger.db"
    costs = {"research": 90_000, "support": 15_000}

    async def asked(client: ClientSession, team: str) -> int:
        upstream.answer_with(answer(legacy(usage=usage(costs[team] // 150, 0))))
        headers = {**BEARER, "x-team": team}
        return await call(client, model="support-chat", max_tokens=1, headers=headers)

    snapshots: list[dict[str, int]] = []
    for teams in (first_item, ["research", "support"]):
        async with running_proxy(
            tmp_path / "policies", world(upstream.url) + RULES, ledger=LedgerAt("sqlite", path)
        ) as proxy:
            assert [await asked(proxy.client, team) for team in teams] == [200] * len(teams)
            snapshots.append(await gauges(proxy, proxy.client))

    teams = [*first_item, "research", "support"]
    sums = {team: costs[team] * teams.count(team) for team in costs}
    expected = {"house": sums["support"], "support-all": sums["support"]}
    assert snapshots[-1] == {**expected, "research": sums["research"]}
    assert audit(path).violations == ()
    known_values = budgets(read_folder(tmp_path / "policies", None))
    for name, nano in snapshots[-1].items():
        spend = (
            await read_budget_spend(path, known_values[name], known_values[name].scopes, 0) or {}
        )
        assert sum(spend.values()) == nano
    assert {row["name"] for row in kept(path, "budgets")} == {"house", "research", "support-all"}


MONTH = Calendar("month")
LIMITS = {
    ScopedLimit(Limit("all", KINDS["usd"], 10**7, MONTH)),
    ScopedLimit(Limit("teams", KINDS["usd"], 10**6, MONTH), ("tag.team",)),
    ScopedLimit(Limit("models", KINDS["usd"], 10**7, MONTH), ("key", "model")),
    ScopedLimit(Limit("shadow", KINDS["usd"], 300_000, MONTH, shadow=True), ("key",)),
    ScopedLimit(Limit("tiny", KINDS["usd"], 200_000, MONTH), ("key",)),
}


@dataclass
class House:
    """Calls drawn from a seed, under some of the limits each, into a real ledger."""

    path: Path
    draw: random.Random
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock.seconds, self.clock.seconds)
        self.admission = Limiter(self.store, lambda standing: None)
        self.ledger = ledger_at(self.path, FakeLog())

    def drawn(self, number: int) -> tuple[Plan, Call, Record]:
        draw = self.draw
        target: Target = draw.choice((PRICED, PRICED, UNPRICED))
        record = finished(target, fields={"usage": usage(draw.randrange(20), draw.randrange(20))})
        if draw.random() < 0.2:  # nothing was asked
            record.attempts.clear()
            record.used_attempts.clear()
        names = draw.sample(sorted(LIMITS, key=lambda bound: bound.limit.name), draw.randint(1, 5))
        plan = replace(
            record.plan or Plan("", "", "", {}, ()),
            tags={"team": draw.choice(("support", "search"))},
            model_calls=tuple(
                ModelCall(t.model, (t,)) for t in (PRICED, replace(target, model="other"))
            ),
            limits=tuple(names),
        )
        record.plan = plan
        head = replace(HEAD, call_id=f"n{number}", received_at=record.started_at)
        return plan, Call(head, {"prompt": "Hi", "max_tokens": draw.randrange(40)}), record

    async def run(self, calls: int) -> int:
        refused = 0
        for number in range(calls):
            plan, request, record = self.drawn(number)
            self.clock.ms = int(record.started_at.timestamp() * 1000)
            attempts: list[Attempt] = [*record.attempts]
            self.ledger.begin(record)
            try:
                async with self.admission.admit(plan, request, record):
                    pass
            except LimitExceeded as error:
                record.fail(error)
                record.attempts.clear()
                record.used_attempts.clear()
                refused += 1
            assert len(record.attempts) in (0, len(attempts))
            self.ledger.count_end(record)
            self.ledger.end(record)
        self.ledger.close()
        return refused

    def queries(self) -> Iterator[BudgetQuery]:
        for limit, scope in self.store._counters:
            [bound] = [bound for bound in LIMITS if bound.limit.key == limit]
            yield BudgetQuery(bound.limit, bound.per, None, frozenset({scope}))


@pytest.mark.parametrize("seed", range(5))
async def test_counters_and_ledger_agree(seed: int, tmp_path: Path) -> None:
    house = House(tmp_path / "ledger.db", random.Random(seed))  # noqa: S311  # to be had again
    refused = await house.run(120)

    assert 0 < refused < 120
    assert audit(house.path).violations == ()
    queries = [*house.queries()]
    assert len(queries) >= 6
    for query in queries:
        [scope] = query.scopes
        [standing] = house.store.check([Claim(query.limit, scope, 0)]).standings
        assert await read_budget_spend(house.path, query, [scope], 0) == {scope: standing.used}, (
            query
        )
