"""The money page: spend by period and group, from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field

from proxy.console import Data, InvalidQuery
from proxy.console.limits import LimitRows
from proxy.console.series import Sources, to_epoch_ms
from proxy.ledger.render import format_csv
from proxy.ledger.spending import QueryBounds, SpendingLine, read_spending
from proxy.types.windows import Calendar

MAX_GROUPS = 50
BOUNDS = QueryBounds(seconds=30.0, max_lines=50_000)
"""A tag that clients set may have any number of values."""
SUMMED_COLUMNS = ("calls", "tokens_in", "tokens_out", "saved", "attempts", "unpriced", "estimated")
DIMENSIONS = ("deployment", "model", "key", "provider", "upstream")


class MoneyQuery(BaseModel):
    """Parameters of the page. ``by`` is a dimension of ``headrace usage``."""

    by: str | None = None
    days: Annotated[int, Field(ge=1, le=366)] = 30
    unit: Literal["day", "week"] = "day"
    format: Literal["json", "csv"] = "json"


def build_money_page(sources: Sources, query: MoneyQuery, limits: LimitRows) -> Data | str:
    """Return the spend of the last days, or its CSV. It blocks while the ledger is read.

    Money is in nano-USD, None if unknown. Raises ``InvalidQuery`` and ``LedgerUnusable``.
    """
    now, ledger = sources.now(), sources.ledger
    options = [*(f"tag.{name}" for name in sources.policies.current.tags), *DIMENSIONS]
    by = query.by or ("tag.team" if "tag.team" in options else "deployment")
    if by not in options:
        raise InvalidQuery(f"by must be one of {', '.join(options)}.")
    if ledger is None:
        if query.format == "csv":
            raise InvalidQuery("There is no SQLite ledger.")
        return {"by": by, "options": options, "ledger": None, "limits": limits}
    budgets = (limit for limit, _ in sources.metrics.catalog.counters if limit.is_budget)
    zone = next((budget.calendar.zone for budget in budgets), "UTC")
    edges = list_period_edges(now, query.days, Calendar(query.unit, zone))
    start, end = (datetime.fromtimestamp(s, UTC) for s in (edges[0] / 1000, now))
    if query.format == "csv":
        return format_csv(read_spending(ledger, (by,), start, end, bounds=BOUNDS)) + "\n"
    columns = {"period": make_period_column(edges)}
    report = read_spending(ledger, ("period", by), start, end, columns, BOUNDS)
    return {
        "ledger": str(ledger),
        "by": by,
        "options": options,
        "unit": query.unit,
        "zone": zone,
        "times": edges[:-1],
        "now": to_epoch_ms(now),
        "groups": _make_groups(report.lines, len(edges) - 1),
        "total": _sum_columns([report.total]),
        "losses": [
            {"cause": line.group[0], "nano": line.cost, "attempts": line.attempts}
            for line in report.losses
        ],
        "limits": limits,
    }


def list_period_edges(now: float, days: int, calendar: Calendar) -> list[int]:
    """Return the starts of the days or weeks until now, and the end of the last one.

    ``now`` is in seconds, edges are in milliseconds since 1970.
    """
    first_day = datetime.fromtimestamp(now, ZoneInfo(calendar.zone)) - timedelta(days=days - 1)
    edges = [calendar.get_window_start_ms(first_day.timestamp())]
    while edges[-1] <= to_epoch_ms(now):
        edges.append(calendar.get_window_bounds_ms(edges[-1]).end)
    return edges


def make_period_column(edges: Sequence[int]) -> str:
    """Return the SQL of the index of a call's period.

    Periods of equal length share a case, so daylight saving adds one case for each change.
    """
    cases, shared_length = list[str](), 0
    for index, (start, end) in enumerate(pairwise(edges)):
        if end - start != shared_length:
            shared_length = end - start
            formula = f"{index} + (c.started_ms - {start}) / {shared_length}"
            cases.insert(0, f"WHEN c.started_ms >= {start} THEN {formula}")
    return f"CAST(CASE {' '.join(cases)} END AS TEXT)"


def _make_groups(lines: Sequence[SpendingLine], periods: int) -> list[Data]:
    """Return the groups by falling cost, each with its cost by period. The rest is ``other``."""
    by_name: defaultdict[str | None, list[SpendingLine]] = defaultdict(list)
    for line in lines:
        by_name[line.group[1]].append(line)
    ordered = sorted(by_name.items(), key=lambda item: -sum(line.cost or 0 for line in item[1]))
    groups = ordered[:MAX_GROUPS]
    if rest := ordered[MAX_GROUPS:]:
        groups.append(("other", [line for _, group in rest for line in group]))
    rows = []
    for name, group in groups:
        costs: list[list[int | None]] = [[] for _ in range(periods)]
        for line in group:
            costs[int(line.group[0] or 0)].append(line.cost)
        rows.append({"name": name, "values": list(map(_sum_known, costs)), **_sum_columns(group)})
    return rows


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
