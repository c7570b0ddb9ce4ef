"""States of limits: many counters are read in parts, so that calls go on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from proxy.console.limits import MAX_READ, MAX_SHOWN, read_limit_rows
from proxy.console.series import Amounts, Labels, Period, Sample, Sources
from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MemoryStore
from proxy.limits.stores.store import StoreUnavailable
from proxy.policy.decide.snapshot import Snapshot
from proxy.types.limit import Claim, CounterState, Limit

LIMIT = Limit("calls", KINDS["requests"], 100, 60)
SCOPES = [f"key:{number}" for number in range(5 * MAX_READ + 1)]


@dataclass
class ObservedStore:
    """Counts the claims of each read. ``error`` is raised after as many reads."""

    fails_after: int | None = None
    reads: list[int] = field(default_factory=list)
    store: MemoryStore = field(default_factory=lambda: MemoryStore(lambda: 0.0, lambda: 0.0))

    async def read(self, claims: Sequence[Claim]) -> tuple[CounterState, ...]:
        if len(self.reads) == self.fails_after:
            raise StoreUnavailable("away")
        self.reads.append(len(claims))
        return await self.store.read(claims)


def make_sources(store: ObservedStore) -> Sources:
    snapshot = Snapshot(
        revision="r", keys={}, credentials={}, tags={}, refuse_caller_tags=False, deployments={}
    )
    loop_thread = threading.get_ident()

    def get_last(_: float) -> Period:
        assert threading.get_ident() != loop_thread  # it copies all sampled series
        decisions: dict[Labels, Amounts] = {("calls", "deny"): (3.0,), ("calls", "allow"): (5.0,)}
        increases = {"headrace_limit_decisions_total": decisions}
        return Period([Sample(0.0, 1.0, increases=increases, in_flight=0.0)])

    catalog = SimpleNamespace(counters=[(LIMIT, scope) for scope in SCOPES])
    parts = SimpleNamespace(
        counters=store,
        metrics=SimpleNamespace(catalog=catalog),
        series=SimpleNamespace(get_last=get_last),
        policies=SimpleNamespace(current=snapshot),
    )
    return cast(Sources, parts)


async def test_reads_many_counters_in_parts() -> None:
    store, seen = ObservedStore(), list[int]()
    await store.store.admit("a", [Claim(LIMIT, SCOPES[-1], 7)])
    reading = asyncio.create_task(read_limit_rows(make_sources(store)))
    while not reading.done():
        await asyncio.sleep(0)  # as a call that goes on
        seen.append(len(store.reads))
    rows = await reading

    assert store.reads == [MAX_READ] * 5 + [1]
    assert seen[:4] == [1, 2, 3, 4]
    assert rows is not None
    assert len(rows) == MAX_SHOWN
    assert (rows[0]["scope"], rows[0]["used"], rows[0]["denied"]) == (SCOPES[-1], 7, 3)


async def test_is_unknown_if_the_store_goes_away_meanwhile() -> None:
    assert await read_limit_rows(make_sources(ObservedStore(fails_after=2))) is None
