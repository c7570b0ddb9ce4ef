"""Runs that did not close, and what the ledger lacks of them.

Beside a ledger is a file with its position: how many rows its last process had written. A ledger
that somebody has replaced by an older copy is found by it. The file is written after each batch,
without a sync: after a power cut it may say less than the ledger holds, and never more.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from proxy.frozen import frozen
from proxy.ledger import call_counters

_POSITION = re.compile(r"([0-9a-f]{16}) ([0-9]{1,18})\n")


@frozen
class Crash:
    """A run that did not close: by its last counts ``lost`` calls had ended and are in no row, and
    ``running`` were under way.

    ``exact`` says that their sum is known: the last of those under way may have ended before it was
    counted. Otherwise the last counts are lost too, and both are the least that it can be. A file
    that ``is_older`` than the run left it is a copy from before its end.
    """

    run: int
    lost: int
    running: int
    exact: bool
    is_older: bool = False

    @property
    def missing(self) -> int:
        """The number of calls that are in no row."""
        return self.lost + self.running


@frozen
class Position:
    """The last process that wrote, by the drawn ``name`` of its run, and how many calls it had
    ``written``."""

    name: str
    written: int


def position_file(ledger: Path) -> Path:
    """Return where the position of a ledger is."""
    return ledger.with_name(f"{ledger.name}.position")


def write_position(ledger: Path, position: Position) -> None:
    """Write a position. Where that cannot be, the one before it stays, or none."""
    with suppress(OSError):
        position_file(ledger).write_text(f"{position.name} {position.written}\n")


def read_position(ledger: Path) -> Position | None:
    """Return the position of a ledger, None where it is not known."""
    with suppress(OSError, UnicodeDecodeError):
        found = _POSITION.fullmatch(position_file(ledger).read_text())
        return Position(found[1], int(found[2])) if found else None
    return None


def crashes(
    file: sqlite3.Connection, folder: Path, position: Position | None
) -> Iterator[tuple[str, Crash]]:
    """Return by name the runs that neither closed nor are at work nor were found before, and the
    run of a position that the file does not reach."""
    rows = file.execute(
        "SELECT id, name, begun, ended, settled FROM runs "
        "WHERE closed_ms IS NULL AND crashed_ms IS NULL ORDER BY id"
    ).fetchall()
    for run, name, begun, ended, settled in rows:
        left = call_counters.left_by(folder, name)
        if left is None:
            yield name, Crash(run, ended - settled, begun - ended, exact=False)
        elif not left.alive:
            yield name, Crash(run, left.ended - settled, left.begun - left.ended, exact=True)
    if position is not None:
        row = file.execute(
            "SELECT id, written FROM runs WHERE name = ?", [position.name]
        ).fetchone()
        if row is None:  # the copy is from before the run began
            [next_run] = file.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM runs").fetchone()
            row = next_run, -1
        run, written = row
        if written < position.written:
            lost = position.written - max(0, written)
            yield position.name, Crash(run, lost, 0, exact=False, is_older=True)


def mark(file: sqlite3.Connection, name: str, crash: Crash, now_ms: int) -> None:
    """Note a crash in the row of its run, which an older copy of the file may not have."""
    file.execute(
        "INSERT INTO runs (id, name, version, started_ms, seen_ms, charges) "
        "VALUES (?, ?, '', ?, ?, 1) ON CONFLICT DO NOTHING",
        [crash.run, name, now_ms, now_ms],
    )
    file.execute(
        "UPDATE runs SET ended = settled + :lost, begun = settled + :lost + :running, "
        "closed_ms = NULL, crashed_ms = :now, exact = :exact WHERE id = :run",
        {
            "lost": crash.lost,
            "running": crash.running,
            "now": now_ms,
            "exact": int(crash.exact),
            "run": crash.run,
        },
    )
