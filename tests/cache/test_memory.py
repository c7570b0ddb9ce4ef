"""The store in memory: what it takes of the machine."""

from __future__ import annotations

import subprocess
import sys

from proxy.cache.memory import Memory
from tests.cache.stores import Clock, StoreEventLog

SCRIPT = """
import os, random, time
from pathlib import Path
from proxy.cache.memory import Memory
from tests.cache.stores import StoreEventLog

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

low, high, count, room = LIMITS
noise, draw, events = os.urandom(high), random.Random(1), StoreEventLog()
before, most, store = resident(), 0, Memory(room, time.monotonic, events)
for number in range(count):
    size = draw.randint(low, high)
    store.put(number.to_bytes(32, "big"), bytes(memoryview(noise)[:size]), 600)
    if number % 500 == 0:
        most = max(most, resident() - before)
print(most, events.size, room)
"""


def measure(*limits: int) -> tuple[int, int, int]:
    """Fill a store in a process of its own; give its growth, what it says, and its bound."""
    script = SCRIPT.replace("LIMITS", repr(limits))
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    peak, reported, allowed = map(int, process.stdout.split())
    return peak, reported, allowed


def test_large_responses_stay_within_the_bound() -> None:
    peak, reported, allowed = measure(100 * 1024, 100 * 1024, 100_000, 64 * 1024 * 1024)

    assert reported <= allowed
    assert peak <= allowed * 1.1


def test_responses_of_all_sizes_stay_within_the_bound() -> None:
    for low, high in ((100, 300), (20_000, 400_000)):
        peak, reported, allowed = measure(
            low, high, 20_000 if high > 1000 else 300_000, 64 * 1024 * 1024
        )

        assert allowed / 2 < reported <= allowed
        assert peak <= allowed * 1.1


async def test_expiry_is_reported_on_read() -> None:
    clock, events = Clock(), StoreEventLog()
    async with Memory(10_000, clock, events) as store:
        store.put(b"k" * 32, b"value", 10)
        clock.now += 10

        assert await store.get(b"k" * 32) is None
    assert (events.evictions["expired"], events.entries, events.size) == (1, 0, 0)
