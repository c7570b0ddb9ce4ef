"""``make profile``: CPU time of the event loop under load, by package and by function.

Python's profiler makes functions about half as slow again. Only shares are meaningful. ``--out
FILE`` writes the profile for other viewers.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import uvloop

from bench import load, policies
from bench.calls import package_of, settings
from bench.load import Job
from bench.policies import NO_EXTRAS
from bench.processes import serving
from bench.rounds import CONNECTIONS, SCENARIOS
from proxy import app

WARM_CALLS = 200
MIN_SHARE = 0.002


async def profile_calls(parts: str, scenario_name: str, calls: int) -> cProfile.Profile:
    """Profile the thread of the event loop over ``calls`` calls."""
    scenario, profile = SCENARIOS[scenario_name], cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        async with serving("bench.upstream") as upstream, serving("bench.collector") as collector:
            config = settings(Path(folder), parts, NO_EXTRAS, upstream, collector)
            log = os.open(os.devnull, os.O_WRONLY)
            async with app.run_proxy(config, log_fd=log) as running:
                for seed, total in ((0, WARM_CALLS), (WARM_CALLS, calls)):
                    job = Job(
                        port=running.listen.port,
                        size=scenario.size,
                        stream=scenario.stream,
                        seed=None if scenario.is_repeated else seed,
                        total=total,
                        connections=CONNECTIONS,
                    )
                    if seed:
                        profile.enable()
                    await load.run(job)
                profile.disable()
            os.close(log)
    return profile


def sum_by_package(times: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Sum the seconds per file by package, largest first. Functions in C have no file."""
    totals: dict[str, float] = defaultdict(float)
    for file, seconds in times:
        totals[package_of(file) if file else "built in"] += seconds
    return dict(sorted(totals.items(), key=lambda total: -total[1]))


def report(profile: cProfile.Profile, functions: int) -> None:
    """Print the share of each package and the ``functions`` with the most CPU time."""
    entries = profile.getstats()
    times = [(getattr(entry.code, "co_filename", ""), entry.inlinetime) for entry in entries]
    total = sum(seconds for _, seconds in times)
    for package, seconds in sum_by_package(times).items():
        if seconds > MIN_SHARE * total:
            print(f"{seconds / total:7.1%} {package}")
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(functions)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profiling", description=__doc__)
    parser.add_argument("parts", nargs="?", default="everything", choices=list(policies.PARTS))
    parser.add_argument("--scenario", default="closed", choices=list(SCENARIOS))
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--functions", type=int, default=40, help="number of printed functions")
    parser.add_argument("--out", type=Path, help="file for the profile, in pstats format")
    options = parser.parse_args()
    profile = uvloop.run(profile_calls(options.parts, options.scenario, options.calls))
    if options.out:
        profile.dump_stats(options.out)
    report(profile, options.functions)


if __name__ == "__main__":
    main()
