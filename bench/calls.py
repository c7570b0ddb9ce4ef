"""Counts the functions that one call runs, by package: the same number on every machine.

The proxy runs in this process; client, upstream and collector are processes of their own. Counted
are the events of Python's profiler: a Python function that is entered, a coroutine that resumes and
a C function that Python calls. ``python -m bench.calls --write`` writes ``budget.json``, which a
test enforces. ``bench.instructions`` counts the chunks of streams.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

import proxy
from bench import load, policies
from bench.load import Job
from bench.policies import NO_EXTRAS, Sizes
from bench.processes import serving
from proxy import app
from proxy.runtime.otel_settings import OtelSettings
from proxy.settings import Address, LedgerLocation, Settings

WARM_UP_CALLS, CALLS, MAX_LINES = 50, 100, 400
SETTLE_S = 0.5  # until telemetry of earlier calls is written
SLACK = 3  # functions, beside 5 %: the event loop does not run the same rounds each time
RETRIES = 4  # of a package over its budget
CACHE_HIT = "hit"
BUDGETED = ("bare", "everything", CACHE_HIT)
BUDGET = Path(__file__).parent / "budget.json"
LIBRARIES = ("aiohttp", "asyncio", "opentelemetry", "other")
PACKAGE = Path(proxy.__file__).parent


class CallCounter:
    """A profiler function that counts the functions of one thread by file and by name."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.by_file: Counter[str] = Counter()
        self.by_function: Counter[tuple[str, str]] = Counter()
        self.enabled = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.enabled and event in ("call", "c_call"):
            code = frame.f_code
            self.by_file[code.co_filename] += 1
            self.by_function[code.co_filename, code.co_qualname] += 1

    def by_package(self) -> dict[str, float]:
        """Return the functions per call, by package of the proxy or library."""
        packages: Counter[str] = Counter()
        for name, count in self.by_file.items():
            packages[package_of(name)] += count
        return {name: count / self.calls for name, count in sorted(packages.items())}


def package_of(file: str) -> str:
    """Return the package or top-level module of the proxy that holds a file, or its library."""
    path = Path(file)
    if path.is_relative_to(PACKAGE):
        return path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return next((library for library in LIBRARIES if f"/{library}/" in file), "other")


@dataclass(frozen=True)
class Counts:
    """The functions of a call in the event loop's thread, and in all other threads."""

    loop: CallCounter
    threads: CallCounter


async def count_functions(name: str, sizes: Sizes = NO_EXTRAS) -> Counts:
    """Count the functions of a warm call with the policy of this name, or of a cache hit."""
    counts = Counts(CallCounter(CALLS), CallCounter(CALLS))
    # A hit repeats the calls of the warm-up.
    policy, warm_up, first_seed = (
        ("cache", CALLS, 0) if name == CACHE_HIT else (name, WARM_UP_CALLS, WARM_UP_CALLS)
    )
    threading.setprofile(counts.threads)
    try:
        async with serving("bench.upstream") as upstream, serving("bench.collector") as collector:
            with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as log:  # noqa: ASYNC230
                options = settings(Path(folder), policy, sizes, upstream, collector)
                async with app.run_proxy(options, log_fd=log.fileno()) as running:
                    await _send(running.listen.port, 0, warm_up)
                    await asyncio.sleep(SETTLE_S)
                    counts.loop.enabled = counts.threads.enabled = True
                    sys.setprofile(counts.loop)
                    await _send(running.listen.port, first_seed, CALLS)
                    await asyncio.sleep(SETTLE_S)
                    sys.setprofile(None)
                    counts.loop.enabled = counts.threads.enabled = False
    finally:
        threading.setprofile(None)
    return counts


async def _send(port: int, first_seed: int, total: int) -> None:
    await load.run(Job(port=port, seed=first_seed, total=total, plain=True, connections=1))


def settings(folder: Path, policy: str, sizes: Sizes, upstream: int, collector: int) -> Settings:
    """Return the settings of a proxy in this process that runs the policy of this name."""
    (folder / "policies").mkdir()
    policies.write(folder / "policies", policy, upstream, sizes)
    listen = Address("127.0.0.1", 0)
    if policy not in policies.EXPORTING:
        return Settings(folder / "policies", listen=listen, admin=listen)
    return Settings(
        folder / "policies",
        listen=listen,
        admin=listen,
        otlp_endpoint=f"http://127.0.0.1:{collector}",
        otel=OtelSettings(("otlp_proto_http",), "always_on"),
        ledger=LedgerLocation("sqlite", folder / "ledger.db"),
    )


def budget_of(name: str) -> Mapping[str, int]:
    """Return how many functions of each package a call of this kind may run."""
    budget: Mapping[str, int] = json.loads(BUDGET.read_text())[name]
    return budget


async def packages_over_budget(name: str) -> list[str]:
    """Return a sentence for each package over its budget in every one of ``1 + RETRIES`` counts.

    A busy machine wakes coroutines more often, so one count alone may be too high.
    """
    budget = budget_of(name)
    lowest: dict[str, float] = {}
    sentences: list[str] = []
    for _ in range(1 + RETRIES):
        packages = (await count_functions(name)).loop.by_package()
        lowest = {key: min(count, lowest.get(key, count)) for key, count in packages.items()}
        sentences = [
            f"{package} runs {count:.1f} functions, budget {budget.get(package, 0)}"
            for package, count in lowest.items()
            if package not in LIBRARIES and count > 1.05 * budget.get(package, 0) + SLACK
        ]
        if not sentences:
            break
    return sentences


async def write_budget() -> None:
    """Write today's counts as the budget."""
    budget = json.loads(BUDGET.read_text())
    for name in BUDGETED:
        packages = (await count_functions(name)).loop.by_package()
        budget[name] = {
            package: ceil(count) for package, count in packages.items() if package not in LIBRARIES
        }
    BUDGET.write_text(json.dumps(budget, indent=2) + "\n")


async def main() -> None:
    """Print the functions of each kind of call by package, and of named kinds one by one."""
    for name in sys.argv[1:] or (*policies.PARTS, CACHE_HIT):
        counts = await count_functions(name)
        for thread, counter in (("loop", counts.loop), ("threads", counts.threads)):
            packages = counter.by_package()
            listed = ", ".join(
                f"{key} {count:.0f}" for key, count in packages.items() if count >= 1
            )
            print(f"{name}, {thread}: {sum(packages.values()):.0f} a call ({listed})")
        if len(sys.argv) > 1:
            for (file, function), count in counts.loop.by_function.most_common(MAX_LINES):
                place = file.rpartition("site-packages/")[2].removeprefix(f"{PACKAGE}/")
                print(f"{count / CALLS:8.2f} {place}:{function}")


if __name__ == "__main__":
    uvloop.run(write_budget() if sys.argv[1:] == ["--write"] else main())
