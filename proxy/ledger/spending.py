"""Usage and cost by dimension, in one query over the ledger."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from proxy.errors.words import quoted
from proxy.ledger.rows import to_ms
from proxy.ledger.sqlite import reading
from proxy.ledger.store import Unusable
from proxy.runtime.frozen import frozen

COLUMNS = {
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
TAG = re.compile(r"tag\.([A-Za-z0-9_.-]{1,64})")

# A call counts once in each group of its attempts, so it is summed before the groups are.
QUERY = """
WITH parts AS (
  SELECT {columns} c.run, c.seq,
    SUM(a.tokens_in) AS tokens_in,
    SUM(a.tokens_out) AS tokens_out,
    SUM(a.cost_nano_usd) AS cost,
    SUM(CASE WHEN a.loss IS NOT NULL THEN a.cost_nano_usd END) AS lost,
    SUM(a.saved_nano_usd) AS saved,
    SUM(a.usage_source <> 'none') AS attempts,
    SUM(a.usage_source <> 'none' AND a.cost_nano_usd IS NULL) AS unpriced,
    SUM(a.usage_source = 'partial_estimate') AS estimated,
    SUM(a.usage_source <> 'none' AND a.loss IS NOT NULL) AS losses,
    SUM(a.usage_source <> 'none' AND a.loss IS NOT NULL AND a.cost_nano_usd IS NULL) AS unknown
  FROM calls c LEFT JOIN attempts a USING (run, seq)
  WHERE c.started_ms >= :since AND c.started_ms < :until
  GROUP BY {names} c.run, c.seq
)
SELECT {names} COUNT(*) AS calls, {sums} FROM parts {grouped}
"""
HAS_TAG = "SELECT 1 FROM calls WHERE json_extract(tags, ?) IS NOT NULL LIMIT 1"
SUMS = (
    "tokens_in",
    "tokens_out",
    "cost",
    "lost",
    "saved",
    "attempts",
    "unpriced",
    "estimated",
    "losses",
    "unknown",
)


class SpendingLine(NamedTuple):
    """Usage of a group, which has a value or None for each dimension.

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


@frozen
class SpendingReport:
    """Usage by group and in total. Groups are sorted by day, if it is a dimension, then by cost."""

    by: tuple[str, ...]
    start: datetime
    end: datetime
    lines: tuple[SpendingLine, ...]
    total: SpendingLine


def read_spending(path: Path, by: Sequence[str], start: datetime, end: datetime) -> SpendingReport:
    """Return the usage of calls that started from ``start`` and before ``end``.

    Raises ``Unusable``, also for a tag that no call in the ledger has.
    """
    columns = [_column(name) for name in by]
    if end < start:
        raise Unusable(f"--until {end:%Y-%m-%d %H:%M} UTC is before --since")
    bounds = {"since": to_ms(start), "until": to_ms(end)}
    tags = {f"tag{n}": f'$."{name[4:]}"' for n, name in enumerate(by) if name.startswith("tag.")}
    with reading(path) as file:
        [total] = file.execute(_query(()), bounds)
        rows = file.execute(_query(columns), {**bounds, **tags}).fetchall() if by else []
        unknown = [
            name[4:]
            for n, name in enumerate(by)
            if f"tag{n}" in tags and rows and all(row[n] is None for row in rows)
            if file.execute(HAS_TAG, (tags[f"tag{n}"],)).fetchone() is None
        ]
    if unknown:
        raise Unusable(f"no call in this ledger has the tag {quoted(unknown[0])}")
    lines = [_line(row[: len(by)], row[len(by) :]) for row in rows]

    def rank(line: SpendingLine) -> tuple[str, int, int, tuple[str, ...]]:
        values = tuple(value or "" for value in line.group)
        day = values[by.index("day")] if "day" in by else ""
        return day, -(line.cost or 0), -line.calls, values

    lines.sort(key=rank)
    return SpendingReport(
        by=tuple(by), start=start, end=end, lines=tuple(lines), total=_line((), total)
    )


def _line(group: Sequence[str | None], row: Sequence[int]) -> SpendingLine:
    """Return a group. A sum is unknown only if none of its parts has a known price."""
    *columns, losses, unknown = row
    line = SpendingLine._make([tuple(group), *columns])
    if line.unpriced and line.unpriced == line.attempts:
        line = line._replace(cost=None)
    return line._replace(lost_cost=None) if unknown and unknown == losses else line


def _column(name: str) -> str:
    if TAG.fullmatch(name):
        return "json_extract(c.tags, :tag{})"
    if name not in COLUMNS:
        tag = f". For a tag, use tag.{name}" if name.isalnum() else ""
        dimensions = ", ".join(COLUMNS)
        raise Unusable(
            f"dimension {quoted(name)} does not exist. Available: {dimensions}, tag.NAME{tag}"
        )
    return COLUMNS[name]


def _query(columns: Sequence[str]) -> str:
    names = "".join(f"d{n}, " for n in range(len(columns)))
    return QUERY.format(
        columns="".join(f"{text.format(n)} AS d{n}, " for n, text in enumerate(columns)),
        names=names,
        sums=", ".join(f"COALESCE(SUM({name}), 0)" for name in SUMS),
        grouped=f"GROUP BY {names[:-2]}" if columns else "",
    )
