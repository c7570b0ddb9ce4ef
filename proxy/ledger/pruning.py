"""Old rows that are let go: a few at a time, and never one that a budget may still have to recall.

What is pruned stays counted in the row of the process that wrote it, so that a ledger is as
provable afterwards as it was before.
"""

from __future__ import annotations

import sqlite3

from proxy.frozen import frozen
from proxy.types.windows import Calendar, Unit

AT_ONCE = 500
UNITS: tuple[Unit, ...] = ("week", "month")  # all shorter ones lie within
LAST = "Etc/GMT+12"  # where a day ends last
FURTHEST_MS = 26 * 3_600_000  # how much earlier it may have begun elsewhere


@frozen
class Pruned:
    """What was let go: how many calls, and what of their cost was known. ``held`` calls are as old
    as those that were to go, and stay for budgets."""

    calls: int = 0
    nano_usd: int = 0
    held: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        held = self.held + other.held
        return Pruned(self.calls + other.calls, self.nano_usd + other.nano_usd, held)


def bound(before_ms: int, now_ms: int) -> int:
    """Return the moment before which rows may go: at most the begin of the oldest week or month
    still open anywhere on earth, as a budget that begins anew asks for all of its window."""
    begins = [Calendar(unit, LAST).around(now_ms)[1] for unit in UNITS]
    return min(before_ms, *(begin - FURTHEST_MS for begin in begins))


def prune(file: sqlite3.Connection, before_ms: int) -> Pruned:
    """Let some ``AT_ONCE`` of the oldest calls go that began before a moment, within the
    transaction of the caller. Fewer mean that there are no more."""
    [last_ms] = file.execute(
        "SELECT MAX(started_ms) FROM "
        "(SELECT started_ms FROM calls WHERE started_ms < ? ORDER BY started_ms LIMIT ?)",
        [before_ms, AT_ONCE],
    ).fetchone()
    if last_ms is None:
        return Pruned()
    last = {"last": last_ms}  # with all that began in the same millisecond
    [calls, nano_usd] = file.execute(
        "SELECT COUNT(*), COALESCE(SUM(cost_nano_usd), 0) FROM calls WHERE started_ms <= :last",
        last,
    ).fetchone()
    file.execute(
        "UPDATE runs SET pruned = pruned + gone.calls, "
        "  pruned_nano_usd = pruned_nano_usd + gone.nano_usd "
        "FROM (SELECT run, COUNT(*) AS calls, COALESCE(SUM(cost_nano_usd), 0) AS nano_usd "
        "      FROM calls WHERE started_ms <= :last GROUP BY run) AS gone "
        "WHERE runs.id = gone.run",
        last,
    )
    for table in ("attempts", "charges"):
        file.execute(
            f"DELETE FROM {table} WHERE (run, seq) IN "  # noqa: S608  # our own names
            "(SELECT run, seq FROM calls WHERE started_ms <= :last)",
            last,
        )
    if calls < AT_ONCE:
        file.execute(
            "DELETE FROM budgets WHERE NOT EXISTS (SELECT 1 FROM charges WHERE budget = budgets.id)"
        )
        file.execute("DELETE FROM charged_since WHERE name NOT IN (SELECT name FROM budgets)")
    file.execute("DELETE FROM calls WHERE started_ms <= :last", last)
    return Pruned(calls, nano_usd)
