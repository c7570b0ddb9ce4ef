"""Calendar windows in UTC and in zones that change their clocks."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.types.windows import Calendar, Unit
from tests.for_each import for_each

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
    bounds = Calendar(unit).window_bounds(ms(2026, 1, 15, 12, 30) + 59_999)

    assert bounds[1:3] == (begin, end)


def test_month_starts_at_local_midnight() -> None:
    berlin = Calendar("month", "Europe/Berlin").window_bounds(ms(2026, 7, 31, 23, 30))

    assert berlin[1:3] == (
        ms(2026, 8, 1, zone="Europe/Berlin"),
        ms(2026, 9, 1, zone="Europe/Berlin"),
    )


@pytest.mark.parametrize(("month", "day", "hours"), [(3, 29, 23), (10, 25, 25), (6, 1, 24)])
def test_day_length_follows_the_zone(month: int, day: int, hours: int) -> None:
    noon = ms(2026, month, day, 12, zone="Europe/Berlin")
    bounds = Calendar("day", "Europe/Berlin").window_bounds(noon)

    assert bounds[2] - bounds[1] == hours * 3_600_000


@pytest.mark.parametrize(
    ("zone", "minute"), [("Asia/Kolkata", 30), ("Asia/Kathmandu", 15), ("Europe/Berlin", 0)]
)
def test_hour_starts_on_local_clock(zone: str, minute: int) -> None:
    begin = ms(2026, 1, 15, 12, zone=zone)
    bounds = Calendar("hour", zone).window_bounds(begin + 40 * 60_000)

    assert bounds == (begin - 3_600_000, begin, begin + 3_600_000, begin + 7_200_000)
    assert begin // 60_000 % 60 == minute


def test_half_hour_change_splits_the_hour() -> None:
    change = ms(2026, 10, 4, 2, zone="Australia/Lord_Howe")  # at two the clocks show half past two
    bounds = Calendar("hour", "Australia/Lord_Howe").window_bounds(change + 60_000)

    assert bounds == (change - 3_600_000, change, change + 1_800_000, change + 5_400_000)


@given(
    unit=st.sampled_from(UNITS),
    zone=st.sampled_from(ZONES),
    seconds=st.integers(946_684_800, 2_114_380_800),
)
def test_windows_are_contiguous(unit: Unit, zone: str, seconds: int) -> None:
    calendar, index = Calendar(unit, zone), seconds * 1000 + 1
    count_before, begin, end, count_after = calendar.window_bounds(index)

    assert count_before <= begin <= index < end <= count_after
    assert calendar.window_bounds(begin)[1:3] == (begin, end)
    assert calendar.window_bounds(end - 1)[1:3] == (begin, end)
    assert calendar.window_bounds(end)[1] == end


@for_each("zone", ["Europe/Brelin", "", "../etc", "Europe"])
def test_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        Calendar("day", zone)
