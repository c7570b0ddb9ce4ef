"""Whether a ledger can be believed: each check is one query that finds what must not be there.

It is read in one moment, so a proxy may be writing meanwhile. What a crash lost is reported; it is
no violation, as it is known and counted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy.ledger import shown, tally
from proxy.ledger.pruning import Pruned
from proxy.ledger.reading import reading
from proxy.ledger.sqlite import Crash, crashes, known

SHOWN = 5
BEFORE_PRUNING = 1  # the version of a ledger that no later proxy has opened yet

# A sum is unknown as soon as one of its parts is: the same rule by which the call's row was made.
CHECKS: dict[str, str] = {
    "calls whose run is not known": """
        SELECT c.run || '/' || c.seq FROM calls c LEFT JOIN runs r ON r.id = c.run
        WHERE r.id IS NULL""",
    "attempts without a call": """
        SELECT a.run || '/' || a.seq FROM attempts a LEFT JOIN calls c USING (run, seq)
        WHERE c.seq IS NULL""",
    "calls whose attempts are not all there": """
        SELECT c.run || '/' || c.seq FROM calls c LEFT JOIN attempts a USING (run, seq)
        GROUP BY c.run, c.seq
        HAVING c.attempts <> COUNT(a.number) OR c.attempts <> COALESCE(MAX(a.number), 0)""",
    "calls whose cost is not that of their attempts": """
        SELECT c.run || '/' || c.seq FROM calls c
        LEFT JOIN attempts a ON a.run = c.run AND a.seq = c.seq AND a.usage_source <> 'none'
        GROUP BY c.run, c.seq
        HAVING c.cost_micro_usd IS NOT
          CASE WHEN COUNT(a.number) = COUNT(a.cost_micro_usd) THEN SUM(a.cost_micro_usd) END""",
    "calls whose tokens are not those of their attempts": """
        SELECT c.run || '/' || c.seq FROM calls c
        LEFT JOIN attempts a ON a.run = c.run AND a.seq = c.seq AND a.usage_source <> 'none'
        GROUP BY c.run, c.seq
        HAVING c.tokens IS NOT SUM(a.tokens_in + a.tokens_out)""",
    "attempts that cost without having used anything": """
        SELECT run || '/' || seq FROM attempts
        WHERE usage_source = 'none'
          AND COALESCE(cost_micro_usd, tokens_in, tokens_out) IS NOT NULL""",
    "calls that are there twice": """
        SELECT trace_id || ' ' || span_id FROM calls
        GROUP BY trace_id, span_id HAVING COUNT(*) > 1""",
    "runs with more or fewer rows than they have written": """
        SELECT 'run ' || r.id FROM runs r LEFT JOIN calls c ON c.run = r.id
        GROUP BY r.id HAVING COUNT(c.seq) <> r.written - r.pruned""",
    "runs with rows beyond their last call": """
        SELECT 'run ' || r.id FROM runs r JOIN calls c ON c.run = r.id
        GROUP BY r.id HAVING MAX(c.seq) > r.ended""",
    "runs that closed without settling every call": """
        SELECT 'run ' || id FROM runs
        WHERE closed_ms IS NOT NULL AND (begun <> ended OR ended <> settled)""",
    "runs that settled more calls than there were": """
        SELECT 'run ' || id FROM runs WHERE settled > ended OR ended > begun""",
}


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found: violations, and below them what is known to be missing. Of what was pruned
    only the cost is told that was known."""

    calls: int
    attempts: int
    runs: int
    dropped: int
    crashes: tuple[Crash, ...]
    violations: tuple[str, ...]
    pruned: Pruned

    def text(self) -> str:
        return "\n".join([*self._told(), *self._verdict()])

    def _told(self) -> Iterator[str]:
        yield f"{self.calls} calls, {self.attempts} attempts, {self.runs} runs"
        for crash in self.crashes:
            least = "" if crash.exact else "at least "
            where = "" if crash.exact else ", or is at work where its counts cannot be seen"
            yield (
                f"run {crash.run} crashed{where}: {least}{crash.lost} calls that ended are in no "
                f"row, {least}{crash.running} were under way"
            )
        if self.pruned.calls:
            cost = shown.usd(self.pruned.micro_usd)
            yield f"{self.pruned.calls} calls were pruned and counted, which had cost ${cost}"
        if self.dropped:
            yield f"{self.dropped} calls were dropped and counted, as they could not be written"

    def _verdict(self) -> Iterator[str]:
        if not self.violations:
            yield "good: every call has its row and every row its call"
        for violation in self.violations:
            yield f"violation: {violation}"


def audit(path: Path) -> Audit:
    """Check a ledger. Raises ``Unusable`` when it cannot be read."""
    with reading(path) as file:
        calls, attempts, runs, dropped = file.execute(
            "SELECT (SELECT COUNT(*) FROM calls), (SELECT COUNT(*) FROM attempts), "
            "(SELECT COUNT(*) FROM runs), (SELECT COALESCE(SUM(dropped), 0) FROM runs)"
        ).fetchone()
        found = [*_marked(file), *(crash for _, crash in crashes(file, tally.folder(path.parent)))]
        violations = tuple(_violations(file))
        return Audit(calls, attempts, runs, dropped, tuple(found), violations, _pruned(file))


def _pruned(file: sqlite3.Connection) -> Pruned:
    if known(file) == BEFORE_PRUNING:
        return Pruned()
    query = "SELECT COALESCE(SUM(pruned), 0), COALESCE(SUM(pruned_micro_usd), 0) FROM runs"
    return Pruned(*file.execute(query).fetchone())


def _marked(file: sqlite3.Connection) -> Iterator[Crash]:
    rows = file.execute(
        "SELECT id, ended - settled, begun - ended, exact FROM runs WHERE crashed_ms IS NOT NULL"
    )
    for run, lost, running, exact in rows:
        yield Crash(run, lost, running, bool(exact))


def _violations(file: sqlite3.Connection) -> Iterator[str]:
    [whole] = file.execute("PRAGMA quick_check(1)").fetchone()
    if whole != "ok":
        yield "the file is damaged"
    never = known(file) == BEFORE_PRUNING
    for what, query in CHECKS.items():
        rows = file.execute(query.replace("r.pruned", "0") if never else query).fetchall()
        if rows:
            some = ", ".join(str(name) for (name,) in rows[:SHOWN])
            more = ", ..." if len(rows) > SHOWN else ""
            yield f"{len(rows)} {what}: {some}{more}"
