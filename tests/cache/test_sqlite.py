"""The store in a file: restarts, other processes, and files that fail."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from proxy.cache.sqlite import WAITING_BYTES, Sqlite
from tests.cache.stores import Clock, Told

KEY, OTHER = b"k" * 32, b"o" * 32
ROOM = 1_000_000


def store(folder: Path, told: Told, room: int = ROOM, clock: Clock | None = None) -> Sqlite:
    return Sqlite(folder / "cache.db", room, clock or Clock(), told)


async def test_answers_outlive_the_process(tmp_path: Path) -> None:
    async with store(tmp_path, Told()) as first:
        first.put(KEY, b"value", 60)

    async with store(tmp_path, Told()) as second:
        assert await second.get(KEY) == b"value"


async def test_two_processes_share_a_file_and_its_bound(tmp_path: Path) -> None:
    told = Told()
    async with store(tmp_path, Told()) as one, store(tmp_path, told) as two:
        one.put(KEY, b"one", 60)
        two.put(OTHER, b"two", 60)
        await one.written()
        await two.written()

        assert await two.get(KEY) == b"one"
        assert await one.get(OTHER) == b"two"
    async with store(tmp_path, told) as third:
        third.put(b"x" * 32, b"three", 60)
    assert told.entries == 3


async def test_what_has_expired_is_removed_with_the_next_writing(tmp_path: Path) -> None:
    clock, told = Clock(), Told()
    async with store(tmp_path, told, clock=clock) as opened:
        opened.put(KEY, b"value", 10)
    clock.now += 10

    async with store(tmp_path, told, clock=clock) as opened:
        opened.put(OTHER, b"value", 10)
    assert (told.entries, told.gone["expired"]) == (1, 1)


async def test_the_file_stays_near_the_bound(tmp_path: Path) -> None:
    told = Told()
    async with store(tmp_path, told) as opened:
        for number in range(600):
            opened.put(number.to_bytes(32, "big"), bytes([number % 256]) * 20_000, 60)
            if number % 30 == 0:
                await opened.written()

    assert told.size <= ROOM
    assert told.gone["full"] > 400
    assert (tmp_path / "cache.db").stat().st_size < ROOM + 30 * 22_000 + WAITING_BYTES / 10


async def test_a_file_that_breaks_is_a_miss_and_is_told(tmp_path: Path) -> None:
    told = Told()
    async with store(tmp_path, told) as opened:
        opened.put(KEY, b"value", 60)
        await opened.written()
        other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
        other.execute("DROP TABLE answers")
        other.close()

        assert await opened.get(KEY) is None
        opened.put(OTHER, b"value", 60)
        await opened.written()
        assert await opened.get(OTHER) is None
    assert told.failures == 3
    assert told.gone["dropped"] == 1


async def test_more_than_may_wait_is_dropped(tmp_path: Path) -> None:
    told = Told()
    async with store(tmp_path, told, room=10 * WAITING_BYTES) as opened:
        for number in range(20):
            opened.put(number.to_bytes(32, "big"), bytes(WAITING_BYTES // 10), 60)

    assert told.gone["dropped"] == 11


async def test_a_file_that_is_no_database_is_told_at_start(tmp_path: Path) -> None:
    (tmp_path / "cache.db").write_bytes(b"no database " * 100)

    with pytest.raises(sqlite3.DatabaseError):
        async with store(tmp_path, Told()):
            pass
