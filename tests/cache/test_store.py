"""Stores return exactly the stored response, and only under its key."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.cache.memory import MemoryAnswerStore
from proxy.cache.redis import RedisAnswerStore
from proxy.cache.sqlite import ForeignFile, SqliteAnswerStore, open_file, rename_damaged_file
from proxy.cache.store import MAX_PENDING_BYTES, AnswerStore, CacheBackend
from proxy.runtime.redis import create_client
from proxy.runtime.spool import get_file_identity
from tests.cache.stores import Clock, StoreEventLog, flush, until
from tests.for_each import for_each
from tests.servers import running_cluster, running_server

KEY, OTHER_KEY, SECRET = b"k" * 32, b"o" * 32, b"s" * 32


class Open:
    """A store that anyone may write to."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    async def get(self, key: bytes) -> bytes | None:
        return self.values.get(key)

    def save(self, key: bytes, value: bytes, ttl_s: float) -> None:
        self.values[key] = value

    async def __aenter__(self) -> Open:
        return self

    async def __aexit__(self, *ended: object) -> None:
        return None


@for_each("index", [0, 1, 20, 33, -1])
async def test_changed_value_is_a_miss_and_reported(index: int) -> None:
    store, events = Open(), list[str]()
    backend = CacheBackend(store, SECRET, lambda: events.append("changed"))
    backend.save(KEY, b"an answer", 60)
    assert (await backend.get(KEY), events) == (b"an answer", [])

    value = bytearray(store.values[KEY])
    value[index] ^= 1
    store.values[KEY] = bytes(value)

    assert (await backend.get(KEY), events) == (None, ["changed"])


async def test_tag_depends_on_secret_and_key() -> None:
    store, events = Open(), list[str]()
    backend = CacheBackend(store, SECRET, lambda: events.append("changed"))
    CacheBackend(store, b"x" * 32, lambda: None).save(KEY, b"forged", 60)
    backend.save(OTHER_KEY, b"another answer", 60)

    assert await backend.get(KEY) is None
    store.values[KEY] = store.values[OTHER_KEY]
    assert await backend.get(KEY) is None
    store.values[KEY] = b""
    assert await backend.get(KEY) is None
    assert events == ["changed"] * 3


async def test_store_that_ends_with_its_process_has_no_tag() -> None:
    store = Open()
    backend = CacheBackend(store, SECRET)
    backend.save(KEY, b"an answer", 60)

    assert store.values == {KEY: b"an answer"}
    assert (await backend.get(KEY), await backend.get(OTHER_KEY)) == (b"an answer", None)


@pytest.mark.parametrize("changed", [None, lambda: None], ids=["own", "where-others-write"])
def test_memory_store_is_own(changed: Callable[[], None] | None) -> None:
    assert CacheBackend(Open(), SECRET, changed).is_in_process == (changed is None)


KINDS = ("memory", "sqlite", "redis", "cluster")
BINARY_KEY = b"\0\n'\xff" * 8
ROOM = 1_000_000


@asynccontextmanager
async def open_store(
    kind: str, folder: Path, clock: Clock, events: StoreEventLog, room: int = ROOM
) -> AsyncIterator[AnswerStore]:
    if kind == "memory":
        async with MemoryAnswerStore(room, clock, events) as memory:
            yield memory
    elif kind == "sqlite":
        async with SqliteAnswerStore(
            folder / "cache.db", room, clock, events, events.replaced, events.write_errors.append
        ) as sqlite:
            yield sqlite
    else:
        with running_server(folder) if kind == "redis" else running_cluster(folder) as server:
            async with RedisAnswerStore(
                create_client(server.at.urls, 2, cluster=server.at.cluster), clock, events
            ) as redis:
                yield redis


async def wait_until_written(store: AnswerStore) -> None:
    """Wait until all values are written, so that reads reach the store."""
    if isinstance(store, SqliteAnswerStore | RedisAnswerStore):
        await flush(store)


@pytest.fixture(params=KINDS)
async def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_last_stored_value_is_found_at_once_and_later(kind: str, tmp_path: Path) -> None:
    values = {KEY: os.urandom(70_000), BINARY_KEY: b""}
    async with open_store(kind, tmp_path, Clock(), StoreEventLog()) as store:
        store.save(KEY, b"old", 60)
        await wait_until_written(store)
        for key, value in values.items():
            store.save(key, value, 60)

        assert {key: await store.get(key) for key in values} == values
        await wait_until_written(store)
        assert {key: await store.get(key) for key in values} == values
        assert await store.get(b"x" * 32) is None


async def test_value_expires_after_its_ttl(kind: str, tmp_path: Path) -> None:
    clock = Clock()
    async with open_store(kind, tmp_path, clock, StoreEventLog()) as store:
        store.save(KEY, b"short", 0.1)
        store.save(BINARY_KEY, b"long", 60)
        await wait_until_written(store)
        clock.now += 0.1

        async def is_gone() -> bool:  # Redis has its own clock
            return await store.get(KEY) is None

        await until(is_gone)
        assert await store.get(BINARY_KEY) == b"long"


async def test_cancelled_callers_mix_up_no_values(kind: str, tmp_path: Path) -> None:
    values = {bytes([n]) * 32: bytes([n]) * 1000 for n in range(50)}

    async def ask(store: AnswerStore, key: bytes) -> bool:
        asking = asyncio.gather(store.get(key))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        return await store.get(key) in (values[key], None)

    async with open_store(kind, tmp_path, Clock(), StoreEventLog()) as store:
        for key, value in values.items():
            store.save(key, value, 60)
        await wait_until_written(store)
        if kind == "memory":
            return  # it responds before a caller can be cancelled

        assert all(await asyncio.gather(*(ask(store, key) for key in values)))


@pytest.mark.parametrize("bounded", ["memory", "sqlite"])
async def test_least_recently_used_entry_is_evicted(bounded: str, tmp_path: Path) -> None:
    clock, events = Clock(), StoreEventLog()
    async with open_store(bounded, tmp_path, clock, events) as store:
        store.save(KEY, os.urandom(10_000), 600)
        for number in range(300):
            clock.now += 1
            store.save(number.to_bytes(32, "big"), os.urandom(10_000), 600)
            if number % 20 == 0:
                assert await store.get(KEY) is not None
                await used(store)
        await wait_until_written(store)

        assert await store.get(KEY) is not None
        assert await store.get((0).to_bytes(32, "big")) is None
        assert await store.get((299).to_bytes(32, "big")) is not None
    assert 0 < events.size <= ROOM
    assert events.evictions["full"] == 301 - events.entries


async def used(store: AnswerStore) -> None:
    """Flush the usage times of a store that writes later."""
    await wait_until_written(store)
    if isinstance(store, SqliteAnswerStore):
        store._start_write()


@pytest.mark.parametrize("bounded", ["memory", "sqlite"])
async def test_value_larger_than_store_is_dropped(bounded: str, tmp_path: Path) -> None:
    events = StoreEventLog()
    async with open_store(bounded, tmp_path, Clock(), events) as store:
        store.save(KEY, b"small", 60)
        store.save(BINARY_KEY, b"x" * ROOM, 60)

        assert await store.get(BINARY_KEY) is None
        assert await store.get(KEY) == b"small"
    assert events.evictions["dropped"] == 1


@pytest.mark.parametrize(("kind", "fitting"), [("sqlite", 9), ("redis", 10)])
async def test_drops_beyond_pending_bytes(kind: str, fitting: int, tmp_path: Path) -> None:
    """Each row of SQLite has more bytes than its value."""
    events = StoreEventLog()
    room = 10 * MAX_PENDING_BYTES
    async with open_store(kind, tmp_path, Clock(), events, room) as store:
        for number in range(20):
            store.save(number.to_bytes(32, "big"), bytes(MAX_PENDING_BYTES // 10), 60)
        await wait_until_written(store)

    assert events.evictions["dropped"] == 20 - fitting


SCRIPT = """
import os, random, time
from pathlib import Path
from proxy.cache.memory import MemoryAnswerStore
from tests.cache.stores import StoreEventLog

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

low, high, count, room = LIMITS
noise, draw, events = os.urandom(high), random.Random(1), StoreEventLog()
before, most, store = resident(), 0, MemoryAnswerStore(room, time.monotonic, events)
for number in range(count):
    size = draw.randint(low, high)
    store.save(number.to_bytes(32, "big"), bytes(memoryview(noise)[:size]), 600)
    if number % 500 == 0:
        most = max(most, resident() - before)
print(most, events.size, room)
"""


def measure(*limits: int) -> tuple[int, int, int]:
    """Fill a store in a separate process. Return memory growth, reported size and bound."""
    script = SCRIPT.replace("LIMITS", repr(limits))
    command = [sys.executable, "-c", script]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, reported, allowed = map(int, process.stdout.split())
    return peak, reported, allowed


@pytest.mark.parametrize(
    "sizes",
    [(100, 300, 300_000), (20_000, 400_000, 20_000), (102_400, 102_400, 100_000)],
    ids=["small", "mixed", "large"],
)
def test_memory_stays_within_the_bound(sizes: tuple[int, int, int]) -> None:
    peak, reported, allowed = measure(*sizes, 64 * 1024 * 1024)

    assert allowed / 2 < reported <= allowed
    assert peak <= allowed * 1.1


async def test_expiry_is_reported_on_read() -> None:
    clock, events = Clock(), StoreEventLog()
    async with MemoryAnswerStore(10_000, clock, events) as store:
        store.save(b"k" * 32, b"value", 10)
        clock.now += 10

        assert await store.get(b"k" * 32) is None
    assert (events.evictions["expired"], events.entries, events.size) == (1, 0, 0)


def test_new_file_is_private_and_has_the_application_id(tmp_path: Path) -> None:
    file = tmp_path / "cache.db"

    open_file(file).close()
    database = open_file(file)
    database.execute("UPDATE held SET size = 0")

    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    database.close()
    assert file.read_bytes()[68:72] == b"HdCa"


def test_file_without_application_id_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "cache.db"
    database = open_file(file)
    database.executescript("PRAGMA application_id = 0; PRAGMA user_version = 0;")
    database.execute("INSERT INTO answers VALUES (x'00', x'01', 9, 2e9, 0)")
    database.close()

    database = open_file(file)

    assert database.execute("SELECT entries, size FROM held").fetchone() == (1, 9)
    assert database.execute("PRAGMA application_id").fetchone() != (0,)
    database.close()


def test_other_file_is_foreign(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("not ours\n")

    with pytest.raises(ForeignFile, match="not a SQLite database"):
        open_file(notes)
    assert notes.read_text() == "not ours\n"


def test_damaged_file_is_renamed_with_its_log(tmp_path: Path) -> None:
    file = tmp_path / "cache.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").write_text(suffix)

    path = rename_damaged_file(file)

    assert get_file_identity(file) is None
    assert get_file_identity(path) is not None
    names = {item.name for item in tmp_path.iterdir()}
    assert names == {"cache.db.damaged", "cache.db.damaged-wal"}
