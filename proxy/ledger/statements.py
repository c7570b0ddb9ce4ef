"""Statements that insert and prune rows of the embedded ledger, in the caller's transaction.

A statement inserts many rows, because each one releases the interpreter's lock and waits for it.
Rows that exist already, after a commit with an unknown result, stay.

Old rows are pruned in small batches, except those that a budget may still need. The row of their
run counts them, so the audit still works.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from proxy.ledger.rows import Row, Rows, Value
from proxy.types.windows import Calendar, Unit

MAX_PARAMETERS = 30_000
PRUNE_BATCH = 500
LONGEST_UNITS: tuple[Unit, ...] = ("week", "month")  # they include all shorter ones
LAST_ZONE = "Etc/GMT+12"  # the time zone where a day ends last
ZONE_SPREAD_MS = 26 * 3_600_000  # between the start of a day in the first zone and in the last
INSERT_ROWS = "INSERT INTO {} (run, {}) SELECT ?, * FROM {} WHERE true ON CONFLICT DO NOTHING"
INSERT_BUDGETS = """
INSERT INTO budgets (name, scope) SELECT * FROM {} WHERE true ON CONFLICT DO NOTHING"""
INSERT_CHARGES = """
INSERT INTO charges (run, seq, budget, started_ms, cost_nano_usd)
SELECT ?, v.column1, b.id, v.column4, v.column5 FROM {} AS v
CROSS JOIN budgets b ON b.name = v.column2 AND b.scope = v.column3 WHERE true
ON CONFLICT DO NOTHING
"""
INSERT_FIRST_CHARGES = """
INSERT INTO charged_since (name, since_ms) SELECT * FROM {} WHERE true
ON CONFLICT DO UPDATE SET since_ms = excluded.since_ms
WHERE excluded.since_ms < charged_since.since_ms
"""


def insert_rows(file: sqlite3.Connection, run: int, batch: Sequence[Rows]) -> int:
    """Insert the rows of a run. Return the number of new calls."""
    new = _insert_into_table(file, "calls", run, [rows.call for rows in batch])
    _insert_into_table(file, "attempts", run, [row for rows in batch for row in rows.attempts])
    for charges in _split_into_batches([row for rows in batch for row in rows.charges]):
        _insert_charges_and_budgets(file, run, charges)
    return new


def _insert_into_table(file: sqlite3.Connection, table: str, run: int, rows: Sequence[Row]) -> int:
    new = 0
    for batch in _split_into_batches(rows):
        insert = INSERT_ROWS.format(table, ", ".join(batch[0]), "{}")
        new += _execute(file, insert, [row.values() for row in batch], run)
    return new


def _insert_charges_and_budgets(file: sqlite3.Connection, run: int, rows: Sequence[Row]) -> None:
    """Insert charges, new budgets, and the start of each budget's first charge.

    The stored start avoids a query over all counters of the budget.
    """
    latest_first = sorted(rows, key=itemgetter("started_ms"), reverse=True)
    first_charge_ms = {row["budget"]: row["started_ms"] for row in latest_first}
    _execute(file, INSERT_BUDGETS, [*{(row["budget"], row["scope"]): None for row in rows}])
    _execute(file, INSERT_CHARGES, [row.values() for row in rows], run)
    _execute(file, INSERT_FIRST_CHARGES, [*first_charge_ms.items()])


def _split_into_batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    batch_size = MAX_PARAMETERS // len(rows[0]) if rows else 1
    return (rows[start : start + batch_size] for start in range(0, len(rows), batch_size))


def _execute(
    file: sqlite3.Connection, insert: str, rows: Sequence[Collection[Value]], *run: int
) -> int:
    """Run a statement with the values of rows in the place of ``{}``.

    ``run`` has the parameters before ``{}``. Returns the number of inserted rows.
    """
    marks = f"({', '.join('?' * len(rows[0]))})"
    values = f"(VALUES {', '.join([marks] * len(rows))})"
    return file.execute(insert.format(values), [*run, *chain.from_iterable(rows)]).rowcount


class PruneResult(NamedTuple):
    """Number of pruned calls, their known cost, and the number of calls that budgets still need."""

    calls: int = 0
    nano_usd: int = 0
    retained: int = 0


def get_prune_limit_ms(before_ms: int, now_ms: int) -> int:
    """Return the moment before which rows may be pruned, at most ``before_ms``.

    Rows of the current week and month are kept in every time zone, because a budget may count them.
    """
    starts = [Calendar(unit, LAST_ZONE).get_window_bounds_ms(now_ms)[1] for unit in LONGEST_UNITS]
    return min(before_ms, *(start - ZONE_SPREAD_MS for start in starts))


def prune_oldest_batch(file: sqlite3.Connection, before_ms: int) -> PruneResult:
    """Delete about ``PRUNE_BATCH`` of the oldest calls that started before a moment.

    A smaller number means that there are no more.
    """
    [last_ms] = file.execute(
        "SELECT MAX(started_ms) FROM "
        "(SELECT started_ms FROM calls WHERE started_ms < ? ORDER BY started_ms LIMIT ?)",
        [before_ms, PRUNE_BATCH],
    ).fetchone()
    if last_ms is None:
        return PruneResult()
    bounds = {"last": last_ms}  # includes all calls of that millisecond
    [calls, nano_usd] = file.execute(
        "SELECT COUNT(*), COALESCE(SUM(cost_nano_usd), 0) FROM calls WHERE started_ms <= :last",
        bounds,
    ).fetchone()
    file.execute(
        "UPDATE runs SET pruned = pruned + gone.calls, "
        "  pruned_nano_usd = pruned_nano_usd + gone.nano_usd "
        "FROM (SELECT run, COUNT(*) AS calls, COALESCE(SUM(cost_nano_usd), 0) AS nano_usd "
        "      FROM calls WHERE started_ms <= :last GROUP BY run) AS gone "
        "WHERE runs.id = gone.run",
        bounds,
    )
    for table in ("attempts", "charges"):
        file.execute(
            f"DELETE FROM {table} WHERE (run, seq) IN "  # noqa: S608  # our own names
            "(SELECT run, seq FROM calls WHERE started_ms <= :last)",
            bounds,
        )
    if calls < PRUNE_BATCH:
        file.execute(
            "DELETE FROM budgets WHERE NOT EXISTS (SELECT 1 FROM charges WHERE budget = budgets.id)"
        )
        file.execute("DELETE FROM charged_since WHERE name NOT IN (SELECT name FROM budgets)")
    file.execute("DELETE FROM calls WHERE started_ms <= :last", bounds)
    return PruneResult(calls, nano_usd)
