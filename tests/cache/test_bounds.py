"""Many large answers: a store takes no more than its bound, by its own count and the system's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from proxy.cache.sqlite import Sqlite
from tests.cache.stores import Clock, StoreEventLog

MANY, FEWER = 100_000, 2_000
BOUND = 32 * 1024 * 1024
MARGIN = 1.25  # what is freed is not given back to the system byte by byte
FILL = f"""
import asyncio
from proxy.cache.memory import Memory
from tests.cache.stores import Clock, StoreEventLog

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

async def main():
    events = StoreEventLog()
    async with Memory({BOUND}, Clock(), events) as store:
        before, taken = resident(), 0
        for number in range({MANY}):
            value = number.to_bytes(8, "big") * (256 + number * 7919 % 4096)  # 2 to 34 KiB
            store.put(number.to_bytes(32, "big"), value, 600)
            taken += len(value)
        assert await store.get(({MANY} - 1).to_bytes(32, "big")) == value
        print(events.size, events.entries, events.evictions["full"], taken, resident() - before)

asyncio.run(main())
"""


def test_memory_stays_within_its_bound() -> None:
    """In a process of its own: the peak of its resident size counts."""
    process = subprocess.run(
        [sys.executable, "-c", FILL], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    size, entries, evictions, used_bytes, grown = map(int, process.stdout.split())

    assert used_bytes > 40 * BOUND
    assert BOUND * 0.9 < size <= BOUND
    assert entries + evictions == MANY
    assert grown <= BOUND * MARGIN


def _value(number: int) -> bytes:
    return number.to_bytes(8, "big") * (256 + number * 7919 % 4096)


async def test_file_stays_within_its_bound(tmp_path: Path) -> None:
    bound, events, file = BOUND // 4, StoreEventLog(), tmp_path / "cache.db"
    async with Sqlite(
        file, bound, Clock(), events, events.replaced, events.write_errors.append
    ) as store:
        for number in range(FEWER):
            store.put(number.to_bytes(32, "big"), _value(number), 600)
            if number % 50 == 49:
                await store.written()

        assert await store.get((FEWER - 1).to_bytes(32, "big")) == _value(FEWER - 1)
        assert await store.get((0).to_bytes(32, "big")) is None

    assert events.size <= bound
    assert events.evictions["full"] + events.entries == FEWER
    assert sum(file_path.stat().st_size for file_path in tmp_path.iterdir()) <= bound * MARGIN
