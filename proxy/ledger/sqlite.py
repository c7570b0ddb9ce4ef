"""Embedded ledger: SQLite with a write-ahead log, one transaction and one sync per batch.

Each process is a run. The row of a run has the number of its written calls, in the transaction of
the batch, so missing calls can always be counted.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from proxy.ledger import crashes, schema, store
from proxy.ledger.rows import Rows
from proxy.ledger.statements import (
    PRUNE_BATCH,
    PruneResult,
    get_prune_limit_ms,
    insert_rows,
    prune_oldest_batch,
)
from proxy.runtime.frozen import frozen
from proxy.runtime.spool import get_file_identity

BUSY_TIMEOUT_S = 0.5
READ_TIMEOUT_S = 5.0
MAX_WAL_BYTES = 64 * 1024 * 1024
PRUNE_INTERVAL_MS = 60_000
PRUNE_BUSY_TIMEOUT_MS = 10_000
PERMANENT_ERRORS = {
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite file",
    sqlite3.SQLITE_PERM: "the file is not writable",
    sqlite3.SQLITE_READONLY: "the file is not writable",
}

ROW_ERRORS = {
    # Errors for values that cannot be bound have code SQLITE_OK.
    sqlite3.SQLITE_OK: "SQLITE_MISUSE",
    sqlite3.SQLITE_ERROR: "SQLITE_ERROR",
    sqlite3.SQLITE_TOOBIG: "SQLITE_TOOBIG",
    sqlite3.SQLITE_CONSTRAINT: "SQLITE_CONSTRAINT",
    sqlite3.SQLITE_MISMATCH: "SQLITE_MISMATCH",
    sqlite3.SQLITE_RANGE: "SQLITE_RANGE",
}


@frozen
class ProcessRun:
    """Process that writes to a ledger, with a random ``name``.

    ``folder`` has the counts of its calls. Rows expire after ``retention_ms``, if it is set.
    """

    name: str
    version: str
    folder: Path
    now_ms: Callable[[], int]
    retention_ms: int | None = None


@dataclass(slots=True)
class SqliteStore:
    """Writes rows to SQLite.

    ``on_crash`` gets each dead run once. ``on_new_file`` is called after the file was replaced. It
    gets the path at which the write-ahead log of the previous file was kept, or None.
    """

    path: Path
    run: ProcessRun
    on_crash: Callable[[crashes.Crash], None]
    on_new_file: Callable[[Path | None], None]
    dead_runs: frozenset[str] = frozenset()
    _id: int = 0
    _written_calls: int = 0
    _has_marked_crashes: bool = False
    _prune_at: int = 0
    _file: sqlite3.Connection | None = None
    _file_identity: tuple[int, int] | None = None

    def open(self) -> None:
        """Open the file. Mark dead runs once, then report them."""
        if self._has_marked_crashes:
            return
        now, position = self.run.now_ms(), crashes.read_position(self.path)
        with self._transaction() as file:
            is_new = self._id == 1 and position is not None
            dead = crashes.find_crashed_runs(file, self.run.folder, None if is_new else position)
            dead.pop(self.run.name, None)
            for name, crash in dead.items():
                crashes.mark_crash(file, name, crash, now)
        self._has_marked_crashes = True
        self.dead_runs = frozenset(dead)
        crashes.write_position(self.path, self.run.name, self._written_calls)
        if is_new:
            self.on_new_file(None)
        for name, crash in dead.items():
            crashes.delete_counts(self.run.folder, name)
            self.on_crash(crash)

    def write(self, batch: Sequence[Rows], counts: store.Counts) -> None:
        self.open()
        with self._transaction() as file:
            new_calls = insert_rows(file, self._id, batch)
            written = self._update_run(file, counts, self._written_calls + len(batch), new_calls)
        crashes.write_position(self.path, self.run.name, written)
        self._written_calls += len(batch)

    def prune(self) -> bool:
        if self._file_identity is not None and self._is_file_replaced():
            # Recreates the file even if there is no call to write.
            with self._transaction():
                pass
        now, keep = self.run.now_ms(), self.run.retention_ms
        if keep is None or now < self._prune_at:
            return False
        self._prune_at = now + PRUNE_INTERVAL_MS
        with self._transaction() as file:
            pruned = prune_oldest_batch(file, get_prune_limit_ms(now - keep, now))
        if pruned.calls < PRUNE_BATCH:
            return False
        self._prune_at = now
        return True

    def close(self, counts: store.Counts) -> None:
        self.open()
        with self._transaction() as file:
            self._update_run(file, counts, self._written_calls, 0)
            file.execute("UPDATE runs SET closed_ms = seen_ms WHERE id = ?", [self._id])
        self._disconnect()

    def _is_file_replaced(self) -> bool:
        """Return True if another file, or none, is at the path. Return False if unknown."""
        try:
            return self._file_identity != get_file_identity(self.path)
        except OSError:
            return False

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Context manager for a transaction. After an error, the next one opens the file again."""
        try:
            if self._file is None or self._file_identity != get_file_identity(self.path):
                self._file = self._open_ledger()
            self._file.execute("BEGIN IMMEDIATE")
            schema.require_current_version(self._file)
            self._insert_run(self._file)
            yield self._file
            self._file.execute("COMMIT")
        except store.RowsRefused:  # the connection is still good
            if self._file is not None:
                self._file.execute("ROLLBACK")
            raise
        except BaseException as error:  # such as a number that SQLite cannot hold
            self._disconnect()
            if isinstance(error, sqlite3.Error):
                raise to_ledger_error(error) from None
            if isinstance(error, OSError):
                raise store.to_write_error(error) from None
            raise

    def _open_ledger(self) -> sqlite3.Connection:
        """Open the file at the path. SQLite would continue to write to a moved or deleted one."""
        identity, log = get_file_identity(self.path), None
        is_another = self._file_identity is not None and self._file_identity != identity
        self._disconnect()  # after `get_file_identity`: a freed inode number could be reused
        if is_another and identity is None:
            log = _move_wal_aside(self.path, self.run.now_ms())
        file = _open_and_migrate(self.path, self.run.folder)
        self._file_identity = get_file_identity(self.path)
        if is_another:
            self.on_new_file(log)
        return file

    def _insert_run(self, file: sqlite3.Connection) -> None:
        """Insert the row of this run unless it exists."""
        run = self.run
        now = run.now_ms()
        file.execute(
            "INSERT INTO runs (name, version, started_ms, seen_ms, charges) VALUES (?, ?, ?, ?, 1) "
            "ON CONFLICT DO NOTHING",
            [run.name, run.version, now, now],
        )
        [self._id] = file.execute("SELECT id FROM runs WHERE name = ?", [run.name]).fetchone()

    def _update_run(
        self, file: sqlite3.Connection, counts: store.Counts, written: int, new_calls: int
    ) -> int:
        """Update the row of the run. Return the number of its calls in the file.

        ``written`` is the number of all written calls of the run, ``new_calls`` of those that are
        new in this file. The file may have been replaced.
        """
        totals = [counts.started, counts.ended, written + counts.dropped, counts.dropped]
        [calls] = file.execute(
            "UPDATE runs SET seen_ms = ?, begun = ?, ended = ?, settled = ?, dropped = ?, "
            "failures = ?, written = written + ?, crashed_ms = NULL, exact = NULL WHERE id = ? "
            "RETURNING written",
            [self.run.now_ms(), *totals, counts.failures, new_calls, self._id],
        ).fetchone()
        return int(calls)

    def _disconnect(self) -> None:
        if self._file is not None:
            with suppress(sqlite3.Error):
                self._file.close()
            self._file = None


def _move_wal_aside(path: Path, now_ms: int) -> Path | None:
    """Rename the write-ahead log of a moved or deleted file.

    It has the last rows, and SQLite would delete it. Return its new path, if there is one.
    """
    log = Path(f"{path}-wal")
    Path(f"{path}-shm").unlink(missing_ok=True)
    if get_file_identity(log) is None or not log.stat().st_size:
        return None
    return log.replace(f"{path}.{now_ms}-wal")


def _open_and_migrate(path: Path, counters_folder: Path) -> sqlite3.Connection:
    """Open or create a ledger, and migrate it.

    Raises ``LedgerUnusable`` if the file is no ledger, or if it must be migrated while a process
    whose call counters are in ``counters_folder`` writes to it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, store.FILE_MODE))
    file = sqlite3.connect(
        path,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=16,
    )
    try:
        file.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        schema.migrate(file, path, counters_folder)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.execute(f"PRAGMA journal_size_limit = {MAX_WAL_BYTES}")
    except BaseException:
        file.close()
        raise
    return file


def prune_ledger(path: Path, before_ms: int, now_ms: int) -> PruneResult:
    """Prune all rows that started before a moment, except those that budgets may need.

    A proxy may write meanwhile. Raises ``LedgerWriteFailed``. Rows that were already pruned
    stay pruned.
    """
    calls = nano_usd = 0
    if not path.stat().st_size:
        raise store.LedgerUnusable("the file is not a Headrace ledger")
    try:
        with closing(_open_and_migrate(path, crashes.get_counters_folder(path.parent))) as file:
            file.execute(f"PRAGMA busy_timeout = {PRUNE_BUSY_TIMEOUT_MS}")
            while True:
                file.execute("BEGIN IMMEDIATE")
                batch = prune_oldest_batch(file, get_prune_limit_ms(before_ms, now_ms))
                file.execute("COMMIT")
                calls, nano_usd = calls + batch.calls, nano_usd + batch.nano_usd
                if batch.calls < PRUNE_BATCH:
                    query = "SELECT COUNT(*) FROM calls WHERE started_ms < ?"
                    [retained] = file.execute(query, [before_ms]).fetchone()
                    return PruneResult(calls, nano_usd, retained)
    except sqlite3.Error as error:
        raise to_ledger_error(error) from None


def to_ledger_error(error: sqlite3.Error) -> store.LedgerWriteFailed:
    """Convert an error of SQLite.

    Returns ``LedgerUnusable``, ``RowsRefused``, or ``LedgerWriteFailed`` for a temporary one, such
    as a full disk or a lock.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in PERMANENT_ERRORS:
        return store.LedgerUnusable(PERMANENT_ERRORS[code])
    if code in ROW_ERRORS:
        return store.RowsRefused(ROW_ERRORS[code])
    return store.LedgerWriteFailed(error.sqlite_errorname)


@contextmanager
def open_for_reading(path: Path, *, migrate_copy: bool = True) -> Iterator[sqlite3.Connection]:
    """Open a ledger for reading in one transaction, while a proxy may write it.

    A ledger of an earlier version is copied, and the copy is migrated and read, which takes time
    and disk space. If a query needs only columns of every version, pass ``migrate_copy=False``
    to read the file itself. Raises ``LedgerUnusable``, also for errors in the block.
    """
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with (
            closing(
                sqlite3.connect(address, READ_TIMEOUT_S, uri=True, isolation_level=None)
            ) as file,
            closing(sqlite3.connect("", isolation_level=None)) as copy,
        ):
            current = _migrate_to_copy_if_old(file, copy if migrate_copy else None)
            current.row_factory = sqlite3.Row
            yield current
    except sqlite3.Error as error:
        reason = to_ledger_error(error).reason
        if reason == "SQLITE_FULL":
            reason = "no space for temporary files. Set SQLITE_TMPDIR to a folder with more space"
        elif reason == "SQLITE_INTERRUPT":
            reason = "it takes too long. Choose fewer days"
        raise store.LedgerUnusable(f"{path} cannot be read: {reason}") from None
    except store.LedgerUnusable as error:
        raise store.LedgerUnusable(f"{path} cannot be read: {error.reason}") from None


def interrupt_after(file: sqlite3.Connection, seconds: float) -> None:
    """Interrupt the queries of a connection after so many seconds."""
    end_at = time.monotonic() + seconds
    file.set_progress_handler(lambda: time.monotonic() > end_at, 10_000)


def _migrate_to_copy_if_old(
    file: sqlite3.Connection, copy: sqlite3.Connection | None
) -> sqlite3.Connection:
    """Return a ledger, or its migrated ``copy`` if an earlier version has written it.

    If ``copy`` is None, return the ledger in any version.
    """
    file.execute("BEGIN")
    version = schema.read_version(file)
    if version is None:
        raise store.LedgerUnusable("the file is not a Headrace ledger")
    if copy is None or version == schema.SCHEMA_VERSION:
        return file
    file.backup(copy)
    schema.apply_migrations(copy, version)
    return copy
