"""Response store in a file, shared by the processes of a machine and kept across restarts.

SQLite may wait for the disk, so one thread reads and another writes batches. Values that wait to be
written can already be read.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from proxy.cache import file as files
from proxy.cache.store import StoreEvents
from proxy.runtime.spool import file_identity

ROW_BYTES = 400  # key, index entries and unused page space of a row
MAX_PENDING_BYTES = 16 * 1024 * 1024
TOUCHED = 256  # reads after which the times of use are written
SHARE = 50  # evicts 1/50 of the entries at a time
READ = "SELECT value FROM answers WHERE key = ? AND expires > ?"
WRITE = """
INSERT INTO answers (key, value, size, expires, used) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, size = excluded.size,
  expires = excluded.expires, used = excluded.used
"""
TOUCH = "UPDATE answers SET used = ? WHERE key = ?"
EXPIRE = "DELETE FROM answers WHERE expires <= ?"
OLDEST = "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY used LIMIT ?)"
NAME = "sqlite"

Replaced = Callable[[str, Path | None], None]
Row = tuple[bytes, float]  # value and expiry
Batch = Sequence[tuple[bytes, Row]]


class DatabaseThread:
    """Thread with its own connection."""

    def __init__(self, name: str) -> None:
        self.thread = ThreadPoolExecutor(1, name)
        self.database: sqlite3.Connection

    def close(self) -> None:
        self.database.close()


@dataclass(slots=True)
class Sqlite:
    """Store for one machine.

    ``max_bytes`` bounds the responses in the file. ``now`` returns seconds since the epoch.

    ``replaced`` is called in any thread with the reason for a new file and the path of the old one,
    if it was kept. ``failed`` gets the error of each batch that was not written. Entering raises
    ``ForeignFile``, ``sqlite3.Error`` or ``OSError``.
    """

    file: Path
    max_bytes: int
    now: Callable[[], float]
    events: StoreEvents
    replaced: Replaced
    failed: Callable[[BaseException], None]
    _identity: tuple[int, int] | None = None
    _reader_identity: tuple[int, int] | None = None
    _damaged: bool = False
    _reader: DatabaseThread = field(default_factory=partial(DatabaseThread, "cache-reader"))
    _writer: DatabaseThread = field(default_factory=partial(DatabaseThread, "cache-writer"))
    _pending: dict[bytes, Row] = field(default_factory=dict)
    _pending_bytes: int = 0
    _touched: dict[bytes, float] = field(default_factory=dict)
    _write_task: asyncio.Future[tuple[int, int, int, int]] | None = None

    async def get(self, key: bytes) -> bytes | None:
        pending = self._pending.get(key)
        if pending is not None:
            return pending[0] if pending[1] > self.now() else None
        run = asyncio.get_running_loop().run_in_executor
        try:
            value = await run(self._reader.thread, self._read, key, self.now())
        except (sqlite3.Error, OSError) as error:  # such as an unmounted folder
            self.events.failed(NAME)
            if files.is_damage(error) and self._reader_identity == self._identity:
                self._damaged = True
                self._flush()
            return None
        if self._reader_identity is None:
            self._flush()  # opens the current file
        if value is not None:
            self._touched[key] = self.now()
            if len(self._touched) >= TOUCHED:
                self._flush()
        return value

    def put(self, key: bytes, value: bytes, ttl: float) -> None:
        size = len(value) + ROW_BYTES
        if size > self.max_bytes or self._pending_bytes + size > MAX_PENDING_BYTES:
            self.events.evicted("dropped", 1)
            return
        self._forget(key)
        self._pending[key] = (value, self.now() + ttl)
        self._pending_bytes += size
        self._flush()

    def _forget(self, key: bytes) -> None:
        row = self._pending.pop(key, None)
        if row is not None:
            self._pending_bytes -= len(row[0]) + ROW_BYTES

    def _flush(self) -> None:
        """Write what is pending, unless a write is running, which is followed by the next."""
        if self._write_task is not None:
            return
        batch, touched = list(self._pending.items()), self._touched
        self._touched = {}
        run = asyncio.get_running_loop().run_in_executor
        work = run(self._writer.thread, self._write, batch, list(touched.items()), self.now())
        self._write_task = work
        work.add_done_callback(lambda write_task: self._written(write_task, batch))

    def _written(self, write_task: asyncio.Future[tuple[int, int, int, int]], batch: Batch) -> None:
        self._write_task = None
        for key, row in batch:
            if self._pending.get(key) is row:
                self._forget(key)
        error = write_task.exception()
        if error is not None:
            self.events.failed(NAME)
            self.failed(error)
            self.events.evicted("dropped", len(batch))
        else:
            entries, size, expired, full = write_task.result()
            self.events.set_cache_size(NAME, entries, size)
            self.events.evicted("expired", expired)
            self.events.evicted("full", full)
        if self._pending:
            self._flush()

    async def written(self) -> None:
        """Wait until all puts are written or dropped."""
        while self._write_task is not None:
            await asyncio.wait([self._write_task])

    def _read(self, key: bytes, now: float) -> bytes | None:
        if not self._is_in_place():
            self._reader_identity = None  # SQLite would continue to read a deleted file
            return None
        if self._reader_identity != self._identity:
            self._reader.close()
            self._open_reader()
        row = self._reader.database.execute(READ, (key, now)).fetchone()
        if row is None:
            return None
        # Another program wrote a value of another type. An empty value is a miss.
        return row[0] if isinstance(row[0], bytes) else b""

    def _write(
        self, batch: Batch, touched: Sequence[tuple[bytes, float]], now: float
    ) -> tuple[int, int, int, int]:
        """Return entries and bytes of the file, and the numbers of entries expired and evicted."""
        if not self._damaged and self._is_in_place():
            try:
                return self._write_to(self._writer.database, batch, touched, now)
            except (sqlite3.Error, files.UnreadableFile) as error:
                if not files.is_damage(error):
                    raise
        self._start_new_file()
        return self._write_to(self._writer.database, batch, touched, now)

    def _write_to(
        self,
        database: sqlite3.Connection,
        batch: Batch,
        touched: Sequence[tuple[bytes, float]],
        now: float,
    ) -> tuple[int, int, int, int]:
        rows = [
            (k, value, len(value) + ROW_BYTES, expires_at, now) for k, (value, expires_at) in batch
        ]
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(WRITE, rows)
            database.executemany(TOUCH, [(used, key) for key, used in touched])
            expired = database.execute(EXPIRE, (now,)).rowcount
            full = self._make_room(database)
            entries, size = files.read_totals(database)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:  # unless the error has ended it
                database.execute("ROLLBACK")
            raise
        return entries, size, expired, full

    def _make_room(self, database: sqlite3.Connection) -> int:
        """Evict the least recently used entries until the rest fits.

        Recount wrong totals, so that the loop ends.
        """
        evicted = 0
        while (totals := files.read_totals(database))[1] > self.max_bytes:
            count = database.execute(OLDEST, (max(1, totals[0] // SHARE),)).rowcount
            evicted += count
            if not count:
                database.execute(files.RECOUNT)
                break
        return evicted

    def _is_in_place(self) -> bool:
        """Return True if the path still has the file that the writer has open."""
        return self._identity is not None and self._identity == file_identity(self.file)

    def _open(self) -> None:
        """Open the file. Replace an unreadable one unless another process has replaced it."""
        identity = file_identity(self.file)
        try:
            self._writer.database = files.open_file(self.file)
        except files.UnreadableFile as error:
            self._move_damaged(identity, str(error))
            self._writer.database = files.open_file(self.file)
        self._identity = file_identity(self.file)

    def _start_new_file(self) -> None:
        """Continue with a new file, or with the one that another process has created."""
        self._writer.close()
        identity, self._identity = self._identity, None  # until a file is open
        if file_identity(self.file) is not None:
            self._move_damaged(identity, "damaged")
        elif identity is not None:
            files.remove_log(self.file)
            self.replaced("gone", None)
        self._open()
        self._damaged = False

    def _move_damaged(self, identity: tuple[int, int] | None, reason: str) -> None:
        if file_identity(self.file) == identity:
            self.replaced(reason, files.move_damaged(self.file))

    def _open_reader(self) -> None:
        identity = self._identity
        self._reader.database = files.connect(self.file)
        self._reader_identity = identity  # only after success, so that a failure is retried

    async def __aenter__(self) -> Self:
        run = asyncio.get_running_loop().run_in_executor
        await run(self._writer.thread, self._open)
        await run(self._reader.thread, self._open_reader)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._touched:
            self._flush()
        await self.written()
        for lane in (self._reader, self._writer):
            await asyncio.get_running_loop().run_in_executor(lane.thread, lane.close)
            lane.thread.shutdown()
