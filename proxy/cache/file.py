"""File of the SQLite cache: schema, checks and replacement.

Files of other programs are never changed. A damaged file is renamed, replacing the one that was
renamed before.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

APPLICATION = 0x48644361  # "HdCa", in the header of each cache file
FORMAT = 1
MAGIC = b"SQLite format 3\0"
DAMAGED_SUFFIX = ".damaged"
BUSY_S = 1.0

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
NUMBERS = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};"
RECOUNT = """
UPDATE held SET entries = (SELECT count(*) FROM answers),
  size = (SELECT coalesce(sum(size), 0) FROM answers)
"""
TABLES = {"answers", "held"}  # tables of a file without an application id


class ForeignFile(Exception):
    """The file belongs to another program."""


class UnreadableFile(Exception):
    """The file is damaged, or of another version of the cache."""


DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,  # a missing table or column
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
    }
)
"""SQLite errors of a damaged file, or of one whose tables were changed."""


def is_damage(error: Exception) -> bool:
    """Return True if the file itself is at fault, not the disk, a lock or a permission."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, UnreadableFile) or code in DAMAGE


def open_file(path: Path) -> sqlite3.Connection:
    """Open the file. Create its tables if it is new, and recount its totals.

    A new file is readable by its owner only. Raises ``ForeignFile``, ``UnreadableFile``,
    ``OSError`` or another ``sqlite3.Error``.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(len(MAGIC))
    if head.strip(b"\0") and not MAGIC.startswith(head):
        raise ForeignFile("the file exists and is not a SQLite database")
    database = connect(path)
    try:
        _check(database)
        database.executescript(NUMBERS + SCHEMA)
        database.execute(RECOUNT)
        read_totals(database)
    except BaseException as error:
        database.close()
        if isinstance(error, sqlite3.DatabaseError) and is_damage(error):
            raise UnreadableFile("damaged") from None
        raise
    return database


def read_totals(database: sqlite3.Connection) -> tuple[int, int]:
    """Return the number of entries and their bytes.

    Raises ``UnreadableFile`` if these are no integers.
    """
    row = database.execute("SELECT entries, size FROM held").fetchone()
    if row is None or not all(type(value) is int for value in row):
        raise UnreadableFile("damaged")
    return row[0], row[1]


def connect(path: Path) -> sqlite3.Connection:
    """Connect to a file that ``open_file`` has checked. Does not create it."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)


def _check(database: sqlite3.Connection) -> None:
    [application] = database.execute("PRAGMA application_id").fetchone()
    [version] = database.execute("PRAGMA user_version").fetchone()
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    if application == APPLICATION:
        if version != FORMAT:
            raise UnreadableFile("of another version")
        return
    has_no_id = application == 0 and version == 0
    if not has_no_id or (tables and TABLES - tables):
        raise ForeignFile("the file is a database of another program")


def move_damaged(path: Path) -> Path:
    """Rename a damaged file and its write-ahead log. Return the new path."""
    for suffix in ("-wal", ""):  # the log first, so that no new file gets its writes
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{path}{DAMAGED_SUFFIX}{suffix}")
    with suppress(FileNotFoundError):
        os.unlink(f"{path}-shm")
    return Path(f"{path}{DAMAGED_SUFFIX}")


def remove_log(path: Path) -> None:
    """Remove the write-ahead log of a deleted file, which SQLite would apply to a new one."""
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
