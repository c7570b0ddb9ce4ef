"""``make bench``: what a call through Headrace costs, beside a bare relay and nginx.

The processor time of all threads of the program under test is the figure to trust, and only
ratios within one run mean anything. ``python -m bench --help`` says how to run a part of it.
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
from bench import machine, results, table
from bench.load import Failed
from bench.processes import compile_modules
from bench.rounds import CONNECTIONS, RATE, SCENARIOS, Bench, Measured, in_turn
from bench.targets import TARGETS, Target
from bench.upstream import CHUNKS, GAP_MS

WHOLE = ("closed", "closed, 10 KB", "stream", "open")
PLAN: dict[str, tuple[str, ...]] = {
    "direct": ("open",),
    "relay": WHOLE,
    "nginx": WHOLE,
    "bare": WHOLE,
    "limits": ("closed",),
    "guards": ("closed", "stream"),
    "cache": ("hits",),
    "mid": ("closed",),
    "everything": WHOLE,
    "TensorZero": ("closed",),
    "Portkey": ("closed",),
    "LiteLLM": ("closed",),
}
"""What each target is measured in."""


async def started(bench: Bench, target: Target, scenarios: list[str]) -> list[Measured]:
    """Return a target that runs and is warm; none where a peer does not do what it should."""
    try:
        running = await bench.start(target)
        for name in scenarios:
            await bench.warm(running, SCENARIOS[name])
    except (Failed, RuntimeError) as error:
        if not target.peer:
            raise
        print(f"{target.name} is left out: {error}", file=sys.stderr)
        return []
    return [running]


async def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    """Start the targets that are found, measure them in turn, and return what that gave."""
    kept = results.begun(
        rounds=chosen.rounds,
        seconds=chosen.seconds,
        connections=CONNECTIONS,
        rate=RATE,
        chunks=CHUNKS,
        gap_ms=GAP_MS,
    )
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(folder, opened)
        plan: list[tuple[Measured, list[str]]] = []
        for name, scenarios in PLAN.items():
            target = TARGETS[name]
            wanted = [each for each in scenarios if each in chosen.scenarios]
            if name in chosen.targets and wanted and target.is_found():
                plan += [(one, wanted) for one in await started(bench, target, wanted)]
        await in_turn(bench, plan, chosen.rounds, chosen.seconds)
        running = {each.target.name: each for each, _ in plan}
        kept["processes"] = {
            name: {"ready_s": one.program.ready_s, "rest_mb": one.rest_mb, "load_mb": one.load_mb}
            for name, one in running.items()
            if one.program is not None
        }
        kept["rounds"] = {name: one.rounds for name, one in running.items()}
    return kept


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    parser.add_argument("--targets", nargs="+", default=list(PLAN), choices=list(PLAN))
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument("--out", type=Path, default=results.CALLS, help="where results go")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    print(machine.warning(), end="", file=sys.stderr)
    compile_modules(Path(__file__).parent, Path(proxy.__file__).parent)
    found = asyncio.run(measured(chosen))
    results.write(chosen.out, found)
    for rows in (table.lookback, table.calls, table.streams, table.latency, table.processes):
        print("\n".join(rows(found)), end="\n\n")


if __name__ == "__main__":
    main()
