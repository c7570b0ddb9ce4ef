"""The money page: spend by period and group, from the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from proxy.console import InvalidQuery
from proxy.console.overview import Data, in_ms
from proxy.ledger.render import as_csv
from proxy.ledger.spending import QueryBounds, SpendingLine, read_spending
from proxy.ledger.store import Unusable
from proxy.policy.decide.snapshot import Snapshot
from proxy.types.limit import Limit

MAX_GROUPS = 50
MAX_DAYS = 366
BOUNDS = QueryBounds(seconds=30.0, max_lines=50_000)
"""A tag of clients may have any number of values."""
UNITS = ("day", "week")
DIMENSIONS = ("deployment", "model", "key", "provider", "upstream")
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class MoneyPage:
    """Reads a ledger. ``path`` is None without a SQLite ledger. ``now`` is seconds since 1970."""

    path: Path | None
    snapshot: Callable[[], Snapshot]
    limits: Callable[[], Iterable[Limit]]
    now: Callable[[], float]
    bounds: QueryBounds = BOUNDS

    def data(self, by: str | None, days: int, unit: str) -> Data:
        """Return the spend of the last days, and blocks while the ledger is read.

        Money is in nano-USD, None if unknown. Raises ``InvalidQuery`` and ``Unusable``.
        """
        options = self._options()
        by = self._dimension(by)
        if unit not in UNITS:
            raise InvalidQuery(f"unit must be one of {', '.join(UNITS)}.")
        zone, starts = self._periods(days, unit)
        if self.path is None:
            return {"ledger": None, "by": by, "options": options}
        start, end = starts[0], datetime.fromtimestamp(self.now(), UTC)
        period = {"period": period_column([in_ms(time.timestamp()) for time in starts])}
        try:
            report = read_spending(self.path, ("period", by), start, end, period, self.bounds)
            lines, total = report.lines, report.total
        except Unusable as error:
            if not str(error).startswith("no call in this ledger has the tag"):
                raise
            total = read_spending(self.path, (), start, end, bounds=self.bounds).total
            lines = ()
        losses = read_spending(self.path, ("loss",), start, end, bounds=self.bounds).lines
        return {
            "ledger": str(self.path),
            "by": by,
            "options": options,
            "unit": unit,
            "zone": str(zone),
            "times": [in_ms(time.timestamp()) for time in starts],
            "now": in_ms(self.now()),
            "groups": _groups(lines, len(starts)),
            "total": _sums([total]),
            "losses": [
                {"cause": line.group[0], "nano": line.cost, "attempts": line.attempts}
                for line in losses
                if line.group[0] is not None
            ],
        }

    def csv(self, by: str | None, days: int) -> str:
        """Return the spend of the last days by group, as ``headrace usage --format csv`` does."""
        by = self._dimension(by)
        _, starts = self._periods(days, "day")
        if self.path is None:
            raise InvalidQuery("There is no SQLite ledger.")
        end = datetime.fromtimestamp(self.now(), UTC)
        return as_csv(read_spending(self.path, (by,), starts[0], end)) + "\n"

    def _options(self) -> list[str]:
        return [*(f"tag.{name}" for name in self.snapshot().tags), *DIMENSIONS]

    def _dimension(self, by: str | None) -> str:
        options = self._options()
        by = by or ("tag.team" if "tag.team" in options else "deployment")
        if by not in options:
            raise InvalidQuery(f"by must be one of {', '.join(options)}.")
        return by

    def _periods(self, days: int, unit: str) -> tuple[tzinfo, list[datetime]]:
        if not 1 <= days <= MAX_DAYS:
            raise InvalidQuery(f"days must be between 1 and {MAX_DAYS}.")
        zone = self._zone()
        return zone, period_starts(datetime.fromtimestamp(self.now(), zone), days, unit)

    def _zone(self) -> tzinfo:
        """Return the time zone of the first budget, otherwise UTC."""
        for limit in self.limits():
            if limit.is_budget:
                return ZoneInfo(limit.calendar.zone)
        return UTC


def period_starts(now: datetime, days: int, unit: str) -> list[datetime]:
    """Return the starts of the last days or weeks until now, in the zone of ``now``."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first_day = (today - timedelta(days=days - 1)).date()
    if unit == "week":
        first_day -= timedelta(days=first_day.weekday())
    step = 1 if unit == "day" else 7
    count = ((today.date() - first_day).days // step) + 1
    dates = [first_day + timedelta(days=step * number) for number in range(count)]
    return [datetime(d.year, d.month, d.day, tzinfo=now.tzinfo) for d in dates]


def period_column(starts: Sequence[int]) -> str:
    """Return the SQL of the index of a call's period, given the starts in milliseconds.

    Periods of equal length share a case, so daylight saving adds one case for each change.
    """
    cases: list[tuple[int, int, int]] = []
    for index, start in enumerate(starts):
        is_last = index + 1 == len(starts)
        usual = cases[-1][2] if cases else DAY_MS
        length = usual if is_last else starts[index + 1] - start
        if not cases or cases[-1][2] != length:
            cases.append((start, index, length))
    texts = [
        f"WHEN c.started_ms >= {start} THEN {index} + (c.started_ms - {start}) / {length}"
        for start, index, length in reversed(cases)
    ]
    return f"CAST(CASE {' '.join(texts)} END AS TEXT)"


def _groups(lines: Sequence[SpendingLine], periods: int) -> list[Data]:
    """Return the groups by falling cost, each with its cost by period. The rest is ``other``."""
    by_name: dict[str | None, list[SpendingLine]] = {}
    for line in lines:
        by_name.setdefault(line.group[1], []).append(line)
    ordered = sorted(by_name.items(), key=lambda item: -sum(line.cost or 0 for line in item[1]))
    if len(ordered) > MAX_GROUPS:
        other_lines = [line for _, group in ordered[MAX_GROUPS - 1 :] for line in group]
        ordered = [*ordered[: MAX_GROUPS - 1], ("other", other_lines)]
    groups = []
    for name, group in ordered:
        costs: list[list[int | None]] = [[] for _ in range(periods)]
        for line in group:
            costs[min(int(line.group[0] or 0), periods - 1)].append(line.cost)
        groups.append({"name": name, "values": list(map(_sum, costs)), **_sums(group)})
    return groups


def _sum(costs: Sequence[int | None]) -> int | None:
    """Return the sum of the known costs, None if none of them is known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known or not costs else None


def _sums(lines: Sequence[SpendingLine]) -> dict[str, Any]:
    lost = _sum([line.lost_cost for line in lines if line.lost_cost != 0])
    return {
        "calls": sum(line.calls for line in lines),
        "tokens_in": sum(line.tokens_in for line in lines),
        "tokens_out": sum(line.tokens_out for line in lines),
        "cost": _sum([line.cost for line in lines]),
        "lost": lost,
        "saved": sum(line.saved for line in lines),
        "attempts": sum(line.attempts for line in lines),
        "unpriced": sum(line.unpriced for line in lines),
        "estimated": sum(line.estimated for line in lines),
    }
