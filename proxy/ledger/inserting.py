"""Rows into the tables of the embedded ledger, many with each statement: every statement gives up
the interpreter's lock and has to wait for it again. Rows that are there already, as their commit
was unsure, stay."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from operator import itemgetter

from proxy.ledger.rows import ATTEMPT, CALL, CHARGE, Row, Rows, Value

MAX_PARAMETERS = 30_000
_STARTED = itemgetter(CHARGE.index("started_ms"))


def insert(file: sqlite3.Connection, run: int, rows: Rows) -> int:
    """Insert the rows of a run, within the transaction of the caller. Return how many calls are
    new."""
    new = _insert(file, "calls", CALL, run, rows.calls)
    _insert(file, "attempts", ATTEMPT, run, rows.attempts)
    for some in _parts(rows.charges, len(CHARGE)):
        _charge(file, run, some)
    return new


def _insert(
    file: sqlite3.Connection, table: str, columns: Sequence[str], run: int, rows: Sequence[Row]
) -> int:
    new = 0
    for some in _parts(rows, len(columns)):
        new += file.execute(
            f"INSERT INTO {table} (run, {', '.join(columns)}) "  # noqa: S608  # our own names
            f"SELECT ?, * FROM {_values(some)} WHERE true ON CONFLICT DO NOTHING",
            [run, *_flat(some)],
        ).rowcount
    return new


def _charge(file: sqlite3.Connection, run: int, rows: Sequence[Row]) -> None:
    """Insert charges, and before them the budgets that the file has not heard of, and since when
    each has charges: a recall must not go through all counters of its budget to know that."""
    budgets: dict[Row, None] = {}  # many charges are of few of them
    since: dict[Value, Value] = {}
    for _, name, scope, started_ms, _ in sorted(rows, key=_STARTED, reverse=True):
        budgets[name, scope] = None
        since[name] = started_ms  # the last one is the first of its charges
    file.execute(
        "INSERT INTO budgets (name, scope) SELECT * "  # noqa: S608  # our own names
        f"FROM {_values([*budgets])} WHERE true ON CONFLICT DO NOTHING",
        _flat([*budgets]),
    )
    file.execute(
        "INSERT INTO charges (run, seq, budget, started_ms, cost_nano_usd) "  # noqa: S608
        f"SELECT ?, v.column1, b.id, v.column4, v.column5 FROM {_values(rows)} AS v "
        "CROSS JOIN budgets b ON b.name = v.column2 AND b.scope = v.column3 WHERE true "
        "ON CONFLICT DO NOTHING",
        [run, *_flat(rows)],
    )
    file.execute(
        "INSERT INTO charged_since (name, since_ms) SELECT * "  # noqa: S608  # our own names
        f"FROM {_values([*since.items()])} WHERE true "
        "ON CONFLICT DO UPDATE SET since_ms = excluded.since_ms "
        "WHERE excluded.since_ms < charged_since.since_ms",
        _flat([*since.items()]),
    )


def _parts(rows: Sequence[Row], columns: int) -> Iterator[Sequence[Row]]:
    most = MAX_PARAMETERS // columns
    return (rows[start : start + most] for start in range(0, len(rows), most))


def _values(rows: Sequence[Row]) -> str:
    marks = f"({', '.join('?' * len(rows[0]))})"
    return f"(VALUES {', '.join([marks] * len(rows))})"


def _flat(rows: Sequence[Row]) -> list[str | int | None]:
    return [value for row in rows for value in row]
