"""The state of the limits of the active policies, read from their counters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from proxy.console import Data
from proxy.console.series import HOUR_S, Sources
from proxy.limits.stores.store import CounterStore, StoreUnavailable
from proxy.policy.decide.snapshot import Snapshot
from proxy.types.limit import Claim, CounterState, Limit

READ_S = 1.0
MAX_SHOWN = 500
MAX_READ = 200
"""Counters that are read at a time: those of a memory store are read on the event loop."""
LimitRows = Sequence[Data] | None
"""Limits with their states, None if the counter store does not answer."""


async def read_limit_rows(sources: Sources) -> LimitRows:
    """Return the limits that refuse calls, then the fullest ones."""
    claims = [Claim(limit, scope, 0) for limit, scope in sources.metrics.catalog.counters]
    states = await read_states(sources.counters, claims)
    if states is None:
        return None
    period = await asyncio.to_thread(sources.series.get_last, HOUR_S)
    decisions = await asyncio.to_thread(period.count, "headrace_limit_decisions_total", 0, 1)
    denied = {limit: n for (limit, decision), n in decisions.items() if decision == "deny"}
    states.sort(key=lambda s: (s.limit.name not in denied, -s.used / s.limit.capacity))
    return [
        {
            **make_limit_row(state.limit, state.scope, sources.policies.current, state),
            "warn_at": state.limit.warn_at,
            "denied": denied.get(state.limit.name, 0),
            "reset_s": state.reset_s if state.limit.is_budget or state.used else None,
        }
        for state in states[:MAX_SHOWN]
    ]


async def read_states(store: CounterStore, claims: Sequence[Claim]) -> list[CounterState] | None:
    """Return the states of counters, None if the counter store does not answer in time."""
    states: list[CounterState] = []
    try:
        async with asyncio.timeout(READ_S):
            for start in range(0, len(claims), MAX_READ):
                states += await store.read(claims[start : start + MAX_READ])
                await asyncio.sleep(0)
    except (TimeoutError, StoreUnavailable):
        return None
    return states


def make_limit_row(
    limit: Limit, scope: str, snapshot: Snapshot, state: CounterState | None
) -> Data:
    """Return a limit of an owner with what is used of it, None if that is unknown."""
    return {
        "name": limit.name,
        "scope": scope or "all calls",
        "kind": limit.kind.name,
        "used": None if state is None else 0 if state.is_fresh else state.used,
        "capacity": limit.capacity,
        "mode": "shadow" if limit.shadow else "enforce",
        "source": snapshot.find_location(*snapshot.limit_paths.get(limit.name, ())),
    }
