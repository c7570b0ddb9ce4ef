"""``make profile``: where the time of a call goes, by room and by function, under load.

The proxy runs in this process under Python's own profiler, which makes each function dearer by a
half: shares mean something, and sums do not. ``--out FILE`` keeps what other programs draw.
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
from bench.calls import room_of, settings
from bench.load import Job
from bench.policies import NO_MORE
from bench.processes import serving
from bench.rounds import CONNECTIONS, SCENARIOS
from proxy import app

WARM = 200
LEAST = 0.002  # of the whole: a room with less is not shown


async def profiled(parts: str, scenario: str, calls: int) -> cProfile.Profile:
    """Return the profile of the event loop's thread over so many calls."""
    asked, profile = SCENARIOS[scenario], cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        async with serving("bench.upstream") as upstream, serving("bench.collector") as collector:
            chosen = settings(Path(folder), parts, NO_MORE, upstream, collector)
            log = os.open(os.devnull, os.O_WRONLY)
            async with app.running(chosen, log_fd=log) as running:
                for first, total in ((0, WARM), (WARM, calls)):
                    job = Job(
                        port=running.listen.port,
                        size=asked.size,
                        stream=asked.stream,
                        seed=None if asked.same else first,
                        total=total,
                        connections=CONNECTIONS,
                    )
                    if first:
                        profile.enable()
                    await load.run(job)
                profile.disable()
            os.close(log)
    return profile


def rooms(times: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the seconds by room, from those by file; what C does has none."""
    found: dict[str, float] = defaultdict(float)
    for file, seconds in times:
        found[room_of(file) if file else "built in"] += seconds
    return dict(sorted(found.items(), key=lambda room: -room[1]))


def report(profile: cProfile.Profile, shown: int) -> None:
    """Print the share of each room, and the functions that take most by themselves."""
    entries = profile.getstats()
    files = [getattr(entry.code, "co_filename", "") for entry in entries]
    times = [entry.inlinetime for entry in entries]
    for room, seconds in rooms(zip(files, times, strict=True)).items():
        if seconds > LEAST * sum(times):
            print(f"{seconds / sum(times):7.1%} {room}")
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(shown)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profiling", description=__doc__)
    parser.add_argument("parts", nargs="?", default="everything", choices=list(policies.PARTS))
    parser.add_argument("--scenario", default="closed", choices=list(SCENARIOS))
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--shown", type=int, default=40, help="how many functions are shown")
    parser.add_argument("--out", type=Path, help="where the profile is kept, in pstats' form")
    chosen = parser.parse_args()
    profile = uvloop.run(profiled(chosen.parts, chosen.scenario, chosen.calls))
    if chosen.out:
        profile.dump_stats(chosen.out)
    report(profile, chosen.shown)


if __name__ == "__main__":
    main()
