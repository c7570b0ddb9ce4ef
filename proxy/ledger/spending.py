"""Usage and cost by dimension, and the spend of a budget in its window.

Each call has a row for each budget that it was charged to. Calls from before the first charge of a
budget are summed by key, deployment and model, unless rules decide which calls count.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from proxy.errors.words import quote
from proxy.ledger.rows import hash_long_or_unprintable_scope, to_ms
from proxy.ledger.sqlite import interrupt_after, open_for_reading
from proxy.ledger.store import LedgerUnusable
from proxy.runtime.frozen import frozen
from proxy.types.limit import BudgetQuery

COLUMN_BY_DIMENSION = {
    "key": "c.key",
    "deployment": "c.deployment",
    "endpoint": "c.endpoint",
    "day": "date(c.started_ms / 1000, 'unixepoch')",
    "model": "a.model",
    "provider": "a.provider",
    "upstream": "a.upstream",
    "money": "a.money",
    "loss": "a.loss",
}
TAG_DIMENSION = re.compile(r"tag\.([A-Za-z0-9_.-]{1,64})")

# A call counts once in each group of its attempts. The ledger is read once for all groups.
SPENDING_QUERY = """
WITH parts AS MATERIALIZED (
  SELECT {columns} a.loss, (c.run << 40) | c.seq AS call,
    SUM(a.tokens_in) AS tokens_in,
    SUM(a.tokens_out) AS tokens_out,
    SUM(a.cost_nano_usd) AS cost,
    SUM(CASE WHEN a.loss IS NOT NULL THEN a.cost_nano_usd END) AS lost_cost,
    SUM(a.saved_nano_usd) AS saved,
    SUM(a.usage_source <> 'none') AS attempts,
    SUM(a.usage_source <> 'none' AND a.cost_nano_usd IS NULL) AS unpriced,
    SUM(a.usage_source = 'partial_estimate') AS estimated,
    SUM(a.usage_source <> 'none' AND a.loss IS NOT NULL) AS losses,
    SUM(a.usage_source <> 'none' AND a.loss IS NOT NULL AND a.cost_nano_usd IS NULL) AS unknown
  FROM calls c LEFT JOIN attempts a USING (run, seq)
  WHERE c.started_ms >= :since AND c.started_ms < :until
  GROUP BY {names} a.loss, c.run, c.seq
)
SELECT 'total', NULL, {nulls} {sums} FROM parts
UNION ALL SELECT 'loss', loss, {nulls} {sums} FROM parts WHERE loss IS NOT NULL GROUP BY loss
"""
GROUPS_QUERY = "UNION ALL SELECT 'group', NULL, {names} {sums} FROM parts GROUP BY {names_only}"
HAS_TAG = "SELECT 1 FROM calls WHERE json_extract(tags, ?) IS NOT NULL LIMIT 1"


class SpendingLine(NamedTuple):
    """Usage of a group, whose ``group`` has a value or None for each dimension.

    Cost is in nano-USD, None if no part of it has a known price. ``attempts`` counts the attempts
    that used tokens, ``unpriced`` those without a known price, ``estimated`` those without reported
    usage.
    """

    group: tuple[str | None, ...]
    calls: int
    tokens_in: int
    tokens_out: int
    cost: int | None
    lost_cost: int | None
    saved: int
    attempts: int
    unpriced: int
    estimated: int


SUMMED_COLUMNS = (*SpendingLine._fields[2:], "losses", "unknown")


@frozen
class SpendingReport:
    """Usage by group, by cause of a loss, and in total.

    Groups are sorted by day, if it is a dimension, then by cost.
    """

    by: tuple[str, ...]
    start: datetime
    end: datetime
    lines: tuple[SpendingLine, ...]
    total: SpendingLine
    losses: tuple[SpendingLine, ...] = ()


class QueryBounds(NamedTuple):
    """Maximum time of a query in seconds, and maximum number of its groups."""

    seconds: float
    max_lines: int


def read_spending(
    path: Path,
    by: Sequence[str],
    start: datetime,
    end: datetime,
    extra_columns: Mapping[str, str] = MappingProxyType({}),
    bounds: QueryBounds | None = None,
) -> SpendingReport:
    """Return the usage of calls that started at or after ``start`` and before ``end``.

    ``extra_columns`` has the SQL of more dimensions, by name.
    Raises ``LedgerUnusable``, also beyond ``bounds``.
    """
    columns = [extra_columns.get(name) or _find_column(name) for name in by]
    if end < start:
        raise LedgerUnusable(f"--until {end:%Y-%m-%d %H:%M} UTC is before --since")
    period = {"since": to_ms(start), "until": to_ms(end)}
    tags = {f"tag{n}": _make_tag_path(name) for n, name in enumerate(by) if name.startswith("tag.")}
    with open_for_reading(path) as file:
        if bounds is not None:
            interrupt_after(file, bounds.seconds)
        lines: dict[str, list[SpendingLine]] = {"total": [], "loss": [], "group": []}
        for kind, loss, *row in file.execute(_build_query(columns), {**period, **tags}):
            group = [loss] if kind == "loss" else row[: len(by)] if kind == "group" else ()
            lines[kind].append(_make_spending_line(group, row[len(by) :]))
            if bounds is not None and len(lines["group"]) > bounds.max_lines:
                message = f"more than {bounds.max_lines:,} groups. Choose fewer days or groups"
                raise LedgerUnusable(message)

    def rank(line: SpendingLine) -> tuple[str, int, int, tuple[str, ...]]:
        values = tuple(value or "" for value in line.group)
        day = values[by.index("day")] if "day" in by else ""
        return day, -(line.cost or 0), -line.calls, values

    return SpendingReport(
        by=tuple(by),
        start=start,
        end=end,
        lines=tuple(sorted(lines["group"], key=rank)),
        losses=tuple(lines["loss"]),
        total=lines["total"][0],
    )


def require_known_tags(path: Path, report: SpendingReport) -> None:
    """Raise ``LedgerUnusable`` if a report is by a tag that no call in the ledger has."""
    unused = [
        name
        for n, name in enumerate(report.by if report.lines else ())
        if name.startswith("tag.") and all(line.group[n] is None for line in report.lines)
    ]
    for name in unused:
        with open_for_reading(path) as file:
            is_known = file.execute(HAS_TAG, [_make_tag_path(name)]).fetchone() is not None
        if not is_known:
            raise LedgerUnusable(f"no call in this ledger has the tag {quote(name[4:])}")


def _make_tag_path(name: str) -> str:
    return f'$."{name[4:]}"'


def _make_spending_line(group: Sequence[str | None], row: Sequence[int]) -> SpendingLine:
    """Return the line of a group. A cost is None only if no attempt in it has a price."""
    *columns, losses, unknown = row
    line = SpendingLine._make([tuple(group), *columns])
    if line.unpriced and line.unpriced == line.attempts:
        line = line._replace(cost=None)
    return line._replace(lost_cost=None) if unknown and unknown == losses else line


def _find_column(name: str) -> str:
    if TAG_DIMENSION.fullmatch(name):
        return "json_extract(c.tags, :tag{})"
    if name not in COLUMN_BY_DIMENSION:
        tag = f". For a tag, use tag.{name}" if name.isalnum() else ""
        dimensions = ", ".join(COLUMN_BY_DIMENSION)
        raise LedgerUnusable(
            f"dimension {quote(name)} does not exist. Available: {dimensions}, tag.NAME{tag}"
        )
    return COLUMN_BY_DIMENSION[name]


def _build_query(columns: Sequence[str]) -> str:
    names = [f"d{n}" for n in range(len(columns))]
    sums = ", ".join(f"COALESCE(SUM({name}), 0)" for name in SUMMED_COLUMNS)
    return (SPENDING_QUERY + (GROUPS_QUERY if names else "")).format(
        columns="".join(f"{text.format(n)} AS d{n}, " for n, text in enumerate(columns)),
        names="".join(f"{name}, " for name in names),
        nulls="NULL, " * len(names),
        sums=f"COUNT(DISTINCT call), {sums}",
        names_only=", ".join(names),
    )


CHARGED_SPEND = """
SELECT b.scope, SUM(c.cost_nano_usd)
FROM budgets b CROSS JOIN charges c ON c.budget = b.id
WHERE b.name = :name AND b.scope IN (SELECT value FROM json_each(:scopes))
  AND c.started_ms >= :since
  AND (c.started_ms < :run_since OR c.run IS NOT (SELECT id FROM runs WHERE name = :run))
GROUP BY b.id
"""
FIRST_CHARGE = "SELECT since_ms FROM charged_since WHERE name = ?"
UNCHARGED_SPEND = """
SELECT {columns} COALESCE(SUM(a.cost_nano_usd), 0)
FROM calls c JOIN attempts a USING (run, seq)
WHERE c.started_ms >= :since AND c.started_ms < :until
  AND (c.started_ms < :run_since OR c.run IS NOT (SELECT id FROM runs WHERE name = :run))
  AND c.deployment IN (SELECT value FROM json_each(:deployments)) {grouped}
"""
NEVER_MS = 2**53


class CallsOfRun(NamedTuple):
    """Calls of one run of a process that started at or after a moment."""

    run: str
    since_ms: int


NO_CALLS = CallsOfRun("", NEVER_MS)


def read_ledger_id(path: Path) -> str | None:
    """Return the name of a ledger's first run as its id, None if the file cannot be read."""
    with suppress(LedgerUnusable), open_for_reading(path, migrate_copy=False) as file:
        row = file.execute("SELECT name FROM runs ORDER BY id LIMIT 1").fetchone()
        return None if row is None else str(row[0])
    return None


async def read_spend_unless_per_user(
    path: Path,
    budget: BudgetQuery,
    scopes: Iterable[str],
    since_ms: int,
    excluded: CallsOfRun = NO_CALLS,
) -> dict[str, int] | None:
    """Return the nano-USD by scope of a budget for calls since a moment, off the event loop.

    Rows that are not written yet do not count. Returns None for a budget per user, because no row
    names users. Raises ``LedgerUnusable`` if the file cannot be read.
    """
    if "user" in budget.per:
        return None
    return await asyncio.to_thread(_read_spend, path, budget, tuple(scopes), since_ms, excluded)


def _read_spend(
    path: Path, budget: BudgetQuery, scopes: tuple[str, ...], since_ms: int, excluded: CallsOfRun
) -> dict[str, int]:
    names = {scope: hash_long_or_unprintable_scope(scope) for scope in scopes}
    bounds = {"since": since_ms, "run": excluded.run, "run_since": excluded.since_ms}
    with open_for_reading(path) as file:
        parameters = {"name": budget.limit.name, "scopes": json.dumps(list(names.values()))}
        charged = dict(file.execute(CHARGED_SPEND, {**parameters, **bounds}))
        uncharged: dict[str, int] = {}
        if budget.deployments is not None:
            first_charge = file.execute(FIRST_CHARGE, [budget.limit.name]).fetchone()
            until_ms = NEVER_MS if first_charge is None else first_charge[0]
            if until_ms > since_ms:
                uncharged = dict(_read_uncharged_spend(file, budget, {**bounds, "until": until_ms}))
    return {scope: charged.get(name, 0) + uncharged.get(scope, 0) for scope, name in names.items()}


def _read_uncharged_spend(
    file: sqlite3.Connection, budget: BudgetQuery, bounds: Mapping[str, object]
) -> Iterator[tuple[str, int]]:
    """Yield each scope and the cost of its calls, for a period without charges."""
    per = budget.per
    query = UNCHARGED_SPEND.format(
        columns="".join(f"COALESCE({_find_scope_column(name)}, ''), " for name in per),
        grouped=f"GROUP BY {', '.join(str(n + 1) for n in range(len(per)))}" if per else "",
    )
    deployments = json.dumps(sorted(budget.deployments or ()))
    for *values, cost in file.execute(query, {**bounds, "deployments": deployments}):
        labels = [f"{name}:{value}" for name, value in zip(per, values, strict=True)]
        yield "|".join(labels), int(cost)


def _find_scope_column(name: str) -> str:
    """Return the column of a scope. The policy allows letters, digits and underscores in tags."""
    tag = name.removeprefix("tag.")
    return COLUMN_BY_DIMENSION[name] if tag == name else f"json_extract(c.tags, '$.\"{tag}\"')"
