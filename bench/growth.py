"""``make growth``: growth of the cost of a call with one quantity at a time.

Proxies with all sizes of a quantity run side by side and take turns. Costs are compared with the
smallest size, so that changes in machine speed do not look like growth.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench import calls, pictures, results
from bench.axes import AXES, CACHE_ENTRIES, Axis
from bench.rounds import Bench, RunningTarget
from bench.targets import headrace
from proxy.cache.memory import ENTRY_BYTES, MemoryAnswerStore
from proxy.cache.store import EvictionReason

WARM_CALLS = 20
CACHE_OPERATIONS = 20_000
VALUE = os.urandom(300)  # a compressed response of 1 KB
TTL_S = 3600.0


class IgnoredEvents:
    """Discards the events of a cache store."""

    def set_cache_size(self, store: str, entries: int, size: int) -> None: ...

    def count_cache_evictions(self, reason: EvictionReason, count: int) -> None: ...

    def count_cache_failure(self, store: str) -> None: ...


async def measure(axis: Axis, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the CPU microseconds of a call by feature set, size and round."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(folder, stack)
        targets: list[tuple[str, int, RunningTarget]] = []
        for parts in axis.parts:
            for size in axis.sizes:
                target = headrace(f"{parts} {size:,}", parts, axis.policies(size))
                running = await bench.start(target, axis.upstream(size))
                targets.append((parts, size, running))
        for _, size, running in targets:
            await bench.warm(running, axis.scenario(size), WARM_CALLS)
        for _ in range(rounds):
            for _, size, running in targets:
                scenario = axis.scenario(size)
                await bench.measure(running, "growth", scenario, seconds, axis.total(size))
        costs: dict[str, Any] = {parts: {} for parts in axis.parts}
        for parts, size, running in targets:
            costs[parts][str(size)] = running.rounds["growth"]["cpu_us"]
        return costs


async def count_functions(axis: Axis) -> dict[str, Any]:
    """Return the functions of the proxy that a call runs, by feature set and size."""
    totals: dict[str, Any] = {}
    for parts in axis.parts:
        for size in axis.sizes:
            counts = (await calls.count_functions(parts, axis.policies(size))).loop.by_package()
            totals.setdefault(parts, {})[str(size)] = sum(
                count for package, count in counts.items() if package not in calls.LIBRARIES
            )
    return totals


async def measure_cache(rounds: int) -> dict[str, Any]:
    """Return the CPU microseconds of a lookup and of an insertion into a full cache."""
    costs: dict[str, dict[str, list[float]]] = {"hit": {}, "kept": {}}
    for size in CACHE_ENTRIES:
        keys = [os.urandom(32) for _ in range(size)]
        store = MemoryAnswerStore(
            size * (ENTRY_BYTES + len(VALUE) * 9 // 8), time.monotonic, IgnoredEvents()
        )
        for key in keys:
            store.save(key, VALUE, TTL_S)
        lookups = sorted(keys)[:: max(1, size // CACHE_OPERATIONS)]  # not in the order of memory
        costs["hit"][str(size)] = []
        for _ in range(rounds):
            started_at = time.process_time()
            for key in lookups:
                await store.get(key)
            costs["hit"][str(size)].append(_cpu_us(started_at, len(lookups)))
        costs["kept"][str(size)] = []
        for _ in range(rounds):
            new_keys = [os.urandom(32) for _ in range(CACHE_OPERATIONS)]
            started_at = time.process_time()
            for key in new_keys:
                store.save(key, VALUE, TTL_S)
            costs["kept"][str(size)].append(_cpu_us(started_at, CACHE_OPERATIONS))
    return costs


def _cpu_us(started_at: float, operations: int) -> float:
    return (time.process_time() - started_at) / operations * 1e6


async def main(options: argparse.Namespace) -> None:
    """Measure some quantities, and keep the stored results of the others."""
    stored = results.read(options.out) if options.out.exists() else {}
    measured = results.new_results(rounds=options.rounds, seconds=options.seconds)
    measured["growth"] = growth = dict(stored.get("growth", {}))
    for name in options.axes:
        if name == "cached":
            growth[name] = {"cost": await measure_cache(options.rounds)}
        else:
            axis = AXES[name]
            growth[name] = {"cost": await measure(axis, options.rounds, options.seconds)}
            if axis.counts_functions:
                growth[name]["functions"] = await count_functions(axis)
        results.write(options.out, measured)
    print("\n".join(pictures.table(measured)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    names = [*AXES, "cached"]
    parser.add_argument("axes", nargs="*", default=names, help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of a turn")
    parser.add_argument("--out", type=Path, default=results.GROWTH, help="file for the results")
    print(results.load_warning(), end="", file=sys.stderr)
    asyncio.run(main(parser.parse_args()))
