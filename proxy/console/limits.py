"""The state of the limits of the active policies, read from their counters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from proxy.limits.stores.store import CounterStore, StoreUnavailable
from proxy.policy.decide.snapshot import Snapshot
from proxy.runtime.frozen import frozen
from proxy.types.limit import Claim, CounterState, Limit

READ_S = 1.0
MAX_SHOWN = 500
MAX_READ = 200
"""Counters that are read at a time: those of a memory store are read on the event loop."""


@frozen
class LimitStates:
    """Reads limit counters. ``list_counters`` returns those of the active policies.

    ``count_denied_calls`` returns the calls that each limit refused in the last hour, for all its
    owners.
    """

    store: CounterStore
    list_counters: Callable[[], Iterable[tuple[Limit, str]]]
    get_snapshot: Callable[[], Snapshot]
    count_denied_calls: Callable[[], Mapping[str, int]]

    async def read_rows(self) -> list[dict[str, Any]] | None:
        """Return the limits that refuse calls, then the fullest ones.

        Return None if the counter store does not answer in time.
        """
        claims = [Claim(limit, scope, 0) for limit, scope in self.list_counters()]
        states = await self.read_states(claims)
        if states is None:
            return None
        denied, snapshot = self.count_denied_calls(), self.get_snapshot()
        ordered = sorted(states, key=lambda state: -state.used / state.limit.capacity)
        ordered.sort(key=lambda state: not denied.get(state.limit.name))
        return [
            {
                **make_limit_row(state.limit, state.scope, snapshot, state),
                "warn_at": state.limit.warn_at,
                "denied": denied.get(state.limit.name, 0),
                "reset_s": state.reset_s if state.limit.is_budget or state.used else None,
            }
            for state in ordered[:MAX_SHOWN]
        ]

    async def read_states(self, claims: Sequence[Claim]) -> list[CounterState] | None:
        """Return the states of counters, None if the counter store does not answer in time."""
        states: list[CounterState] = []
        try:
            async with asyncio.timeout(READ_S):
                for start in range(0, len(claims), MAX_READ):
                    states += await self.store.read(claims[start : start + MAX_READ])
                    await asyncio.sleep(0)
        except (TimeoutError, StoreUnavailable):
            return None
        return states


def make_limit_row(
    limit: Limit, scope: str, snapshot: Snapshot, state: CounterState | None
) -> dict[str, Any]:
    """Return a limit of an owner with what is used of it, None if that is unknown."""
    used = None if state is None else state.used
    return {
        "name": limit.name,
        "scope": scope or "all calls",
        "kind": limit.kind.name,
        "used": 0 if state is not None and state.is_fresh else used,
        "capacity": limit.capacity,
        "mode": "shadow" if limit.shadow else "enforce",
        "source": snapshot.find_location(*snapshot.limits.get(limit.name, ())),
    }
