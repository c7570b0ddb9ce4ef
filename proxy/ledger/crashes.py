"""Counts of calls that survive a killed process, and runs that did not close.

Counts of started and ended calls are in shared memory. Counting costs no system call, and the next
process can compute how many calls have no row. The file is in ``/dev/shm``, because a page on a
busy disk would block the event loop.

A position file next to the ledger has the number of calls that the last process has written. A
lower number in the ledger reveals an older copy. The file is written after each batch without a
sync, so after a power cut it may be behind the ledger, never ahead.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import sqlite3
from contextlib import suppress
from pathlib import Path

from proxy.runtime.frozen import frozen

COUNTS_BYTES = mmap.PAGESIZE
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # names are random, and opened only if they are new
RUN_NAME = re.compile(r"[0-9a-f]{16}")


def get_counters_folder(fallback: Path) -> Path:
    """Return the folder of the counts of calls: ``/dev/shm`` if it is writable."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else fallback


@frozen
class ProcessCounts:
    """Counts of calls of another process. ``is_alive`` is True while that process runs."""

    started: int
    ended: int
    is_alive: bool


class CallCounters:
    """Counts of the started and ended calls of this process. Only the event loop adds to them.

    Without a writable folder the counts are lost when the process ends.
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self._file: Path | None = None
        self._fd = -1
        memory = mmap.mmap(-1, COUNTS_BYTES)
        if folder is not None:
            with suppress(OSError):
                memory = self._map_locked_file(folder / f"headrace-{name}")
        self._counts = memoryview(memory).cast("Q")

    def _map_locked_file(self, file: Path) -> mmap.mmap:
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._file = file
        os.write(self._fd, bytes(COUNTS_BYTES))  # allocates the page
        # The lock is held until the process ends.
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return mmap.mmap(self._fd, COUNTS_BYTES)

    @property
    def started(self) -> int:
        return self._counts[0]

    @property
    def ended(self) -> int:
        return self._counts[1]

    def count_begin(self) -> None:
        self._counts[0] += 1

    def count_end(self) -> None:
        self._counts[1] += 1

    def uncount_begin(self) -> None:
        """Undo the count of a started call that gets no row."""
        self._counts[0] -= 1

    def close(self, *, settled: bool) -> None:
        """Close the file. Keep it for the next process unless all ended calls are ``settled``."""
        if self._file is not None:
            if settled:
                self._file.unlink(missing_ok=True)
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # the mapping keeps its own descriptor
            os.close(self._fd)
            self._file = None


def read_process_counts(folder: Path, name: str) -> ProcessCounts | None:
    """Read the counts of another process. Return None if they are lost, as after a reboot."""
    if not RUN_NAME.fullmatch(name):
        return None
    try:
        fd = os.open(folder / f"headrace-{name}", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        counts = memoryview(os.pread(fd, 16, 0)).cast("Q")
        return ProcessCounts(counts[0], counts[1], is_alive=_is_locked(fd))
    except (OSError, TypeError, IndexError):
        return None
    finally:
        os.close(fd)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def delete_counts(folder: Path, name: str) -> None:
    """Remove the counts of a dead process."""
    if RUN_NAME.fullmatch(name):
        with suppress(OSError):
            (folder / f"headrace-{name}").unlink(missing_ok=True)


_POSITION = re.compile(r"([0-9a-f]{16}) ([0-9]{1,18})\n")


@frozen
class Crash:
    """Run that did not close.

    Attributes:
        run: Id of its row.
        unwritten_calls: Number of calls that ended without a row.
        running_calls: Number of calls that had not ended.
        is_exact: True if the sum of both numbers is known. Some of the running calls may have
            ended. Otherwise both numbers are lower bounds.
        is_older_copy: True if the file is a copy from before the end of the run.
    """

    run: int
    unwritten_calls: int
    running_calls: int
    is_exact: bool
    is_older_copy: bool = False

    @property
    def missing(self) -> int:
        """Number of calls without a row."""
        return self.unwritten_calls + self.running_calls


def get_position_path(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.position")


def write_position(ledger: Path, run_name: str, written_calls: int) -> None:
    """Write the number of calls that a run has written. If that fails, the previous one remains."""
    with suppress(OSError):
        get_position_path(ledger).write_text(f"{run_name} {written_calls}\n")


def read_position(ledger: Path) -> tuple[str, int] | None:
    """Return the name of the last run that wrote, and the number of calls that it had written."""
    with suppress(OSError, UnicodeDecodeError):
        match = _POSITION.fullmatch(get_position_path(ledger).read_text())
        return (match[1], int(match[2])) if match else None
    return None


def find_crashed_runs(
    file: sqlite3.Connection, folder: Path, position: tuple[str, int] | None
) -> dict[str, Crash]:
    """Return unrecorded crashes by run name, with the run that an older copy of the file lacks.

    ``position`` is that of the last process.
    """
    crashes: dict[str, Crash] = {}
    for run, name, started, ended, settled in file.execute(
        "SELECT id, name, begun, ended, settled FROM runs "
        "WHERE closed_ms IS NULL AND crashed_ms IS NULL ORDER BY id"
    ).fetchall():
        counts = read_process_counts(folder, name)
        if counts is None:
            crashes[name] = Crash(run, ended - settled, started - ended, is_exact=False)
        elif not counts.is_alive:
            running_calls = counts.started - counts.ended
            crashes[name] = Crash(run, counts.ended - settled, running_calls, is_exact=True)
    if position is not None:
        name, last_written = position
        query = "SELECT id, written FROM runs WHERE name = ?"
        row = file.execute(query, [name]).fetchone()
        if row is None:  # the copy was made before the run began
            [next_run] = file.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM runs").fetchone()
            row = next_run, -1
        run, written = row
        if written < last_written:
            unwritten_calls = last_written - max(0, written)
            crashes[name] = Crash(run, unwritten_calls, 0, is_exact=False, is_older_copy=True)
    return crashes


def mark_crash(file: sqlite3.Connection, name: str, crash: Crash, now_ms: int) -> None:
    """Record a crash in the row of its run. Insert the row if an older copy of a file lacks it."""
    file.execute(
        "INSERT INTO runs (id, name, version, started_ms, seen_ms, charges) "
        "VALUES (?, ?, '', ?, ?, 1) ON CONFLICT DO NOTHING",
        [crash.run, name, now_ms, now_ms],
    )
    file.execute(
        "UPDATE runs SET ended = settled + ?, begun = settled + ?, closed_ms = NULL, "
        "crashed_ms = ?, exact = ? WHERE id = ?",
        [crash.unwritten_calls, crash.missing, now_ms, int(crash.is_exact), crash.run],
    )
