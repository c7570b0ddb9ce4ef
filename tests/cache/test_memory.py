"""The store in memory: what it takes of the machine."""

from __future__ import annotations

import subprocess
import sys

from proxy.cache.memory import Memory
from tests.cache.stores import Clock, Told

SCRIPT = """
import os, random, time
from pathlib import Path
from proxy.cache.memory import Memory
from tests.cache.stores import Told

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

low, high, count, room = LIMITS
noise, draw, told = os.urandom(high), random.Random(1), Told()
before, most, store = resident(), 0, Memory(room, time.monotonic, told)
for number in range(count):
    size = draw.randint(low, high)
    store.put(number.to_bytes(32, "big"), bytes(memoryview(noise)[:size]), 600)
    if number % 500 == 0:
        most = max(most, resident() - before)
print(most, told.size, room)
"""


def taken(*limits: int) -> tuple[int, int, int]:
    """Fill a store in a process of its own; give its growth, what it says, and its bound."""
    script = SCRIPT.replace("LIMITS", repr(limits))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    most, said, room = map(int, done.stdout.split())
    return most, said, room


def test_a_hundred_thousand_large_answers_stay_within_the_bound() -> None:
    most, said, room = taken(100 * 1024, 100 * 1024, 100_000, 64 * 1024 * 1024)

    assert said <= room
    assert most <= room * 1.1


def test_answers_of_all_sizes_stay_within_the_bound_too() -> None:
    for low, high in ((100, 300), (20_000, 400_000)):
        most, said, room = taken(low, high, 20_000 if high > 1000 else 300_000, 64 * 1024 * 1024)

        assert room / 2 < said <= room
        assert most <= room * 1.1


async def test_what_has_expired_is_told_when_it_is_asked_for() -> None:
    clock, told = Clock(), Told()
    async with Memory(10_000, clock, told) as store:
        store.put(b"k" * 32, b"value", 10)
        clock.now += 10

        assert await store.get(b"k" * 32) is None
    assert (told.gone["expired"], told.entries, told.size) == (1, 0, 0)
