"""Statements that insert and prune rows of the embedded ledger, in the caller's transaction.

A statement inserts many rows, because each one releases the interpreter's lock and waits for it.
Rows that exist already, after a commit with an unknown result, stay.

Old rows are pruned in small batches, except those that a budget may still need. The row of their
run counts them, so the audit still works.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from operator import itemgetter

from proxy.ledger.rows import ATTEMPT_COLUMNS, CALL_COLUMNS, CHARGE_COLUMNS, Row, Rows, Value
from proxy.runtime.frozen import frozen
from proxy.types.windows import Calendar, Unit

MAX_PARAMETERS = 30_000
PRUNE_BATCH = 500
LONGEST_UNITS: tuple[Unit, ...] = ("week", "month")  # they include all shorter ones
LAST_ZONE = "Etc/GMT+12"  # the time zone where a day ends last
ZONE_SPREAD_MS = 26 * 3_600_000  # between the start of a day in the first zone and in the last
_STARTED = itemgetter(CHARGE_COLUMNS.index("started_ms"))


def insert_rows(file: sqlite3.Connection, run: int, rows: Rows) -> int:
    """Insert the rows of a run. Return the number of new calls."""
    new = _insert_into_table(file, "calls", CALL_COLUMNS, run, rows.calls)
    _insert_into_table(file, "attempts", ATTEMPT_COLUMNS, run, rows.attempts)
    for batch in _split_into_batches(rows.charges, len(CHARGE_COLUMNS)):
        _insert_charges_and_budgets(file, run, batch)
    return new


def _insert_into_table(
    file: sqlite3.Connection, table: str, columns: Sequence[str], run: int, rows: Sequence[Row]
) -> int:
    new = 0
    for batch in _split_into_batches(rows, len(columns)):
        new += file.execute(
            f"INSERT INTO {table} (run, {', '.join(columns)}) "  # noqa: S608  # our own names
            f"SELECT ?, * FROM {_make_values_clause(batch)} WHERE true ON CONFLICT DO NOTHING",
            [run, *_flatten(batch)],
        ).rowcount
    return new


def _insert_charges_and_budgets(file: sqlite3.Connection, run: int, rows: Sequence[Row]) -> None:
    """Insert charges, new budgets, and the start of each budget's first charge.

    The stored start avoids a query over all counters of the budget.
    """
    budgets: dict[Row, None] = {}  # a dict as an ordered set
    first_charge_ms: dict[Value, Value] = {}
    for _, name, scope, started_ms, _ in sorted(rows, key=_STARTED, reverse=True):
        budgets[name, scope] = None
        first_charge_ms[name] = started_ms  # ends as the time of the earliest charge
    file.execute(
        "INSERT INTO budgets (name, scope) SELECT * "  # noqa: S608  # our own names
        f"FROM {_make_values_clause([*budgets])} WHERE true ON CONFLICT DO NOTHING",
        _flatten([*budgets]),
    )
    file.execute(
        "INSERT INTO charges (run, seq, budget, started_ms, cost_nano_usd) "  # noqa: S608
        f"SELECT ?, v.column1, b.id, v.column4, v.column5 FROM {_make_values_clause(rows)} AS v "
        "CROSS JOIN budgets b ON b.name = v.column2 AND b.scope = v.column3 WHERE true "
        "ON CONFLICT DO NOTHING",
        [run, *_flatten(rows)],
    )
    file.execute(
        "INSERT INTO charged_since (name, since_ms) SELECT * "  # noqa: S608  # our own names
        f"FROM {_make_values_clause([*first_charge_ms.items()])} WHERE true "
        "ON CONFLICT DO UPDATE SET since_ms = excluded.since_ms "
        "WHERE excluded.since_ms < charged_since.since_ms",
        _flatten([*first_charge_ms.items()]),
    )


def _split_into_batches(rows: Sequence[Row], columns: int) -> Iterator[Sequence[Row]]:
    batch_size = MAX_PARAMETERS // columns
    return (rows[start : start + batch_size] for start in range(0, len(rows), batch_size))


def _make_values_clause(rows: Sequence[Row]) -> str:
    marks = f"({', '.join('?' * len(rows[0]))})"
    return f"(VALUES {', '.join([marks] * len(rows))})"


def _flatten(rows: Sequence[Row]) -> list[str | int | None]:
    return [value for row in rows for value in row]


@frozen
class PruneResult:
    """Number of pruned calls and their known cost.

    ``retained`` is the number of equally old calls that budgets still need.
    """

    calls: int = 0
    nano_usd: int = 0
    retained: int = 0

    def __add__(self, addend: PruneResult) -> PruneResult:
        retained = self.retained + addend.retained
        return PruneResult(self.calls + addend.calls, self.nano_usd + addend.nano_usd, retained)


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
