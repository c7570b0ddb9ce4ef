"""Limits: validation, calendar windows, and decisions from the numbers of a store."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.limits.kinds import KINDS
from proxy.types.limit import (
    FRESH_FLAG,
    MAX_AMOUNT,
    NEVER_FITS,
    WARNED_FLAG,
    Limit,
    build_limit_decision,
)
from proxy.types.windows import Calendar, Unit
from tests.for_each import for_each
from tests.limits.sample_limits import MONTH, PLACES, REQUESTS, TOKENS, claims, would_refuse


@for_each(
    ("fields", "problem"),
    [
        ({"amount": 0}, "amount"),
        ({"amount": MAX_AMOUNT + 1}, "amount"),
        ({"amount": 999_999_937, "window": 2_592_000}, "too large to count exactly in this window"),
    ],
    ids=str,
)
def test_uncountable_limit_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Limit(**{"name": "team", "kind": KINDS["requests"], "amount": 60, "window": 60, **fields})


def test_rate_is_a_reduced_fraction() -> None:
    limit = Limit("team", KINDS["requests"], 7, 60)

    assert (limit.debt_per_unit, limit.drain_per_ms) == (60_000, 7)


@for_each(
    ("window", "amount"),
    [(60, 200_000), (86_400, 100_000_000), (2_592_000, 1_000_000_000), (60, 1_234_567)],
)
def test_common_limits_can_be_counted(window: int, amount: int) -> None:
    assert Limit("team", KINDS["tokens"], amount, window).capacity == amount


@for_each(("share", "warn"), [(0.8, 80), (0.07, 7), (0.001, 1), (1.0, 100)])
def test_warning_share_is_exact(share: float, warn: int) -> None:
    assert Limit("team", KINDS["requests"], 100, 60, warn_at=share).warn_amount == warn


@for_each(
    ("requested", "readings", "refusal"),
    [
        (((REQUESTS, 1), (PLACES, 1)), [600, -1, 0, 0, 1, -1, 0, 0], None),
        (
            ((REQUESTS, 1), (TOKENS, 9), (PLACES, 1)),
            [0, -1, 40, 0, 0, -1, 1500, 0, 0, -1, 0, 0],
            (TOKENS, 1.5),
        ),
        (((MONTH, 101), (REQUESTS, 1)), [0, 9000, NEVER_FITS, 0, 0, -1, 9000, 0], (MONTH, None)),
    ],
)
def test_longest_wait_refuses(
    requested: tuple[tuple[Limit, int], ...],
    readings: list[int],
    refusal: tuple[Limit, float | None] | None,
) -> None:
    decided = build_limit_decision(claims(*requested), readings)

    assert decided.admitted is (refusal is None)
    get_used_amount = decided.longest_refusal
    assert (get_used_amount and (get_used_amount.limit, get_used_amount.retry_after_s)) == refusal


def test_shadow_limit_does_not_refuse() -> None:
    shadow = replace(REQUESTS, shadow=True)
    decided = build_limit_decision(claims((shadow, 1)), [0, -1, 40, 0])

    assert decided.admitted
    assert would_refuse(decided) == ("per-minute",)


def test_states_show_debt_or_spend() -> None:
    seven = Limit("seven", KINDS["requests"], 7, 60)
    requests = claims((seven, 1), (MONTH, 5), (PLACES, 1))
    readings = [60_001, -1, 0, WARNED_FLAG, 120, 5000, 0, FRESH_FLAG, 3, -1, 0, 0]

    rate, money, places = build_limit_decision(requests, readings).counter_states

    assert (rate.used, rate.remaining, rate.reset_s, rate.is_warned) == (2, 5, 8.572, True)
    assert (money.used, money.remaining, money.reset_s, money.is_fresh) == (120, 0, 5.0, True)
    assert (places.used, places.remaining, places.reset_s) == (3, 97, None)


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([0, NEVER_FITS, 40])), max_size=3),
    st.booleans(),
)
def test_summary_without_states_is_equal(counted: list[tuple[int, int]], is_shadow: bool) -> None:
    limits = (replace(REQUESTS, shadow=is_shadow), MONTH, PLACES)[: len(counted)]
    requests = claims(*[(limit, 1) for limit in limits])
    readings = [number for level, wait in counted for number in (level, 9000, wait, 0)]

    decided = build_limit_decision(requests, readings)

    states = decided.counter_states
    assert decided.pair_limit_refusals() == [(state.limit, state.would_refuse) for state in states]
    assert decided.get_used_amounts() == [state.used for state in states]


UNITS: list[Unit] = ["second", "minute", "hour", "day", "week", "month"]
ZONES = ["UTC", "Europe/Berlin", "America/Santiago", "Asia/Kolkata", "Pacific/Apia"]
ZONES += ["Australia/Lord_Howe", "Asia/Kathmandu", "Asia/Pyongyang"]


def ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, zone: str = "UTC") -> int:
    moment = datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(zone))
    return int(moment.timestamp()) * 1000


@for_each(
    ("unit", "begin", "end"),
    [
        ("minute", ms(2026, 1, 15, 12, 30), ms(2026, 1, 15, 12, 31)),
        ("hour", ms(2026, 1, 15, 12), ms(2026, 1, 15, 13)),
        ("day", ms(2026, 1, 15), ms(2026, 1, 16)),
        ("week", ms(2026, 1, 12), ms(2026, 1, 19)),
        ("month", ms(2026, 1, 1), ms(2026, 2, 1)),
    ],
)
def test_window_is_a_calendar_unit(unit: Unit, begin: int, end: int) -> None:
    bounds = Calendar(unit).get_window_bounds_ms(ms(2026, 1, 15, 12, 30) + 59_999)

    assert bounds[1:3] == (begin, end)


@pytest.mark.parametrize(("month", "day", "hours"), [(3, 29, 23), (10, 25, 25), (6, 1, 24)])
def test_day_length_follows_the_zone(month: int, day: int, hours: int) -> None:
    noon = ms(2026, month, day, 12, zone="Europe/Berlin")
    bounds = Calendar("day", "Europe/Berlin").get_window_bounds_ms(noon)

    assert bounds[2] - bounds[1] == hours * 3_600_000


@given(
    unit=st.sampled_from(UNITS),
    zone=st.sampled_from(ZONES),
    seconds=st.integers(946_684_800, 2_114_380_800),
)
def test_windows_are_contiguous(unit: Unit, zone: str, seconds: int) -> None:
    calendar, index = Calendar(unit, zone), seconds * 1000 + 1
    count_before, begin, end, count_after = calendar.get_window_bounds_ms(index)

    assert count_before <= begin <= index < end <= count_after
    assert calendar.get_window_bounds_ms(begin)[1:3] == (begin, end)
    assert calendar.get_window_bounds_ms(end - 1)[1:3] == (begin, end)
    assert calendar.get_window_bounds_ms(end)[1] == end


@for_each("zone", ["Europe/Brelin", "", "../etc", "Europe"])
def test_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        Calendar("day", zone)
