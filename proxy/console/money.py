"""The money page: spend by period and group, from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field

from proxy.console import Data, InvalidQuery
from proxy.console.overview import to_epoch_ms
from proxy.console.series import Sources
from proxy.ledger.render import format_csv
from proxy.ledger.spending import QueryBounds, SpendingLine, read_spending

MAX_GROUPS = 50
SUMMED_COLUMNS = ("calls", "tokens_in", "tokens_out", "saved", "attempts", "unpriced", "estimated")
read_bounded = partial(read_spending, bounds=QueryBounds(seconds=30.0, max_lines=50_000))
"""Reads the ledger. A tag of clients may have any number of values."""
DIMENSIONS = ("deployment", "model", "key", "provider", "upstream")
DAY_MS = 86_400_000


class MoneyQuery(BaseModel):
    """Parameters of the page. ``by`` is a dimension of ``headrace usage``."""

    by: str | None = None
    days: Annotated[int, Field(ge=1, le=366)] = 30
    unit: Literal["day", "week"] = "day"
    format: Literal["json", "csv"] = "json"


def build_money_page(sources: Sources, query: MoneyQuery) -> Data:
    """Return the spend of the last days. It blocks while the ledger is read.

    Money is in nano-USD, None if unknown. Raises ``InvalidQuery`` and ``LedgerUnusable``.
    """
    by, now = _get_dimension(sources, query.by), _get_time_in_budget_zone(sources)
    page = {"by": by, "options": _list_dimensions(sources)}
    if sources.ledger is None:
        return {"ledger": None, **page}
    starts = list_period_starts(now, query.days, query.unit)
    times = [to_epoch_ms(start.timestamp()) for start in starts]
    columns = {"period": make_period_column(times)}
    report = read_bounded(sources.ledger, ("period", by), starts[0], now.astimezone(UTC), columns)
    return {
        "ledger": str(sources.ledger),
        **page,
        "unit": query.unit,
        "zone": str(now.tzinfo),
        "times": times,
        "now": to_epoch_ms(now.timestamp()),
        "groups": _make_groups(report.lines, len(starts)),
        "total": _sum_columns([report.total]),
        "losses": [
            {"cause": line.group[0], "nano": line.cost, "attempts": line.attempts}
            for line in report.losses
        ],
    }


def build_money_csv(sources: Sources, query: MoneyQuery) -> str:
    """Return the spend of the last days by group, as ``headrace usage --format csv`` does."""
    if sources.ledger is None:
        raise InvalidQuery("There is no SQLite ledger.")
    by, now = _get_dimension(sources, query.by), _get_time_in_budget_zone(sources)
    start = list_period_starts(now, query.days, "day")[0]
    return format_csv(read_bounded(sources.ledger, (by,), start, now.astimezone(UTC))) + "\n"


def _list_dimensions(sources: Sources) -> list[str]:
    return [*(f"tag.{name}" for name in sources.snapshot.tags), *DIMENSIONS]


def _get_dimension(sources: Sources, by: str | None) -> str:
    options = _list_dimensions(sources)
    by = by or ("tag.team" if "tag.team" in options else "deployment")
    if by not in options:
        raise InvalidQuery(f"by must be one of {', '.join(options)}.")
    return by


def _get_time_in_budget_zone(sources: Sources) -> datetime:
    """Return the time in the zone of the first budget, otherwise in UTC."""
    budgets = (limit for limit, _ in sources.metrics.catalog.counters if limit.is_budget)
    budget = next(budgets, None)
    zone = UTC if budget is None else ZoneInfo(budget.calendar.zone)
    return datetime.fromtimestamp(sources.now(), zone)


def list_period_starts(now: datetime, days: int, unit: str) -> list[datetime]:
    """Return the starts of the last days or weeks until now, in the zone of ``now``."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first_day = (today - timedelta(days=days - 1)).date()
    if unit == "week":
        first_day -= timedelta(days=first_day.weekday())
    step = 1 if unit == "day" else 7
    count = ((today.date() - first_day).days // step) + 1
    dates = [first_day + timedelta(days=step * number) for number in range(count)]
    return [datetime(d.year, d.month, d.day, tzinfo=now.tzinfo) for d in dates]


def make_period_column(starts: Sequence[int]) -> str:
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


def _make_groups(lines: Sequence[SpendingLine], periods: int) -> list[Data]:
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
        groups.append({"name": name, "values": list(map(_sum_known, costs)), **_sum_columns(group)})
    return groups


def _sum_known(costs: Sequence[int | None]) -> int | None:
    """Return the sum of the known costs, None if none of them is known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known or not costs else None


def _sum_columns(lines: Sequence[SpendingLine]) -> Data:
    return {
        "cost": _sum_known([line.cost for line in lines]),
        "lost": _sum_known([line.lost_cost for line in lines if line.lost_cost != 0]),
        **{name: sum(getattr(line, name) for line in lines) for name in SUMMED_COLUMNS},
    }
