"""The headers that tell of limits say what the counters stand at."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from proxy.limits.kinds import KINDS
from proxy.server.headers import of_limits
from proxy.types.limit import Limit, LimitKind
from proxy.types.outcome import CounterState, LimitDecision, outcome
from tests.limits.world import MONTH, PLACES, REQUESTS, TOKENS, claims

SEVEN = Limit("seven", KINDS["requests"], 7, 60)
LIMITS = (REQUESTS, SEVEN, TOKENS, replace(REQUESTS, shadow=True), MONTH, PLACES)


def tightest(admission: LimitDecision, kind: LimitKind) -> CounterState | None:
    """Return the first of the rates of a kind that have the least share left."""
    standings = [
        standing
        for standing in admission.standings
        if standing.limit.kind is kind and not standing.limit.shadow
    ]
    return min(
        standings, key=lambda standing: standing.remaining / standing.limit.capacity, default=None
    )


@given(st.lists(st.tuples(st.sampled_from(LIMITS), st.integers(0, 10**7)), max_size=6))
def test_clients_read_of_their_tightest_rate_of_each_kind(counted: list[tuple[Limit, int]]) -> None:
    readings = [number for _, level in counted for number in (level, -1, 0, 0)]
    admission = outcome(claims(*[(limit, 1) for limit, _ in counted]), readings)

    headers: dict[str, str] = {}
    for kind in KINDS.values():
        rate = tightest(admission, kind)
        if kind.headers is not None and rate is not None:
            events = str(rate.limit.capacity), str(rate.remaining), f"{rate.reset_s or 0:g}s"
            headers |= zip(kind.headers, events, strict=True)

    assert of_limits(admission) == headers
    assert [*of_limits(admission)] == [*headers]
