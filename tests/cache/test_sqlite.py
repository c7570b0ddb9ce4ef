"""SQLite store: restarts, other processes, and damaged files."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest

from proxy.cache.sqlite import SQLITE_MAGIC, DatabaseThread, ForeignFile, SqliteAnswerStore
from tests.cache.stores import Clock, StoreEventLog

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
ROOM = 1_000_000


def store(
    folder: Path, events: StoreEventLog, room: int = ROOM, clock: Clock | None = None
) -> SqliteAnswerStore:
    reports = events, events.replaced, events.write_errors.append
    return SqliteAnswerStore(folder / "cache.db", room, clock or Clock(), *reports)


async def write(
    opened: SqliteAnswerStore, key: bytes = KEY, value: bytes = b"value", ttl_s: float = 60
) -> None:
    opened.save(key, value, ttl_s)
    await opened.wait_until_written()


async def test_two_processes_share_a_file_and_its_bound(tmp_path: Path) -> None:
    events = StoreEventLog()
    first = store(tmp_path, StoreEventLog())
    async with first as first_store, store(tmp_path, events) as second_store:
        first_store.save(KEY, b"one", 60)
        second_store.save(OTHER_KEY, b"two", 60)
        await first_store.wait_until_written()
        await second_store.wait_until_written()

        assert await second_store.get(KEY) == b"one"
        assert await first_store.get(OTHER_KEY) == b"two"
    async with store(tmp_path, events) as third:
        third.save(b"x" * 32, b"three", 60)
    assert events.entries == 3


async def test_expired_entries_are_removed_by_next_write(tmp_path: Path) -> None:
    clock, events = Clock(), StoreEventLog()
    async with store(tmp_path, events, clock=clock) as opened:
        opened.save(KEY, b"value", 10)
    clock.now += 10

    async with store(tmp_path, events, clock=clock) as opened:
        opened.save(OTHER_KEY, b"value", 10)
    assert (events.entries, events.evictions["expired"]) == (1, 1)


def value_of(number: int) -> bytes:
    """Return 2 to 34 KiB."""
    return number.to_bytes(8, "big") * (256 + number * 7919 % 4096)


async def test_file_stays_within_its_bound(tmp_path: Path) -> None:
    bound, events = 8 * 1024 * 1024, StoreEventLog()
    async with store(tmp_path, events, bound) as opened:
        for number in range(2_000):
            opened.save(number.to_bytes(32, "big"), value_of(number), 600)
            if number % 50 == 49:
                await opened.wait_until_written()
        assert await opened.get((1_999).to_bytes(32, "big")) == value_of(1_999)
        assert await opened.get((0).to_bytes(32, "big")) is None

    assert events.size <= bound
    assert events.evictions["full"] + events.entries == 2_000
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= bound * 1.25


async def test_locked_file_is_reported_and_written_later(tmp_path: Path) -> None:
    events = StoreEventLog()
    async with store(tmp_path, events) as opened:
        connection = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        await write(opened)
        connection.close()
        await write(opened, OTHER_KEY)
        assert (await opened.get(KEY), await opened.get(OTHER_KEY)) == (None, b"value")
    assert (events.failures, events.evictions["dropped"], events.replaced_files) == (1, 1, [])


EDITS = {
    "sums as texts": "DROP TABLE held; CREATE TABLE held (one INTEGER PRIMARY KEY, entries TEXT,"
    " size TEXT); INSERT INTO held VALUES (1, '0', '0')",
    "a sum as a text": "DROP TABLE held; CREATE TABLE held (one INTEGER PRIMARY KEY, entries,"
    " size TEXT); INSERT INTO held VALUES (1, 0, '0')",
    "sums of parts": "DROP TABLE held; CREATE TABLE held (one INTEGER PRIMARY KEY, entries REAL,"
    " size REAL); INSERT INTO held VALUES (1, 0.5, 0.5)",
    "sums unknown": "UPDATE held SET entries = NULL, size = NULL",
    "sums too large": "UPDATE held SET size = 1000000000000000",
    "sums below zero": "UPDATE held SET size = -1000000000000000",
    "sums gone": "DELETE FROM held",
    "no table of sums": "DROP TABLE held",
    "no table of answers": "DROP TABLE answers",
    "no such column": "ALTER TABLE answers RENAME COLUMN used TO touched",
    "one column more": "ALTER TABLE answers ADD COLUMN tenant TEXT NOT NULL DEFAULT 'x'",
    "a table for texts": "DROP TABLE answers; CREATE TABLE answers (key TEXT PRIMARY KEY,"
    " value TEXT, size TEXT, expires TEXT, used TEXT) STRICT",
    "a trigger that refuses": "CREATE TRIGGER no BEFORE INSERT ON answers"
    " BEGIN SELECT RAISE(ABORT, 'no'); END",
    "an index that is full": "CREATE UNIQUE INDEX few ON answers (used)",
}
"""What hands, and other versions, may have made of the file."""


@pytest.mark.parametrize("runs", [True, False], ids=["while it runs", "before a start"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
async def test_edited_file_does_not_stop_the_cache(edit: str, runs: bool, tmp_path: Path) -> None:
    events = StoreEventLog()
    async with store(tmp_path, events) as opened:
        await write(opened)
        if runs:
            edit_file(tmp_path / "cache.db", edit)
            await keeps_on(opened)
    if not runs:
        edit_file(tmp_path / "cache.db", edit)
        async with store(tmp_path, events) as opened:
            await keeps_on(opened)

    assert events.write_errors == []
    assert events.replaced_files in ([], [("damaged", "cache.db.damaged")])


def edit_file(file: Path, edit: str) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.executescript(edit)
    connection.close()


async def keeps_on(opened: SqliteAnswerStore) -> None:
    """Store responses in batches of two, and use one."""
    for number in range(4):
        opened.save(bytes([number] * 32), b"value", 60)
        if number % 2:
            await opened.wait_until_written()
            assert await opened.get(bytes([number] * 32)) == b"value"
    assert await opened.get(bytes([2] * 32)) == b"value"


async def test_failed_batch_is_reported_and_next_is_written(tmp_path: Path) -> None:
    events = StoreEventLog()
    async with store(tmp_path, events) as opened:
        opened.save(KEY, "\ud800", 60)  # type: ignore[arg-type]  # no driver can encode it
        await opened.wait_until_written()
        await write(opened, OTHER_KEY)
        assert await opened.get(OTHER_KEY) == b"value"
    assert [type(error) for error in events.write_errors] == [UnicodeEncodeError]
    assert (events.failures, events.evictions["dropped"], events.entries) == (1, 1, 1)


async def fill(folder: Path) -> None:
    async with store(folder, StoreEventLog()) as filled:
        for number in range(20):
            filled.save(number.to_bytes(32, "big"), b"x" * 20_000, 60)


def damage(file: Path) -> None:
    """Overwrite all pages but the first with noise."""
    raw = file.read_bytes()
    file.write_bytes(raw[:100] + b"\xa5" * (len(raw) - 100))


async def test_two_processes_replace_a_damaged_file_once(tmp_path: Path) -> None:
    events = StoreEventLog()
    (tmp_path / "cache.db").write_bytes(SQLITE_MAGIC + b"\xa5" * 5000)

    async with store(tmp_path, events) as first_store, store(tmp_path, events) as second_store:
        await write(first_store)
        assert await second_store.get(KEY) == b"value"

    assert len(events.replaced_files) == 1


NOTICED_BY = pytest.mark.parametrize("noticed_by", ["reader", "writer"])


@NOTICED_BY
async def test_file_damaged_in_use_is_replaced(noticed_by: str, tmp_path: Path) -> None:
    events = StoreEventLog()
    await fill(tmp_path)
    damage(tmp_path / "cache.db")

    async with store(tmp_path, events) as opened:
        if noticed_by == "reader":
            assert await opened.get((1).to_bytes(32, "big")) is None
        await write(opened)
        assert await opened.get(KEY) == b"value"

    assert events.replaced_files == [("damaged", "cache.db.damaged")]


async def test_reader_retries_to_open_a_new_file(tmp_path: Path) -> None:
    events, file, path = StoreEventLog(), tmp_path / "cache.db", tmp_path / "away.db"
    await fill(tmp_path)

    async with store(tmp_path, events) as opened:
        damage(file)
        assert await opened.get((1).to_bytes(32, "big")) is None
        await write(opened)
        file.rename(path)
        file.mkdir()
        assert await opened.get(KEY) is None
        await opened.wait_until_written()
        file.rmdir()
        path.rename(file)
        assert await opened.get(KEY) is None
        await opened.wait_until_written()
        assert await opened.get(KEY) == b"value"

    assert events.replaced_files == [("damaged", "cache.db.damaged")]
    assert events.failures == 2


@NOTICED_BY
async def test_file_deleted_in_use_is_replaced(noticed_by: str, tmp_path: Path) -> None:
    events, new_key = StoreEventLog(), b"o" * 32
    async with store(tmp_path, events) as first_store, store(tmp_path, events) as second_store:
        await write(first_store)
        assert await second_store.get(KEY) == b"value"
        (tmp_path / "cache.db").unlink()

        if noticed_by == "reader":
            assert await second_store.get(KEY) is None
            await second_store.wait_until_written()
        await write(first_store, new_key, b"other")
        assert await first_store.get(KEY) is None
        await second_store.get(new_key)
        await second_store.wait_until_written()
        assert await second_store.get(new_key) == b"other"

    assert events.replaced_files == [("gone", "")]
    assert (tmp_path / "cache.db").stat().st_mode & 0o777 == 0o600
    async with store(tmp_path, events) as opened:
        assert await opened.get(new_key) == b"other"


async def test_connection_that_a_waiting_read_opens_is_closed(tmp_path: Path) -> None:
    events, reader, go = StoreEventLog(), DatabaseThread("cache-reader"), threading.Event()
    reports = events, events.replaced, events.write_errors.append
    file = tmp_path / "cache.db"
    async with SqliteAnswerStore(file, ROOM, Clock(), *reports, _reader=reader) as opened:
        file.unlink()
        await write(opened)
        reader.thread.submit(go.wait)
        read = asyncio.create_task(opened.get(KEY))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(go.set)

    assert await read == b"value"
    # SQLite removes the write-ahead log when the last connection is closed.
    assert not file.with_name("cache.db-wal").exists()


async def test_file_is_created_again_when_its_folder_returns(tmp_path: Path) -> None:
    events, folder = StoreEventLog(), tmp_path / "mounted"
    folder.mkdir()
    async with store(folder, events) as opened:
        shutil.rmtree(folder)
        for _ in range(2):
            await write(opened, KEY, b"lost")
            assert await opened.get(KEY) is None
            await opened.wait_until_written()
        folder.mkdir()
        await write(opened)
        assert await opened.get(KEY) == b"value"

    assert events.replaced_files == [("gone", "")]


@pytest.mark.parametrize(
    "made_by",
    ["CREATE TABLE invoices (id)", "PRAGMA application_id = 7", "PRAGMA user_version = 3"],
)
async def test_foreign_database_is_not_changed(made_by: str, tmp_path: Path) -> None:
    file = tmp_path / "cache.db"
    edit_file(file, made_by)
    data_before = file.read_bytes()

    with pytest.raises(ForeignFile):
        async with store(tmp_path, events := StoreEventLog()):
            pass

    assert file.read_bytes() == data_before
    assert events.replaced_files == []


async def test_file_of_another_version_is_replaced(tmp_path: Path) -> None:
    async with store(tmp_path, events := StoreEventLog()):
        pass
    edit_file(tmp_path / "cache.db", "PRAGMA user_version = 99")

    async with store(tmp_path, events) as opened:
        opened.save(KEY, b"value", 60)

    reason = "the file has the format of another version"
    assert events.replaced_files == [(reason, "cache.db.damaged")]


async def test_unreachable_folder_is_a_miss(tmp_path: Path) -> None:
    folder, events = tmp_path / "cache", StoreEventLog()
    folder.mkdir()
    async with store(folder, events) as opened:
        await write(opened)
        shutil.rmtree(folder)
        folder.write_text("a file in its place")

        assert await opened.get(KEY) is None
