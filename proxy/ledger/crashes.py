"""Runs that did not close, and their calls without a row.

A file beside the ledger has its position: the number of rows that the last process had written. It
shows that a ledger was replaced by an older copy. It is written after each batch without a sync, so
after a power cut it may be behind the ledger, never ahead.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from proxy.ledger import call_counters
from proxy.runtime.frozen import frozen

_POSITION = re.compile(r"([0-9a-f]{16}) ([0-9]{1,18})\n")


@frozen
class Crash:
    """Run that did not close.

    ``unwritten`` calls had ended without a row, ``running`` had not ended.

    The sum of both is known if ``exact`` is True: the last running calls may have ended before they
    were counted. Otherwise both are lower bounds. ``is_older`` is True for a file that is a copy
    from before the end of the run.
    """

    run: int
    unwritten: int
    running: int
    exact: bool
    is_older: bool = False

    @property
    def missing(self) -> int:
        """Number of calls without a row."""
        return self.unwritten + self.running


@frozen
class Position:
    """Name of the last run that wrote, and the number of calls that it had ``written``."""

    name: str
    written: int


def position_file(ledger: Path) -> Path:
    """Return the path of a ledger's position."""
    return ledger.with_name(f"{ledger.name}.position")


def write_position(ledger: Path, position: Position) -> None:
    """Write a position. If that fails, the previous one remains."""
    with suppress(OSError):
        position_file(ledger).write_text(f"{position.name} {position.written}\n")


def read_position(ledger: Path) -> Position | None:
    """Return the position of a ledger, None if it is unknown."""
    with suppress(OSError, UnicodeDecodeError):
        match = _POSITION.fullmatch(position_file(ledger).read_text())
        return Position(match[1], int(match[2])) if match else None
    return None


def crashes(
    file: sqlite3.Connection, folder: Path, position: Position | None
) -> Iterator[tuple[str, Crash]]:
    """Yield newly found dead runs, and runs whose position the file does not reach."""
    rows = file.execute(
        "SELECT id, name, begun, ended, settled FROM runs "
        "WHERE closed_ms IS NULL AND crashed_ms IS NULL ORDER BY id"
    ).fetchall()
    for run, name, started, ended, settled in rows:
        counts = call_counters.read_process_counts(folder, name)
        if counts is None:
            yield name, Crash(run, ended - settled, started - ended, exact=False)
        elif not counts.alive:
            yield (
                name,
                Crash(run, counts.ended - settled, counts.started - counts.ended, exact=True),
            )
    if position is not None:
        row = file.execute(
            "SELECT id, written FROM runs WHERE name = ?", [position.name]
        ).fetchone()
        if row is None:  # the copy is from before the run began
            [next_run] = file.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM runs").fetchone()
            row = next_run, -1
        run, written = row
        if written < position.written:
            unwritten = position.written - max(0, written)
            yield position.name, Crash(run, unwritten, 0, exact=False, is_older=True)


def mark(file: sqlite3.Connection, name: str, crash: Crash, now_ms: int) -> None:
    """Mark a crash in the row of its run, which an older copy of the file may lack."""
    file.execute(
        "INSERT INTO runs (id, name, version, started_ms, seen_ms, charges) "
        "VALUES (?, ?, '', ?, ?, 1) ON CONFLICT DO NOTHING",
        [crash.run, name, now_ms, now_ms],
    )
    file.execute(
        "UPDATE runs SET ended = settled + :lost, begun = settled + :lost + :running, "
        "closed_ms = NULL, crashed_ms = :now, exact = :exact WHERE id = :run",
        {
            "lost": crash.unwritten,
            "running": crash.running,
            "now": now_ms,
            "exact": int(crash.exact),
            "run": crash.run,
        },
    )
