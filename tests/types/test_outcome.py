"""Limit decisions from the numbers of a store."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from proxy.limits.kinds import KINDS
from proxy.types.limit import FRESH, NEVER, WARNED, Limit, outcome
from tests.for_each import for_each
from tests.limits.world import MONTH, PLACES, REQUESTS, TOKENS, claims, would_refuse


@for_each(
    ("requested", "readings", "refusal"),
    [
        (((REQUESTS, 1), (PLACES, 1)), [600, -1, 0, 0, 1, -1, 0, 0], None),
        (
            ((REQUESTS, 1), (TOKENS, 9), (PLACES, 1)),
            [0, -1, 40, 0, 0, -1, 1500, 0, 0, -1, 0, 0],
            (TOKENS, 1.5),
        ),
        (((MONTH, 101), (REQUESTS, 1)), [0, 9000, NEVER, 0, 0, -1, 9000, 0], (MONTH, None)),
    ],
)
def test_longest_wait_refuses(
    requested: tuple[tuple[Limit, int], ...],
    readings: list[int],
    refusal: tuple[Limit, float | None] | None,
) -> None:
    decided = outcome(claims(*requested), readings)

    assert decided.admitted is (refusal is None)
    actual = decided.refusal
    assert (actual and (actual.limit, actual.retry_after_s)) == refusal


def test_shadow_limit_does_not_refuse() -> None:
    shadow = replace(REQUESTS, shadow=True)
    decided = outcome(claims((shadow, 1)), [0, -1, 40, 0])

    assert decided.admitted
    assert would_refuse(decided) == ("per-minute",)


def test_states_show_debt_or_spend() -> None:
    seven = Limit("seven", KINDS["requests"], 7, 60)
    requests = claims((seven, 1), (MONTH, 5), (PLACES, 1))
    readings = [60_001, -1, 0, WARNED, 120, 5000, 0, FRESH, 3, -1, 0, 0]

    rate, money, places = outcome(requests, readings).standings

    assert (rate.used, rate.remaining, rate.reset_s, rate.is_warned) == (2, 5, 8.572, True)
    assert (money.used, money.remaining, money.reset_s, money.is_fresh) == (120, 0, 5.0, True)
    assert (places.used, places.remaining, places.reset_s) == (3, 97, None)


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([0, NEVER, 40])), max_size=3),
    st.booleans(),
)
def test_summary_without_states_is_equal(counted: list[tuple[int, int]], is_shadow: bool) -> None:
    limits = (replace(REQUESTS, shadow=is_shadow), MONTH, PLACES)[: len(counted)]
    requests = claims(*[(limit, 1) for limit in limits])
    readings = [number for level, wait in counted for number in (level, 9000, wait, 0)]

    decided = outcome(requests, readings)

    states = decided.standings
    assert decided.decisions() == [(state.limit, state.would_refuse) for state in states]
    assert decided.used_amounts() == [state.used for state in states]
