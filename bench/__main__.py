"""``make bench``: cost of a call through Headrace, compared with a bare relay and nginx.

CPU time is the reliable figure, and only ratios within one run are comparable.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import proxy
from bench import results, table
from bench.load import CallFailed
from bench.processes import compile_modules
from bench.rounds import CONNECTIONS, RATE, SCENARIOS, Bench, RunningTarget, measure_rounds
from bench.targets import TARGETS
from bench.upstream import CHUNKS, GAP_MS

ALL_BUT_HITS = ("closed", "closed, 10 KB", "stream", "open")
PLAN: dict[str, tuple[str, ...]] = {
    "direct": ("open",),
    "relay": ALL_BUT_HITS,
    "nginx": ALL_BUT_HITS,
    "bare": ALL_BUT_HITS,
    "limits": ("closed",),
    "guards": ("closed", "stream"),
    "cache": ("hits",),
    "mid": ("closed",),
    "everything": ALL_BUT_HITS,
    "TensorZero": ("closed",),
    "Portkey": ("closed",),
    "LiteLLM": ("closed",),
}
"""Scenarios per target."""


async def start_targets(
    bench: Bench, options: argparse.Namespace
) -> list[tuple[RunningTarget, list[str]]]:
    """Start and warm up the installed targets. A gateway that fails is left out."""
    plan: list[tuple[RunningTarget, list[str]]] = []
    for name in options.targets:
        target = TARGETS[name]
        scenarios = [scenario for scenario in PLAN[name] if scenario in options.scenarios]
        if not scenarios or not target.is_installed():
            continue
        try:
            running = await bench.start(target)
            for scenario in scenarios:
                await bench.warm(running, SCENARIOS[scenario])
        except (CallFailed, RuntimeError) as error:
            if not target.is_peer:
                raise
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        plan.append((running, scenarios))
    return plan


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    measured = results.new_results(
        rounds=options.rounds,
        seconds=options.seconds,
        connections=CONNECTIONS,
        rate=RATE,
        chunks=CHUNKS,
        gap_ms=GAP_MS,
    )
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(folder, stack)
        plan = await start_targets(bench, options)
        await measure_rounds(bench, plan, options.rounds, options.seconds)
        targets = {running.target.name: running for running, _ in plan}
        measured["processes"] = {
            name: {
                "ready_s": running.program.ready_s,
                "rest_mb": running.rest_mb,
                "load_mb": running.load_mb,
            }
            for name, running in targets.items()
            if running.program is not None
        }
        measured["rounds"] = {name: running.rounds for name, running in targets.items()}
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="duration of a turn")
    parser.add_argument("--targets", nargs="+", default=list(PLAN), choices=list(PLAN))
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument("--out", type=Path, default=results.CALLS, help="file for the results")
    options = parser.parse_args()
    print(results.load_warning(), end="", file=sys.stderr)
    compile_modules(Path(__file__).parent, Path(proxy.__file__).parent)
    measured = asyncio.run(measure(options))
    results.write(options.out, measured)
    for rows in (table.goals, table.calls, table.streams, table.latency, table.processes):
        print("\n".join(rows(measured)), end="\n\n")


if __name__ == "__main__":
    main()
