"""The embedded ledger: SQLite with a write-ahead log, one transaction and one sync per batch.

Each process is a run with a row of its own, which says how many of its calls are written. A batch
and that number are one transaction, so what is missing can always be counted.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from proxy.frozen import frozen
from proxy.ledger import call_counters
from proxy.ledger.crashes import (
    Crash,
    Position,
    crashes,
    mark,
    read_position,
    write_position,
)
from proxy.ledger.rows import Rows
from proxy.ledger.schema import known, migrate, require_current, views
from proxy.ledger.statements import AT_ONCE, Pruned, bound, insert, prune
from proxy.ledger.store import MODE, Counts, RowsRefused, Unusable, Unwritten, failed

WAIT_S = 0.5
READ_WAIT_S = 5.0
LOG_BYTES = 64 * 1024 * 1024
PRUNE_EVERY_MS = 60_000
PATIENCE_MS = 10_000
HOPELESS = {
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite file",
    sqlite3.SQLITE_PERM: "the file is not writable",
    sqlite3.SQLITE_READONLY: "the file is not writable",
}

REFUSING = {
    sqlite3.SQLITE_OK: "SQLITE_MISUSE",  # values that cannot be bound have no code
    sqlite3.SQLITE_ERROR: "SQLITE_ERROR",
    sqlite3.SQLITE_TOOBIG: "SQLITE_TOOBIG",
    sqlite3.SQLITE_CONSTRAINT: "SQLITE_CONSTRAINT",
    sqlite3.SQLITE_MISMATCH: "SQLITE_MISMATCH",
    sqlite3.SQLITE_RANGE: "SQLITE_RANGE",
}


@frozen
class ProcessRun:
    """A process that writes. ``name`` is drawn, ``folder`` is where tallies lie. Rows go after
    ``keep_ms``; without that they stay."""

    name: str
    version: str
    folder: Path
    now_ms: Callable[[], int]
    keep_ms: int | None = None


class SqliteStore:
    """Writes rows. ``crashed`` is told of each run that is found dead, once, and ``begun_anew``
    when the file is another than before: with where the log of the one before it is now. ``dead``
    are the names of the runs that were found dead."""

    def __init__(
        self,
        path: Path,
        run: ProcessRun,
        crashed: Callable[[Crash], None],
        begun_anew: Callable[[Path | None], None],
    ) -> None:
        self._path = path
        self._run = run
        self._crashed = crashed
        self._begun_anew = begun_anew
        self._id = 0
        self._written = 0
        self._looked = False
        self._prune_at = 0
        self._file: sqlite3.Connection | None = None
        self._node: tuple[int, int] | None = None
        self.dead: frozenset[str] = frozenset()

    def open(self) -> None:
        """Find the runs that never closed, once; they are told of when that is safely noted."""
        if self._looked:
            return
        now, position = self._run.now_ms(), read_position(self._path)
        with self._writing() as file:
            is_new = self._id == 1 and position is not None
            dead = dict(crashes(file, self._run.folder, None if is_new else position))
            dead.pop(self._run.name, None)
            for name, crash in dead.items():
                mark(file, name, crash, now)
        self._looked = True
        self.dead = frozenset(dead)
        write_position(self._path, Position(self._run.name, self._written))
        if is_new:
            self._begun_anew(None)
        for name, crash in dead.items():
            call_counters.forget(self._run.folder, name)
            self._crashed(crash)

    def write(self, rows: Rows, counts: Counts) -> None:
        self.open()
        with self._writing() as file:
            new = insert(file, self._id, rows)
            self._note(file, counts, self._written + len(rows.calls), new)
            position = self._position(file)
        write_position(self._path, position)
        self._written += len(rows.calls)

    def prune(self) -> bool:
        if self._node is not None and self._is_another():
            with self._writing():  # nobody calls, and the file is gone all the same
                pass
        now, keep = self._run.now_ms(), self._run.keep_ms
        if keep is None or now < self._prune_at:
            return False
        self._prune_at = now + PRUNE_EVERY_MS
        with self._writing() as file:
            gone = prune(file, bound(now - keep, now))
        if gone.calls < AT_ONCE:
            return False
        self._prune_at = now
        return True

    def close(self, counts: Counts) -> None:
        self.open()
        with self._writing() as file:
            self._note(file, counts, self._written, 0)
            file.execute("UPDATE runs SET closed_ms = seen_ms WHERE id = ?", [self._id])
        self._let_go()

    def _is_another(self) -> bool:
        """True if the file is not that of before; False where nobody can tell, which the next
        batch does."""
        try:
            return self._node != identity(self._path)
        except OSError:
            return False

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction on a good connection; after a failure the next gets a fresh one."""
        try:
            if self._file is None or self._node != identity(self._path):
                self._file = self._opened()
            self._file.execute("BEGIN IMMEDIATE")
            require_current(self._file)
            self._begin(self._file)
            yield self._file
            self._file.execute("COMMIT")
        except RowsRefused:  # by a check: the connection is good
            if self._file is not None:
                self._file.execute("ROLLBACK")
            raise
        except sqlite3.Error as error:
            self._let_go()
            raise translated(error) from None
        except OSError as error:
            self._let_go()
            raise failed(error) from None
        except BaseException:  # such as a number that SQLite cannot hold
            self._let_go()
            raise

    def _opened(self) -> sqlite3.Connection:
        """Open the file: the one of before, or another that takes its place, as SQLite would go on
        writing to one that was moved away or deleted."""
        there, log = identity(self._path), None
        anew = self._node is not None and self._node != there
        self._let_go()  # not before: its number could be given to another
        if anew and there is None:
            log = _log_kept(self._path, self._run.now_ms())
        file = _connected(self._path, self._run.folder)
        self._node = identity(self._path)
        if anew:
            self._begun_anew(log)
        return file

    def _begin(self, file: sqlite3.Connection) -> None:
        """Have a row for this run."""
        run = self._run
        now = run.now_ms()
        file.execute(
            "INSERT INTO runs (name, version, started_ms, seen_ms, charges) VALUES (?, ?, ?, ?, 1) "
            "ON CONFLICT DO NOTHING",
            [run.name, run.version, now, now],
        )
        [self._id] = file.execute("SELECT id FROM runs WHERE name = ?", [run.name]).fetchone()

    def _note(self, file: sqlite3.Connection, counts: Counts, written: int, here: int) -> None:
        """Note where the run stands: calls written in all, and those of them that are new here.

        The two differ only after the file was moved away.
        """
        file.execute(
            "UPDATE runs SET seen_ms = :now, begun = :begun, ended = :ended, settled = :settled, "
            "dropped = :dropped, failures = :failures, written = written + :here, "
            "crashed_ms = NULL, exact = NULL WHERE id = :run",
            {
                "now": self._run.now_ms(),
                "begun": counts.begun,
                "ended": counts.ended,
                "settled": written + counts.dropped,
                "dropped": counts.dropped,
                "failures": counts.failures,
                "here": here,
                "run": self._id,
            },
        )

    def _position(self, file: sqlite3.Connection) -> Position:
        query = "SELECT written FROM runs WHERE id = ?"
        return Position(self._run.name, file.execute(query, [self._id]).fetchone()[0])

    def _let_go(self) -> None:
        if self._file is not None:
            with suppress(sqlite3.Error):
                self._file.close()
            self._file = None


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another of its name; None where there is none."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


def _log_kept(path: Path, now_ms: int) -> Path | None:
    """Keep the log that a file left behind when it was moved away: it holds the last rows, and
    SQLite would drop it. Return where it is, if there is any."""
    log = Path(f"{path}-wal")
    Path(f"{path}-shm").unlink(missing_ok=True)
    if identity(log) is None or not log.stat().st_size:
        return None
    return log.replace(f"{path}.{now_ms}-wal")


def _connected(path: Path, folder: Path) -> sqlite3.Connection:
    """Open a ledger and bring its tables up to date. Raise ``Unusable`` for any other file, and
    where a process of an earlier version writes it, whose counts are in ``folder``."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
    file = sqlite3.connect(
        path,
        timeout=WAIT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=16,
    )
    try:
        file.execute(f"PRAGMA busy_timeout = {int(WAIT_S * 1000)}")
        migrate(file, path, folder)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    except BaseException:
        file.close()
        raise
    return file


def pruned(path: Path, before_ms: int, now_ms: int) -> Pruned:
    """Let all rows of a ledger go that began before a moment and that nobody needs, while a proxy
    may be writing to it, and count those that stay for budgets. Raises ``Unwritten``; what went
    until then is gone."""
    gone = Pruned()
    if not path.stat().st_size:
        raise Unusable("the file is not a Headrace ledger")
    try:
        with closing(_connected(path, call_counters.folder(path.parent))) as file:
            file.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
            while True:
                file.execute("BEGIN IMMEDIATE")
                some = prune(file, bound(before_ms, now_ms))
                file.execute("COMMIT")
                gone += some
                if some.calls < AT_ONCE:
                    query = "SELECT COUNT(*) FROM calls WHERE started_ms < ?"
                    [held] = file.execute(query, [before_ms]).fetchone()
                    return replace(gone, held=held)
    except sqlite3.Error as error:
        raise translated(error) from None


def translated(error: sqlite3.Error) -> Unwritten:
    """Return the kind of a fault: one that may pass, such as a full disk or a lock, one that will
    not, or rows that the file refuses."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in HOPELESS:
        return Unusable(HOPELESS[code])
    if code in REFUSING:
        return RowsRefused(REFUSING[code])
    return Unwritten(error.sqlite_errorname)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger for reading while the proxy writes it: one transaction, which sees one moment.

    One of an earlier version shows the columns of this one. Raises ``Unusable``, also for faults
    while it is read.
    """
    try:
        address = f"{path.absolute().as_uri()}?mode=ro"
        file = sqlite3.connect(address, uri=True, timeout=READ_WAIT_S, isolation_level=None)
        try:
            file.row_factory = sqlite3.Row
            file.execute("BEGIN")
            version = known(file)
            if version is None:
                raise Unusable("the file is not a Headrace ledger")
            for view in views(version):
                file.execute(view)
            yield file
        finally:
            file.close()
    except sqlite3.Error as error:
        raise Unusable(f"{path} cannot be read: {translated(error).reason}") from None
    except Unusable as error:
        raise Unusable(f"{path} cannot be read: {error.reason}") from None
