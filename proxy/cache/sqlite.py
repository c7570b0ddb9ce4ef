"""Response store in a file, shared by the processes of a machine and kept across restarts.

SQLite may wait for the disk, so one thread reads and another writes batches. Values that wait to be
written can already be read. Files of other programs are never changed. A damaged file is renamed,
and overwrites an earlier one of that name.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from proxy.cache.store import PendingWrites, Row, StoreEvents
from proxy.runtime.spool import get_file_identity

APPLICATION_ID = 0x48644361  # "HdCa", in the header of each cache file
FORMAT_VERSION = 1
SQLITE_MAGIC = b"SQLite format 3\0"
DAMAGED_SUFFIX = ".damaged"
BUSY_TIMEOUT_S = 1.0

SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 16777216;
CREATE TABLE IF NOT EXISTS answers (
  key BLOB PRIMARY KEY, value BLOB NOT NULL, size INTEGER NOT NULL,
  expires REAL NOT NULL, used REAL NOT NULL);
CREATE INDEX IF NOT EXISTS answers_used ON answers (used);
CREATE INDEX IF NOT EXISTS answers_expires ON answers (expires);
CREATE INDEX IF NOT EXISTS answers_size ON answers (size);
CREATE TABLE IF NOT EXISTS held (one INTEGER PRIMARY KEY CHECK (one = 1), entries, size);
INSERT OR IGNORE INTO held VALUES (1, 0, 0);
CREATE TRIGGER IF NOT EXISTS came AFTER INSERT ON answers BEGIN
  UPDATE held SET entries = entries + 1, size = size + new.size; END;
CREATE TRIGGER IF NOT EXISTS went AFTER DELETE ON answers BEGIN
  UPDATE held SET entries = entries - 1, size = size - old.size; END;
CREATE TRIGGER IF NOT EXISTS changed AFTER UPDATE OF size ON answers BEGIN
  UPDATE held SET size = size - old.size + new.size; END;
"""
FILE_IDS = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION};"
COUNT_ENTRIES = """
UPDATE held SET entries = (SELECT count(*) FROM answers),
  size = (SELECT coalesce(sum(size), 0) FROM answers)
"""
OWN_TABLES = {"answers", "held"}  # tables of a file without an application id


class ForeignFile(Exception):
    """The file belongs to another program."""


class UnreadableFile(Exception):
    """The file is damaged or has the format of another version."""


DAMAGE_ERRORS = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,  # a missing table or column
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
}
"""SQLite errors of a damaged file, or of one whose tables were changed."""


def is_damage_error(error: Exception) -> bool:
    """Return True if the file itself is at fault, not the disk, a lock or a permission."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, UnreadableFile) or code in DAMAGE_ERRORS


def open_file(path: Path) -> sqlite3.Connection:
    """Open the file. Create its tables if it is new, and recount its totals.

    A new file is readable by its owner only. Raises ``ForeignFile``, ``UnreadableFile``,
    ``OSError`` or another ``sqlite3.Error``.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(len(SQLITE_MAGIC))
    if head.strip(b"\0") and not SQLITE_MAGIC.startswith(head):
        raise ForeignFile("the file exists and is not a SQLite database")
    database = connect(path)
    try:
        _check_format(database)
        database.executescript(FILE_IDS + SCHEMA)
        database.execute(COUNT_ENTRIES)
        read_totals(database)
    except BaseException as error:
        database.close()
        if isinstance(error, sqlite3.DatabaseError) and is_damage_error(error):
            raise UnreadableFile("damaged") from None
        raise
    return database


def read_totals(database: sqlite3.Connection) -> tuple[int, int]:
    """Return the number of entries and their bytes.

    Raises ``UnreadableFile`` if these are not integers.
    """
    row = database.execute("SELECT entries, size FROM held").fetchone()
    if row is None or not all(type(value) is int for value in row):
        raise UnreadableFile("damaged")
    return row[0], row[1]


def connect(path: Path) -> sqlite3.Connection:
    """Connect to a file that ``open_file`` has checked. Does not create it."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)


def _check_format(database: sqlite3.Connection) -> None:
    [application] = database.execute("PRAGMA application_id").fetchone()
    [version] = database.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    if application == APPLICATION_ID:
        if version != FORMAT_VERSION:
            raise UnreadableFile("the file has the format of another version")
        return
    has_no_id = application == 0 and version == 0
    if not has_no_id or (tables and OWN_TABLES - tables):
        raise ForeignFile("the file is a database of another program")


def rename_damaged_file(path: Path) -> Path:
    """Rename a damaged file and its write-ahead log. Return the new path."""
    for suffix in ("-wal", ""):  # the log first, so that no new file gets its writes
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{path}{DAMAGED_SUFFIX}{suffix}")
    with suppress(FileNotFoundError):
        os.unlink(f"{path}-shm")
    return Path(f"{path}{DAMAGED_SUFFIX}")


ROW_BYTES = 400  # key, index entries and unused page space of a row
MAX_TOUCHED_KEYS = 256  # reads between two writes of the last-used times
EVICTION_DIVISOR = 50  # an eviction removes 1/50 of the entries
SELECT_VALUE = "SELECT value FROM answers WHERE key = ? AND expires > ?"
UPSERT_VALUE = """
INSERT INTO answers (key, value, size, expires, used) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, size = excluded.size,
  expires = excluded.expires, used = excluded.used
"""
UPDATE_LAST_USE = "UPDATE answers SET used = ? WHERE key = ?"
DELETE_EXPIRED = "DELETE FROM answers WHERE expires <= ?"
DELETE_OLDEST = "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY used LIMIT ?)"
STORE_NAME = "sqlite"

OnReplaced = Callable[[str, Path | None], None]
Batch = Sequence[tuple[bytes, Row]]
WriteResult = tuple[int, int, int, int]
"""Entries and bytes of the file after a write, and its expired and evicted entries."""


class DatabaseThread:
    """Thread with its own connection to the file."""

    def __init__(self, name: str) -> None:
        self.thread = ThreadPoolExecutor(1, name)
        self.database: sqlite3.Connection

    def close_database(self) -> None:
        """Close the current connection. Runs in the thread, after reads that may replace it."""
        self.database.close()


@dataclass(slots=True)
class SqliteAnswerStore:
    """Store in a file, which the processes of one machine share.

    ``max_bytes`` bounds the responses in the file. ``now`` returns seconds since the epoch.

    ``on_replaced`` is called in any thread when a new file replaces a damaged or deleted one, with
    the reason and the new path of a damaged file. ``on_write_error`` gets the error of each batch
    that was not written. Entering raises ``ForeignFile``, ``sqlite3.Error`` or ``OSError``.
    """

    file: Path
    max_bytes: int
    now: Callable[[], float]
    events: StoreEvents
    on_replaced: OnReplaced
    on_write_error: Callable[[BaseException], None]
    _identity: tuple[int, int] | None = None
    _reader_identity: tuple[int, int] | None = None
    _damaged: bool = False
    _reader: DatabaseThread = field(default_factory=partial(DatabaseThread, "cache-reader"))
    _writer: DatabaseThread = field(default_factory=partial(DatabaseThread, "cache-writer"))
    _pending: PendingWrites = field(default_factory=partial(PendingWrites, ROW_BYTES))
    _touched: dict[bytes, float] = field(default_factory=dict)
    _write_task: asyncio.Future[WriteResult] | None = None

    async def get(self, key: bytes) -> bytes | None:
        pending = self._pending.rows.get(key)
        if pending is not None:
            return pending[0] if pending[1] > self.now() else None
        run = asyncio.get_running_loop().run_in_executor
        try:
            value = await run(self._reader.thread, self._read, key, self.now())
        except (sqlite3.Error, OSError) as error:  # such as an unmounted folder
            self.events.count_cache_failure(STORE_NAME)
            if is_damage_error(error) and self._reader_identity == self._identity:
                self._damaged = True
                self._start_write()
            return None
        if self._reader_identity is None:
            self._start_write()  # opens the current file
        if value is not None:
            self._touched[key] = self.now()
            if len(self._touched) >= MAX_TOUCHED_KEYS:
                self._start_write()
        return value

    def save(self, key: bytes, value: bytes, ttl_s: float) -> None:
        is_too_large = len(value) + ROW_BYTES > self.max_bytes
        if is_too_large or not self._pending.add(key, value, self.now() + ttl_s):
            self.events.count_cache_evictions("dropped", 1)
            return
        self._start_write()

    def _start_write(self) -> None:
        """Write pending entries in the writer thread, now or after the current write."""
        if self._write_task is not None:
            return
        batch, touched = list(self._pending.rows.items()), self._touched
        self._touched = {}
        run = asyncio.get_running_loop().run_in_executor
        work = run(self._writer.thread, self._write, batch, list(touched.items()), self.now())
        self._write_task = work
        work.add_done_callback(lambda write_task: self._finish_write(write_task, batch))

    def _finish_write(self, write_task: asyncio.Future[WriteResult], batch: Batch) -> None:
        self._write_task = None
        self._pending.remove(batch)
        error = write_task.exception()
        if error is not None:
            self.events.count_cache_failure(STORE_NAME)
            self.on_write_error(error)
            self.events.count_cache_evictions("dropped", len(batch))
        else:
            entries, size, expired, evicted = write_task.result()
            self.events.set_cache_size(STORE_NAME, entries, size)
            self.events.count_cache_evictions("expired", expired)
            self.events.count_cache_evictions("full", evicted)
        if self._pending.rows:
            self._start_write()

    async def wait_until_written(self) -> None:
        """Wait until all pending values are written or dropped."""
        while self._write_task is not None:
            await asyncio.wait([self._write_task])

    def _read(self, key: bytes, now: float) -> bytes | None:
        if not self._is_in_place():
            self._reader_identity = None  # SQLite would continue to read a deleted file
            return None
        if self._reader_identity != self._identity:
            self._reader.database.close()
            self._open_reader()
        row = self._reader.database.execute(SELECT_VALUE, (key, now)).fetchone()
        if row is None:
            return None
        # Another program wrote a value of another type. An empty value is a miss.
        return row[0] if isinstance(row[0], bytes) else b""

    def _write(
        self, batch: Batch, touched: Sequence[tuple[bytes, float]], now: float
    ) -> WriteResult:
        """Write a batch and the last-used times, to a new file if this one is damaged or gone."""
        if not self._damaged and self._is_in_place():
            try:
                return self._write_to(self._writer.database, batch, touched, now)
            except (sqlite3.Error, UnreadableFile) as error:
                if not is_damage_error(error):
                    raise
        self._start_new_file()
        return self._write_to(self._writer.database, batch, touched, now)

    def _write_to(
        self,
        database: sqlite3.Connection,
        batch: Batch,
        touched: Sequence[tuple[bytes, float]],
        now: float,
    ) -> WriteResult:
        rows = [(key, value, len(value) + ROW_BYTES, end, now) for key, (value, end) in batch]
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(UPSERT_VALUE, rows)
            database.executemany(UPDATE_LAST_USE, [(used, key) for key, used in touched])
            expired = database.execute(DELETE_EXPIRED, (now,)).rowcount
            evicted = self._evict_entries(database)
            entries, size = read_totals(database)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:  # some errors end the transaction
                database.execute("ROLLBACK")
            raise
        return entries, size, expired, evicted

    def _evict_entries(self, database: sqlite3.Connection) -> int:
        """Evict the least recently used entries until the others fit. Return their number.

        If nothing is left to evict, the totals are wrong and are recounted.
        """
        evicted = 0
        while (totals := read_totals(database))[1] > self.max_bytes:
            limit = max(1, totals[0] // EVICTION_DIVISOR)
            count = database.execute(DELETE_OLDEST, (limit,)).rowcount
            evicted += count
            if not count:
                database.execute(COUNT_ENTRIES)
                break
        return evicted

    def _is_in_place(self) -> bool:
        """Return True if the path still has the file that the writer has open."""
        return self._identity is not None and self._identity == get_file_identity(self.file)

    def _open_writer(self) -> None:
        """Open the file. Replace an unreadable one unless another process has replaced it."""
        identity = get_file_identity(self.file)
        try:
            self._writer.database = open_file(self.file)
        except UnreadableFile as error:
            self._move_damaged_file(identity, str(error))
            self._writer.database = open_file(self.file)
        self._identity = get_file_identity(self.file)

    def _start_new_file(self) -> None:
        """Continue with a new file, or with the one that another process has created."""
        self._writer.database.close()
        identity, self._identity = self._identity, None  # None until a file is open
        if get_file_identity(self.file) is not None:
            self._move_damaged_file(identity, "damaged")
        elif identity is not None:
            for suffix in ("-wal", "-shm"):  # SQLite would apply them to a new file
                Path(f"{self.file}{suffix}").unlink(missing_ok=True)
            self.on_replaced("gone", None)
        self._open_writer()
        self._damaged = False

    def _move_damaged_file(self, identity: tuple[int, int] | None, reason: str) -> None:
        """Rename the file unless another process has replaced it."""
        if get_file_identity(self.file) == identity:
            self.on_replaced(reason, rename_damaged_file(self.file))

    def _open_reader(self) -> None:
        identity = self._identity
        self._reader.database = connect(self.file)
        self._reader_identity = identity  # only after success, so that a failure is retried

    async def __aenter__(self) -> Self:
        run = asyncio.get_running_loop().run_in_executor
        await run(self._writer.thread, self._open_writer)
        await run(self._reader.thread, self._open_reader)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._touched:
            self._start_write()
        await self.wait_until_written()
        run = asyncio.get_running_loop().run_in_executor
        for part in (self._reader, self._writer):
            await run(part.thread, part.close_database)
            part.thread.shutdown()
