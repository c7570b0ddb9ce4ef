"""What callers read from a store's numbers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from proxy.limits.kinds import KINDS
from proxy.types.limit import FRESH, NEVER, WARNED, Limit, outcome
from tests.limits.world import MONTH, PLACES, REQUESTS, TOKENS, claims, would_refuse


def test_it_is_admitted_when_nobody_has_it_wait() -> None:
    decided = outcome(claims((REQUESTS, 1), (PLACES, 1)), [600, -1, 0, 0, 1, -1, 0, 0])

    assert decided.admitted
    assert decided.refusal is None


def test_the_limit_that_refuses_for_longest_says_how_long() -> None:
    requests = claims((REQUESTS, 1), (TOKENS, 9), (PLACES, 1))
    decided = outcome(requests, [0, -1, 40, 0, 0, -1, 1500, 0, 0, -1, 0, 0])

    assert not decided.admitted
    assert decided.refusal is not None
    assert (decided.refusal.limit, decided.refusal.retry_after_s) == (TOKENS, 1.5)


def test_never_is_longer_than_any_time() -> None:
    requests = claims((MONTH, 101), (REQUESTS, 1))
    decided = outcome(requests, [0, 9000, NEVER, 0, 0, -1, 9000, 0])

    assert decided.refusal is not None
    assert (decided.refusal.limit, decided.refusal.retry_after_s) == (MONTH, None)


def test_a_limit_in_shadow_only_says_that_it_would_refuse() -> None:
    shadow = replace(REQUESTS, shadow=True)
    decided = outcome(claims((shadow, 1)), [0, -1, 40, 0])

    assert decided.admitted
    assert would_refuse(decided) == ("per-minute",)


def test_a_rate_stands_where_its_debt_says_a_budget_where_its_money_says() -> None:
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
def test_what_is_read_without_standings_is_what_they_say(
    counted: list[tuple[int, int]], is_shadow: bool
) -> None:
    limits = (replace(REQUESTS, shadow=is_shadow), MONTH, PLACES)[: len(counted)]
    requests = claims(*[(limit, 1) for limit in limits])
    readings = [number for level, wait in counted for number in (level, 9000, wait, 0)]

    decided = outcome(requests, readings)

    assert decided.decisions() == [
        (standing.limit, standing.would_refuse) for standing in decided.standings
    ]
    assert decided.used() == [s.used for s in decided.standings]
