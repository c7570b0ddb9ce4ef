"""Calendar windows of budgets, in milliseconds of UTC.

Every moment lies in exactly one window, also when a zone changes its clocks.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from proxy.runtime.frozen import frozen

Unit = Literal["second", "minute", "hour", "day", "week", "month"]
_FIXED_MS: dict[Unit, int] = {"second": 1000, "minute": 60_000, "hour": 3_600_000}


class WindowBounds(NamedTuple):
    """Bounds of a window and of its neighbors, in milliseconds since the epoch."""

    previous_start: int
    start: int
    end: int
    next_end: int


NO_WINDOW = WindowBounds._make((0, 0, 0, 0))


@frozen
class Calendar:
    """A calendar unit in a time zone. Raises ``ValueError`` for an unknown zone.

    Days, weeks (from Monday) and months follow the zone. A day has 23 or 25 hours when clocks
    change. Hours are those of UTC.
    """

    unit: Unit
    zone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            self._load_zone()
        except (KeyError, OSError, ValueError):  # also the name of a folder, or an empty name
            raise ValueError(f"unknown time zone {self.zone}") from None

    def get_window_bounds_ms(self, wall_ms: int) -> WindowBounds:
        """Return the bounds of the window that contains a moment, and of its neighbors."""
        if length := _FIXED_MS.get(self.unit):
            begin = wall_ms - wall_ms % length
            return WindowBounds._make(begin + by * length for by in (-1, 0, 1, 2))
        zone = self._load_zone()
        day = self._get_first_day(datetime.fromtimestamp(wall_ms // 1000, zone).date())
        begins = (_start_of_day_ms(self._add_units(day, by), zone) for by in (-1, 0, 1, 2))
        return WindowBounds._make(begins)

    def get_window_start_ms(self, wall_s: float) -> int:
        """Return the start of the window that contains ``wall_s``, in seconds since the epoch."""
        return self.get_window_bounds_ms(int(wall_s * 1000)).start

    def get_next_window_start(self, wall_ms: int) -> datetime:
        """Return the start of the next window, with the time zone."""
        return datetime.fromtimestamp(
            self.get_window_bounds_ms(wall_ms).end / 1000, self._load_zone()
        )

    def _get_first_day(self, day: date) -> date:
        if self.unit == "week":
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self.unit == "month" else day

    def _add_units(self, start: date, count: int) -> date:
        if self.unit == "month":
            months = start.year * 12 + start.month - 1 + count
            return date(months // 12, months % 12 + 1, 1)
        return start + timedelta(days=count * (7 if self.unit == "week" else 1))

    def _load_zone(self) -> tzinfo:
        return UTC if self.zone == "UTC" else ZoneInfo(self.zone)


def _start_of_day_ms(day: date, zone: tzinfo) -> int:
    """Return the start of a day. If clocks skip midnight, this is the moment of the change."""
    return int(datetime.combine(day, time(), zone).timestamp()) * 1000
