"""``make growth``: how the cost of a call grows with what there is, one thing at a time.

For each, proxies with little and with much of it run side by side and take turns; what the first
of them costs is the unit, so that a machine that is slower for a while makes no growth.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench import calls, machine, pictures, results
from bench.axes import AXES, KEPT, Axis
from bench.rounds import Bench, Measured
from bench.targets import headrace
from proxy.cache.memory import ENTRY_BYTES, Memory
from proxy.cache.store import EvictionReason

WARM_CALLS = 20
LOOKED = 20_000
VALUE = os.urandom(300)  # a kept answer of a kilobyte, compressed
HOUR_S = 3600.0


class Ignored:
    """What a store tells, and nobody wants to know here."""

    def set_cache_size(self, store: str, entries: int, size: int) -> None: ...

    def evicted(self, reason: EvictionReason, count: int) -> None: ...

    def failed(self, store: str) -> None: ...


async def measured(axis: Axis, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the microseconds of a call by round for each size, and for each of the parts."""
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(folder, opened)
        running: list[tuple[str, int, Measured]] = []
        for parts in axis.parts:
            for size in axis.sizes:
                target = headrace(f"{parts} {size:,}", parts, axis.policies(size))
                one = await bench.start(target, axis.upstream(size))
                running.append((parts, size, one))
        for _, size, one in running:
            await bench.warm(one, axis.scenario(size), WARM_CALLS)
        for _ in range(rounds):
            for _, size, one in running:
                scenario = axis.scenario(size)
                await bench.measure(one, "growth", scenario, seconds, axis.total(size))
        found: dict[str, Any] = {parts: {} for parts in axis.parts}
        for parts, size, one in running:
            found[parts][str(size)] = one.rounds["growth"]["cpu_us"]
        return found


async def functions(axis: Axis) -> dict[str, Any]:
    """Return how many functions a call runs for each size, and for each of the parts."""
    found: dict[str, Any] = {}
    for parts in axis.parts:
        for size in axis.sizes:
            rooms = (await calls.counted(parts, axis.policies(size))).loop.by_room()
            found.setdefault(parts, {})[str(size)] = sum(
                count for room, count in rooms.items() if room not in calls.LIBRARIES
            )
    return found


def kept(rounds: int) -> dict[str, Any]:
    """Return the microseconds of a look-up and of keeping another answer, for stores that have so
    many: the oldest goes for each that is kept."""
    found: dict[str, Any] = {"hit": {}, "kept": {}}
    for size in KEPT:
        names = [os.urandom(32) for _ in range(size)]
        store = Memory(size * (ENTRY_BYTES + len(VALUE) * 9 // 8), time.monotonic, Ignored())
        for name in names:
            store.put(name, VALUE, HOUR_S)
        asked = sorted(names)[:: max(1, size // LOOKED)]  # not in the order of memory
        for _ in range(rounds):
            begun = time.process_time()
            for name in asked:
                _now(store.get(name))
            spent = time.process_time() - begun
            found["hit"].setdefault(str(size), []).append(spent / len(asked) * 1e6)
        for _ in range(rounds):
            fresh = [os.urandom(32) for _ in range(LOOKED)]
            begun = time.process_time()
            for name in fresh:
                store.put(name, VALUE, HOUR_S)
            spent = time.process_time() - begun
            found["kept"].setdefault(str(size), []).append(spent / len(fresh) * 1e6)
    return found


def _now(work: Coroutine[Any, Any, bytes | None]) -> bytes | None:
    """Return what a coroutine comes to that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return bytes(end.value) if end.value is not None else None
    raise RuntimeError("it waits")


async def main(chosen: argparse.Namespace) -> None:
    """Measure what is chosen, and keep it beside what was measured of the others before."""
    before = dict(results.read(chosen.out)) if chosen.out.exists() else {}
    growth = dict(before.get("growth", {}))
    now = results.begun(rounds=chosen.rounds, seconds=chosen.seconds)
    for name in chosen.axes:
        if name == "cached":
            growth[name] = {"cost": kept(chosen.rounds)}
        else:
            axis = AXES[name]
            growth[name] = {"cost": await measured(axis, chosen.rounds, chosen.seconds)}
            if axis.counted:
                growth[name]["functions"] = await functions(axis)
        results.write(chosen.out, {**now, "growth": growth})
    print("\n".join(pictures.table({**now, "growth": growth})))


def arguments() -> argparse.Namespace:
    every = [*AXES, "cached"]
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("axes", nargs="*", default=every, help=", ".join(every))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--out", type=Path, default=results.GROWTH, help="where results go")
    return parser.parse_args()


if __name__ == "__main__":
    print(machine.warning(), end="", file=sys.stderr)
    asyncio.run(main(arguments()))
