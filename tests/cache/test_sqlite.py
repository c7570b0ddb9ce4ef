"""The store in a file: restarts, other processes, and files that fail."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from proxy.cache.file import MAGIC, ForeignFile
from proxy.cache.sqlite import MAX_PENDING_BYTES, Sqlite
from tests.cache.stores import Clock, Told

KEY, OTHER = b"k" * 32, b"o" * 32
ROOM = 1_000_000


def store(folder: Path, told: Told, room: int = ROOM, clock: Clock | None = None) -> Sqlite:
    return Sqlite(
        folder / "cache.db", room, clock or Clock(), told, told.replaced, told.broken.append
    )


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
    assert (tmp_path / "cache.db").stat().st_size < ROOM + 30 * 22_000 + MAX_PENDING_BYTES / 10


async def test_a_file_that_somebody_holds_is_told_and_written_later(tmp_path: Path) -> None:
    told = Told()
    async with store(tmp_path, told) as opened:
        other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        opened.put(KEY, b"value", 60)
        await opened.written()
        other.close()
        opened.put(OTHER, b"value", 60)
        await opened.written()
        assert (await opened.get(KEY), await opened.get(OTHER)) == (None, b"value")
    assert (told.failures, told.gone["dropped"], told.files) == (1, 1, [])


EDITS = {
    "sums as texts": "DROP TABLE held; CREATE TABLE held (one INTEGER PRIMARY KEY, entries TEXT,"
    " size TEXT); INSERT INTO held VALUES (1, '0', '0')",
    "a sum as a text": "DROP TABLE held; CREATE TABLE held (one INTEGER PRIMARY KEY, entries,"
    " size TEXT); INSERT INTO held VALUES (1, 0, '0')",
    "sums of parts": "DROP TABLE held; CREATE TABLE held (one INTEGER PRIMARY KEY, entries REAL,"
    " size REAL); INSERT INTO held VALUES (1, 0.5, 0.5)",
    "sums unknown": "UPDATE held SET entries = NULL, size = NULL",
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
async def test_a_file_that_somebody_has_edited_never_ends_the_keeping_of_answers(
    edit: str, runs: bool, tmp_path: Path
) -> None:
    told = Told()
    async with store(tmp_path, told) as opened:
        opened.put(KEY, b"value", 60)
        await opened.written()
        if runs:
            _edit(tmp_path / "cache.db", edit)
            await _keeps_on(opened)
    if not runs:
        _edit(tmp_path / "cache.db", edit)
        async with store(tmp_path, told) as opened:
            await _keeps_on(opened)

    assert told.broken == []
    assert told.files in ([], [("damaged", "cache.db.damaged")])


def _edit(file: Path, edit: str) -> None:
    other = sqlite3.connect(file, isolation_level=None)
    other.executescript(edit)
    other.close()


async def _keeps_on(opened: Sqlite) -> None:
    """Keep answers, two in a batch, and let one be used."""
    for number in range(4):
        opened.put(bytes([number] * 32), b"value", 60)
        if number % 2:
            await opened.written()
            assert await opened.get(bytes([number] * 32)) == b"value"
    assert await opened.get(bytes([2] * 32)) == b"value"


async def test_a_batch_that_cannot_be_written_is_told_and_the_next_is_written(
    tmp_path: Path,
) -> None:
    told = Told()
    async with store(tmp_path, told) as opened:
        opened.put(KEY, "\ud800", 60)  # type: ignore[arg-type]  # no driver can encode it
        await opened.written()
        opened.put(OTHER, b"value", 60)
        await opened.written()
        assert await opened.get(OTHER) == b"value"
    assert [type(each) for each in told.broken] == [UnicodeEncodeError]
    assert (told.failures, told.gone["dropped"], told.entries) == (1, 1, 1)


async def test_more_than_may_wait_is_dropped(tmp_path: Path) -> None:
    told = Told()
    async with store(tmp_path, told, room=10 * MAX_PENDING_BYTES) as opened:
        for number in range(20):
            opened.put(number.to_bytes(32, "big"), bytes(MAX_PENDING_BYTES // 10), 60)

    assert told.gone["dropped"] == 11


def spoil(file: Path) -> None:
    """Write noise over all pages but the first, as a bad disk may."""
    raw = file.read_bytes()
    file.write_bytes(raw[:100] + b"\xa5" * (len(raw) - 100))


@pytest.mark.parametrize("content", [MAGIC, MAGIC[:7], MAGIC + b"\xa5" * 5000, b"\0" * 4096])
async def test_a_damaged_file_is_kept_aside_and_begun_anew(content: bytes, tmp_path: Path) -> None:
    told = Told()
    (tmp_path / "cache.db").write_bytes(content)
    (tmp_path / "cache.db-wal").write_bytes(b"log")

    async with store(tmp_path, told) as opened:
        opened.put(KEY, b"value", 60)
        await opened.written()
        assert await opened.get(KEY) == b"value"

    assert told.files == [("damaged", "cache.db.damaged")]
    assert (tmp_path / "cache.db.damaged").read_bytes() == content
    assert told.failures == 0


async def test_two_processes_begin_a_damaged_file_anew_once(tmp_path: Path) -> None:
    told = Told()
    (tmp_path / "cache.db").write_bytes(MAGIC + b"\xa5" * 5000)

    async with store(tmp_path, told) as one, store(tmp_path, told) as two:
        one.put(KEY, b"value", 60)
        await one.written()
        assert await two.get(KEY) == b"value"

    assert len(told.files) == 1


@pytest.mark.parametrize("noticed_by", ["reader", "writer"])
async def test_a_file_that_is_damaged_while_it_is_used_is_begun_anew(
    noticed_by: str, tmp_path: Path
) -> None:
    told = Told()
    async with store(tmp_path, told) as filled:
        for number in range(20):
            filled.put(number.to_bytes(32, "big"), b"x" * 20_000, 60)
    spoil(tmp_path / "cache.db")

    async with store(tmp_path, told) as opened:
        if noticed_by == "reader":
            assert await opened.get((1).to_bytes(32, "big")) is None
        opened.put(KEY, b"value", 60)
        await opened.written()
        assert await opened.get(KEY) == b"value"

    assert told.files == [("damaged", "cache.db.damaged")]


async def test_a_reader_that_could_not_open_the_new_file_once_opens_it_the_next_time(
    tmp_path: Path,
) -> None:
    told, file, away = Told(), tmp_path / "cache.db", tmp_path / "away.db"
    async with store(tmp_path, told) as filled:
        for number in range(20):
            filled.put(number.to_bytes(32, "big"), b"x" * 20_000, 60)

    async with store(tmp_path, told) as opened:
        spoil(file)
        assert await opened.get((1).to_bytes(32, "big")) is None
        opened.put(KEY, b"value", 60)
        await opened.written()
        file.rename(away)
        file.mkdir()
        assert await opened.get(KEY) is None
        await opened.written()
        file.rmdir()
        away.rename(file)
        assert await opened.get(KEY) is None
        await opened.written()
        assert await opened.get(KEY) == b"value"

    assert told.files == [("damaged", "cache.db.damaged")]
    assert told.failures == 2


@pytest.mark.parametrize("noticed_by", ["reader", "writer"])
async def test_a_file_that_is_deleted_while_it_is_used_is_begun_anew(
    noticed_by: str, tmp_path: Path
) -> None:
    told, other = Told(), b"o" * 32
    async with store(tmp_path, told) as one, store(tmp_path, told) as two:
        one.put(KEY, b"value", 60)
        await one.written()
        assert await two.get(KEY) == b"value"
        (tmp_path / "cache.db").unlink()

        if noticed_by == "reader":
            assert await two.get(KEY) is None
            await two.written()
        one.put(other, b"other", 60)
        await one.written()
        assert await one.get(KEY) is None
        await two.get(other)
        await two.written()
        assert await two.get(other) == b"other"

    assert told.files == [("gone", "")]
    assert (tmp_path / "cache.db").stat().st_mode & 0o777 == 0o600
    async with store(tmp_path, told) as opened:
        assert await opened.get(other) == b"other"


async def test_a_file_whose_folder_is_away_for_a_while_is_begun_anew(tmp_path: Path) -> None:
    told, folder = Told(), tmp_path / "mounted"
    folder.mkdir()
    async with store(folder, told) as opened:
        shutil.rmtree(folder)
        for _ in range(2):
            opened.put(KEY, b"lost", 60)
            await opened.written()
            assert await opened.get(KEY) is None
            await opened.written()
        folder.mkdir()
        opened.put(KEY, b"value", 60)
        await opened.written()
        assert await opened.get(KEY) == b"value"

    assert told.files == [("gone", "")]


@pytest.mark.parametrize(
    "made_by",
    ["CREATE TABLE invoices (id)", "PRAGMA application_id = 7", "PRAGMA user_version = 3"],
)
async def test_another_programs_database_never_gets_our_tables(
    made_by: str, tmp_path: Path
) -> None:
    file = tmp_path / "cache.db"
    other = sqlite3.connect(file)
    other.execute(made_by)
    other.close()
    before = file.read_bytes()

    with pytest.raises(ForeignFile):
        async with store(tmp_path, told := Told()):
            pass

    assert file.read_bytes() == before
    assert told.files == []


async def test_a_file_of_another_version_of_ours_is_begun_anew(tmp_path: Path) -> None:
    async with store(tmp_path, told := Told()):
        pass
    other = sqlite3.connect(tmp_path / "cache.db")
    other.execute("PRAGMA user_version = 99")
    other.close()

    async with store(tmp_path, told) as opened:
        opened.put(KEY, b"value", 60)

    assert told.files == [("of another version", "cache.db.damaged")]


@pytest.mark.parametrize("size", [10**15, -(10**15), "much", None])
async def test_sums_that_are_wrong_are_counted_anew(size: object, tmp_path: Path) -> None:
    async with store(tmp_path, told := Told()) as opened:
        opened.put(KEY, b"value", 60)
    other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
    other.execute("UPDATE held SET size = ?", (size,))
    other.close()

    async with store(tmp_path, told) as opened:
        opened.put(OTHER, b"value", 60)
        await opened.written()
        assert await opened.get(KEY) == b"value"

    assert told.entries == 2
    assert told.size < ROOM


async def test_sums_that_turn_wrong_while_it_runs_hold_up_nothing(tmp_path: Path) -> None:
    async with store(tmp_path, told := Told()) as opened:
        other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
        other.execute("UPDATE held SET size = 1000000000000")
        other.close()
        opened.put(KEY, b"value", 60)

    assert (told.entries, told.size) == (0, 0)


async def test_a_folder_that_is_out_of_reach_is_a_miss(tmp_path: Path) -> None:
    folder, told = tmp_path / "cache", Told()
    folder.mkdir()
    async with store(folder, told) as opened:
        opened.put(KEY, b"value", 60)
        await opened.written()
        shutil.rmtree(folder)
        folder.write_text("a file in its place")

        assert await opened.get(KEY) is None
