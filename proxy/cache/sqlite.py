"""Response store in a file, shared by the processes of a machine and kept across restarts.

SQLite may wait for the disk, so one thread reads and another writes batches. Values that wait to be
written can already be read.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from proxy.cache import file as files
from proxy.cache.store import StoreEvents

ROW_BYTES = 400  # key, index entries and unused page space of a row
WAITING_BYTES = 16 * 1024 * 1024
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


class Sqlite:
    """Store for one machine. ``max_bytes`` bounds the responses in the file. ``now`` returns
    seconds since the epoch.

    ``replaced`` is called in any thread with the reason for a new file and the path of the old one,
    if it was kept. ``failed`` gets the error of each batch that was not written. Entering raises
    ``ForeignFile``, ``sqlite3.Error`` or ``OSError``.
    """

    def __init__(
        self,
        file: Path,
        max_bytes: int,
        now: Callable[[], float],
        events: StoreEvents,
        replaced: Replaced,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._file = file
        self._identity: tuple[int, int] | None = None
        self._replaced = replaced
        self._damaged = False
        self._max_bytes = max_bytes
        self._now = now
        self._events = events
        self._failed = failed
        self._reading: tuple[int, int] | None = None
        self._reader = DatabaseThread("cache-reader")
        self._writer = DatabaseThread("cache-writer")
        self._waiting: dict[bytes, Row] = {}
        self._waiting_bytes = 0
        self._touched: dict[bytes, float] = {}
        self._writing: asyncio.Future[tuple[int, int, int, int]] | None = None

    async def get(self, key: bytes) -> bytes | None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            return waiting[0] if waiting[1] > self._now() else None
        run = asyncio.get_running_loop().run_in_executor
        try:
            value = await run(self._reader.thread, self._read, key, self._now())
        except (sqlite3.Error, OSError) as error:  # such as an unmounted folder
            self._events.failed(NAME)
            if files.is_damage(error) and self._reading == self._identity:
                self._damaged = True
                self._flush()
            return None
        if self._reading is None:
            self._flush()  # opens the current file
        if value is not None:
            self._touched[key] = self._now()
            if len(self._touched) >= TOUCHED:
                self._flush()
        return value

    def put(self, key: bytes, value: bytes, ttl: float) -> None:
        size = len(value) + ROW_BYTES
        if size > self._max_bytes or self._waiting_bytes + size > WAITING_BYTES:
            self._events.evicted("dropped", 1)
            return
        self._forget(key)
        self._waiting[key] = (value, self._now() + ttl)
        self._waiting_bytes += size
        self._flush()

    def _forget(self, key: bytes) -> None:
        row = self._waiting.pop(key, None)
        if row is not None:
            self._waiting_bytes -= len(row[0]) + ROW_BYTES

    def _flush(self) -> None:
        """Write what waits, unless a write is running, which is followed by the next."""
        if self._writing is not None:
            return
        batch, touched = list(self._waiting.items()), self._touched
        self._touched = {}
        run = asyncio.get_running_loop().run_in_executor
        work = run(self._writer.thread, self._write, batch, list(touched.items()), self._now())
        self._writing = work
        work.add_done_callback(lambda done: self._written(done, batch))

    def _written(self, done: asyncio.Future[tuple[int, int, int, int]], batch: Batch) -> None:
        self._writing = None
        for key, row in batch:
            if self._waiting.get(key) is row:
                self._forget(key)
        error = done.exception()
        if error is not None:
            self._events.failed(NAME)
            self._failed(error)
            self._events.evicted("dropped", len(batch))
        else:
            entries, size, expired, full = done.result()
            self._events.held(NAME, entries, size)
            self._events.evicted("expired", expired)
            self._events.evicted("full", full)
        if self._waiting:
            self._flush()

    async def written(self) -> None:
        """Wait until all puts are written or dropped."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    def _read(self, key: bytes, now: float) -> bytes | None:
        if not self._is_in_place():
            self._reading = None  # SQLite would continue to read a deleted file
            return None
        if self._reading != self._identity:
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
        self._begin_anew()
        return self._write_to(self._writer.database, batch, touched, now)

    def _write_to(
        self,
        database: sqlite3.Connection,
        batch: Batch,
        touched: Sequence[tuple[bytes, float]],
        now: float,
    ) -> tuple[int, int, int, int]:
        rows = [(k, value, len(value) + ROW_BYTES, until, now) for k, (value, until) in batch]
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(WRITE, rows)
            database.executemany(TOUCH, [(used, key) for key, used in touched])
            expired = database.execute(EXPIRE, (now,)).rowcount
            full = self._make_room(database)
            entries, size = files.sums(database)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:  # unless the error has ended it
                database.execute("ROLLBACK")
            raise
        return entries, size, expired, full

    def _make_room(self, database: sqlite3.Connection) -> int:
        """Evict the least recently used entries until the rest fits. Recount wrong totals, so
        that the loop ends."""
        gone = 0
        while (held := files.sums(database))[1] > self._max_bytes:
            went = database.execute(OLDEST, (max(1, held[0] // SHARE),)).rowcount
            gone += went
            if not went:
                database.execute(files.COUNT)
                break
        return gone

    def _is_in_place(self) -> bool:
        """Return True if the path still has the file that the writer has open."""
        return self._identity is not None and self._identity == files.identity(self._file)

    def _open(self) -> None:
        """Open the file. Replace an unreadable one unless another process has replaced it."""
        there = files.identity(self._file)
        try:
            self._writer.database = files.open_file(self._file)
        except files.UnreadableFile as error:
            self._put_aside(there, str(error))
            self._writer.database = files.open_file(self._file)
        self._identity = files.identity(self._file)

    def _begin_anew(self) -> None:
        """Continue with a new file, or with the one that another process has created."""
        self._writer.close()
        before, self._identity = self._identity, None  # until a file is open
        if files.identity(self._file) is not None:
            self._put_aside(before, "damaged")
        elif before is not None:
            files.forget_log(self._file)
            self._replaced("gone", None)
        self._open()
        self._damaged = False

    def _put_aside(self, which: tuple[int, int] | None, reason: str) -> None:
        if files.identity(self._file) == which:
            self._replaced(reason, files.set_aside(self._file))

    def _open_reader(self) -> None:
        identity = self._identity
        self._reader.database = files.connect(self._file)
        self._reading = identity  # only after success, so that a failure is retried

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
