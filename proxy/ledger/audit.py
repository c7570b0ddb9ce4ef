"""Consistency checks of a ledger. Each check is a query that finds rows that must not exist.

A proxy may write meanwhile: the audit waits for the rows of calls that have already ended. Calls
without a row are a violation, unless the operator has accepted their number. They are calls that
ended, and calls that were running when the process was killed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from proxy.errors.words import format_count
from proxy.ledger import render
from proxy.ledger.crashes import (
    Crash,
    find_crashed_runs,
    get_counters_folder,
    read_position,
    read_process_counts,
)
from proxy.ledger.jsonl import get_refused_rows_path
from proxy.ledger.rows import compute_charge_checksum
from proxy.ledger.sqlite import open_for_reading
from proxy.ledger.statements import PruneResult
from proxy.runtime.frozen import frozen

MAX_LISTED_ROWS = 5
MAX_POLLS = 40  # checks that a ledger may lag behind before it is a violation
POLL_INTERVAL_S = 0.25
MARKED_CRASHES = """
SELECT id, ended - settled, begun - ended, exact FROM runs WHERE crashed_ms IS NOT NULL"""

# A sum is unknown if one of its parts is, as in the row of the call.
CHECK_QUERIES: dict[str, str] = {
    "calls without a run": """
        SELECT c.run || '/' || c.seq FROM calls c LEFT JOIN runs r ON r.id = c.run
        WHERE r.id IS NULL""",
    "attempts without a call": """
        SELECT a.run || '/' || a.seq FROM attempts a LEFT JOIN calls c USING (run, seq)
        WHERE c.seq IS NULL""",
    "calls with missing attempts": """
        SELECT c.run || '/' || c.seq FROM calls c LEFT JOIN attempts a USING (run, seq)
        GROUP BY c.run, c.seq
        HAVING c.attempts <> COUNT(a.number) OR c.attempts <> COALESCE(MAX(a.number), 0)""",
    "calls whose cost differs from the cost of their attempts": """
        SELECT c.run || '/' || c.seq FROM calls c
        LEFT JOIN attempts a ON a.run = c.run AND a.seq = c.seq AND a.usage_source <> 'none'
        GROUP BY c.run, c.seq
        HAVING c.cost_nano_usd IS NOT
          CASE WHEN COUNT(a.number) = COUNT(a.cost_nano_usd) THEN SUM(a.cost_nano_usd) END""",
    "calls whose tokens differ from the tokens of their attempts": """
        SELECT c.run || '/' || c.seq FROM calls c
        LEFT JOIN attempts a ON a.run = c.run AND a.seq = c.seq AND a.usage_source <> 'none'
        GROUP BY c.run, c.seq
        HAVING c.tokens IS NOT
          CASE WHEN COUNT(a.number) = COUNT(a.tokens_in)
            THEN SUM(a.tokens_in + a.tokens_out) END""",
    "attempts with a cost or tokens but without usage": """
        SELECT run || '/' || seq FROM attempts
        WHERE usage_source = 'none'
          AND COALESCE(NULLIF(cost_nano_usd, 0), NULLIF(tokens_in, 0), NULLIF(tokens_out, 0))
            IS NOT NULL""",
    "charges without a call": """
        SELECT h.run || '/' || h.seq FROM charges h LEFT JOIN calls c USING (run, seq)
        WHERE c.seq IS NULL""",
    "charges to an unknown budget": """
        SELECT h.run || '/' || h.seq FROM charges h LEFT JOIN budgets b ON b.id = h.budget
        WHERE b.id IS NULL""",
    "charges whose cost or start differs from that of their call": """
        SELECT h.run || '/' || h.seq FROM charges h JOIN calls c USING (run, seq)
        WHERE h.started_ms <> c.started_ms OR h.cost_nano_usd <> c.cost_nano_usd""",
    "calls with missing or changed charges": """
        SELECT c.run || '/' || c.seq FROM calls c
        LEFT JOIN charges h USING (run, seq) LEFT JOIN budgets b ON b.id = h.budget
        WHERE c.charge_count IS NOT NULL GROUP BY c.run, c.seq
        HAVING c.charge_count <> COUNT(h.budget)
          OR c.charged_nano_usd <> COALESCE(SUM(h.cost_nano_usd), 0)
          OR c.charges_checksum <> COALESCE(
            SUM(CASE WHEN b.id THEN checksum(b.name, b.scope, h.cost_nano_usd) END), 0)""",
    "calls with the same trace and span id": """
        SELECT trace_id || ' ' || span_id FROM calls
        GROUP BY trace_id, span_id HAVING COUNT(*) > 1""",
    "missing run numbers": """
        SELECT 'between ' || id || ' and ' || next FROM
          (SELECT id, LEAD(id) OVER (ORDER BY id) AS next
            FROM (SELECT 0 AS id UNION ALL SELECT id FROM runs))
        WHERE next > id + 1""",
    "runs with more or fewer rows than were written": """
        SELECT 'run ' || r.id FROM runs r LEFT JOIN calls c ON c.run = r.id
        GROUP BY r.id HAVING COUNT(c.seq) <> r.written - r.pruned""",
    "runs with a row number above their number of ended calls": """
        SELECT 'run ' || r.id FROM runs r JOIN calls c ON c.run = r.id
        GROUP BY r.id HAVING MAX(c.seq) > r.ended""",
    "runs that closed without settling every call": """
        SELECT 'run ' || id FROM runs
        WHERE closed_ms IS NOT NULL AND (begun <> ended OR ended <> settled)""",
    "runs that ended more calls than began, or settled more than ended": """
        SELECT 'run ' || id FROM runs WHERE settled > ended OR ended > begun""",
}


@frozen
class Audit:
    """Result of an audit.

    Attributes:
        pruned: Pruned calls, with the known part of their cost.
        unsettled: Number of ended calls that the running proxy has not written in time.
        missing: Number of calls without a row.
        known_missing: Number of missing calls that the operator has accepted.
        refused: File of rows that the ledger rejected, None if there is none.
    """

    calls: int
    attempts: int
    runs: int
    dropped: int
    crashes: tuple[Crash, ...]
    violations: tuple[str, ...]
    pruned: PruneResult
    unsettled: int
    missing: int
    known_missing: int
    refused: Path | None

    def text(self) -> str:
        """Return the counts, and the violations or that there are none, one a line."""
        return "\n".join([*self._format_counts(), *self._format_verdict()])

    def _format_counts(self) -> Iterator[str]:
        rows = format_count(self.calls, "call"), format_count(self.attempts, "attempt")
        yield ", ".join((*rows, format_count(self.runs, "run")))
        yield from map(_describe_crash, self.crashes)
        if self.pruned.calls:
            calls = format_count(self.pruned.calls, "call was", "calls were")
            yield f"{calls} pruned (cost ${render.format_cost(self.pruned.nano_usd)})"
        if self.dropped:
            calls = format_count(self.dropped, "call was", "calls were")
            yield f"{calls} dropped, because the ledger could not be written"
        if self.unsettled:
            calls = format_count(self.unsettled, "ended call was", "ended calls were")
            waited_s = MAX_POLLS * POLL_INTERVAL_S
            yield f"{calls} not written by the running proxy within {waited_s:g} s"
        if self.refused:
            yield f"rows that the ledger rejected are in {self.refused}"

    def _format_verdict(self) -> Iterator[str]:
        if not self.violations:
            known = format_count(self.missing, "known missing call")
            known_missing = f", except {known}" if self.missing else ""
            yield f"valid: every call has a row, and every row has a call{known_missing}"
        yield from (f"violation: {violation}" for violation in self.violations)
        if self.missing > self.known_missing:
            yield f"to accept the missing calls: verify-ledger --known-missing {self.missing}"


def _describe_crash(crash: Crash) -> str:
    bound = "exactly" if crash.is_exact else "at least"
    where = "" if crash.is_exact else ", or still runs where its counters are not visible"
    where = ", or the file is an older copy" if crash.is_older_copy else where
    missing = format_count(crash.missing, "call has", "calls have")
    counts = f"{crash.unwritten_calls} ended, {crash.running_calls} running"
    return f"run {crash.run} crashed{where}: {bound} {missing} no row ({counts})"


def audit(path: Path, known_missing: int = 0, sleep: Callable[[float], None] = time.sleep) -> Audit:
    """Check a ledger. Up to ``known_missing`` calls without a row are no violation.

    Waits for at most 10 seconds for rows of a running proxy. Raises ``LedgerUnusable``.
    """
    ended_by_run = _count_ended_calls_of_open_runs(path)
    for _ in range(MAX_POLLS):
        if not _count_unsettled_ended_calls(path, ended_by_run):
            break
        sleep(POLL_INTERVAL_S)
    position = read_position(path)
    with open_for_reading(path) as file:
        [calls] = file.execute("SELECT COUNT(*) FROM calls").fetchone()
        [attempts] = file.execute("SELECT COUNT(*) FROM attempts").fetchone()
        runs, dropped, pruned_calls, pruned_nano_usd = file.execute(
            "SELECT COUNT(*), COALESCE(SUM(dropped), 0), COALESCE(SUM(pruned), 0), "
            "COALESCE(SUM(pruned_nano_usd), 0) FROM runs"
        ).fetchone()
        marked = [
            Crash(run, unwritten_calls, running_calls, is_exact=bool(is_exact))
            for run, unwritten_calls, running_calls, is_exact in file.execute(MARKED_CRASHES)
        ]
        dead = [*find_crashed_runs(file, get_counters_folder(path.parent), position).values()]
        violations = tuple(_find_violations(file))
    unsettled = _count_unsettled_ended_calls(path, ended_by_run)
    sure = (*marked, *(crash for crash in dead if crash.is_exact or crash.is_older_copy))
    missing = dropped + sum(crash.missing for crash in sure) + unsettled
    if missing > known_missing:
        accepted = format_count(known_missing, "is", "are")
        note = f", of which {accepted} known" if known_missing else ""
        calls_have = format_count(missing, "call has", "calls have")
        violations = (*violations, f"{calls_have} no row{note}")
    refused = get_refused_rows_path(path)
    return Audit(
        calls=calls,
        attempts=attempts,
        runs=runs,
        dropped=dropped,
        crashes=(*marked, *dead),
        violations=violations,
        pruned=PruneResult(pruned_calls, pruned_nano_usd),
        unsettled=unsettled,
        missing=missing,
        known_missing=known_missing,
        refused=refused if refused.exists() else None,
    )


def _count_ended_calls_of_open_runs(path: Path) -> dict[int, int]:
    """Return the number of ended calls by run, for runs whose proxy is or may be running."""
    folder, ended_by_run = get_counters_folder(path.parent), {}
    with open_for_reading(path, migrate_copy=False) as file:
        query = "SELECT id, name, ended FROM runs WHERE closed_ms IS NULL AND crashed_ms IS NULL"
        rows = file.execute(query).fetchall()
    for run, name, ended in rows:
        counts = read_process_counts(folder, name)
        if counts is None or counts.is_alive:
            ended_by_run[run] = ended if counts is None else counts.ended
    return ended_by_run


def _count_unsettled_ended_calls(path: Path, ended_by_run: Mapping[int, int]) -> int:
    """Return how many of the ended calls are neither written nor counted as lost yet."""
    with open_for_reading(path, migrate_copy=False) as file:
        settled = dict(file.execute("SELECT id, settled FROM runs").fetchall())
    return sum(max(0, ended - settled[run]) for run, ended in ended_by_run.items())


def _find_violations(file: sqlite3.Connection) -> Iterator[str]:
    file.create_function("checksum", 3, compute_charge_checksum, deterministic=True)
    [integrity] = file.execute("PRAGMA quick_check(1)").fetchone()
    if integrity != "ok":
        yield "the file is damaged"
    for problem, query in CHECK_QUERIES.items():
        rows = file.execute(query).fetchall()
        if rows:
            some = ", ".join(str(name) for (name,) in rows[:MAX_LISTED_ROWS])
            extra = ", ..." if len(rows) > MAX_LISTED_ROWS else ""
            yield f"{problem}: {len(rows)} ({some}{extra})"
