"""Measures targets in rounds: every target takes its turn in every scenario.

Changes in machine speed therefore affect all targets. Targets that wait are stopped. After each
turn the cache lookups of Headrace are compared with the scenario, because a response from the cache
costs less than one from the upstream.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import aiohttp

from bench import load, policies
from bench.figures import format_figure
from bench.load import Job, Result
from bench.processes import OTHER_CORES, TARGET_CORES, Program, program, read_port, serving
from bench.targets import Target, Workspace, new_workspace
from bench.upstream import CHUNKS

CONNECTIONS, RATE = 32, 100
WARM_CALLS = 300
REST_S, RESUME_S = 1.0, 0.1
SETTLE_S = 1.2  # telemetry and ledger rows are written within a second
SEED_STEP = 1_000_000  # more than the requests of one turn
LOOKUPS = "headrace_cache_lookups_total"


class UnexpectedCacheUse(Exception):
    """A turn had other cache hits than its scenario."""


@dataclass(frozen=True)
class Scenario:
    """The calls of a round."""

    size: int = 1000
    stream: bool = False
    is_repeated: bool = False
    """Send equal requests, which the cache answers."""
    rate: float = 0
    """Requests per second in open loop. 0 is closed loop."""
    connections: int = CONNECTIONS


SCENARIOS = {
    "closed": Scenario(),
    "closed, 10 KB": Scenario(size=10_000),
    "hits": Scenario(is_repeated=True),
    "stream": Scenario(stream=True),
    "open": Scenario(rate=RATE, connections=64),
}


@dataclass
class RunningTarget:
    """A started target, and its figures by scenario, name and round."""

    target: Target
    workspace: Workspace
    program: Program | None
    rest_mb: float = 0.0
    load_mb: float = 0.0
    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def send_signal(self, number: signal.Signals) -> None:
        if self.program is not None:
            self.program.send_signal(number)

    def cpu_s(self) -> float:
        return self.program.cpu_s() if self.program is not None else 0.0

    def memory_mb(self) -> float:
        return self.program.memory_mb() if self.program is not None else 0.0

    async def cache_lookups(self) -> Counter[str]:
        """Return the cache lookups so far by result. Other programs than Headrace have none."""
        if self.target.parts is None:
            return Counter()
        url = f"http://127.0.0.1:{self.workspace.admin}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return parse_lookups(await response.text())


def parse_lookups(exposition: str) -> Counter[str]:
    """Return the cache lookups by result from the Prometheus exposition."""
    lookups: Counter[str] = Counter()
    for line in exposition.splitlines():
        if line.startswith(f"{LOOKUPS}{{"):
            labels, _, value = line.rpartition(" ")
            lookups[labels.partition('result="')[2].partition('"')[0]] += int(float(value))
    return lookups


def check_lookups(
    has_cache: bool, is_repeated: bool, calls: int, lookups: Mapping[str, int]
) -> None:
    """Raise ``UnexpectedCacheUse`` unless each call had the lookup result of its scenario."""
    expected = {("hit" if is_repeated else "miss"): calls} if has_cache else {}
    actual = {result: lookup_count for result, lookup_count in lookups.items() if lookup_count}
    if actual != expected:
        raise UnexpectedCacheUse(f"cache lookups of {calls} calls: {actual}, expected {expected}")


def compute_figures(scenario: Scenario, result: Result, cpu_s: float) -> dict[str, float]:
    """Return the figures of a turn. Open loop has no CPU time, because the target is idle."""
    if scenario.stream:
        chunks = result.calls * CHUNKS
        return {"cpu_us": cpu_s / chunks * 1e6, "first_us": result.first_p50}
    figures = {"p50_us": result.p50, "p99_us": result.p99}
    if not scenario.rate:
        figures["cpu_us"] = cpu_s / result.calls * 1e6
        figures["per_second"] = result.calls / result.seconds
    return figures


class Bench:
    """Starts targets, and sends load to one at a time."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._seeds = count(SEED_STEP, SEED_STEP)
        self._upstream = 0
        self._collector = 0

    async def start(self, target: Target, upstream_arguments: Sequence[str] = ()) -> RunningTarget:
        """Start a target and stop it until its turn.

        Targets share an upstream, unless ``upstream_arguments`` are given.
        """
        workspace = await self._new_workspace(upstream_arguments)
        if target.command is None:
            return RunningTarget(target, workspace._replace(port=workspace.upstream), None)
        command = target.command(workspace)
        port = command.port_file or workspace.port
        process = await self._stack.enter_async_context(
            program(
                port,
                *command.arguments,
                environment=command.environment,
                cores=TARGET_CORES,
                ready_s=target.ready_s,
            )
        )
        running = RunningTarget(target, workspace._replace(port=read_port(port)), process)
        await asyncio.sleep(REST_S)
        running.rest_mb = running.memory_mb()
        running.send_signal(signal.SIGSTOP)
        return running

    async def _new_workspace(self, upstream_arguments: Sequence[str]) -> Workspace:
        if not self._upstream:
            self._upstream = await self._serve("bench.upstream")
            self._collector = await self._serve("bench.collector")
        upstream = self._upstream
        if upstream_arguments:
            upstream = await self._serve("bench.upstream", *upstream_arguments)
        return new_workspace(self._folder / f"{next(self._seeds)}", upstream, self._collector)

    async def _serve(self, module: str, *arguments: str) -> int:
        return await self._stack.enter_async_context(serving(module, *arguments, cores=OTHER_CORES))

    def _job(self, running: RunningTarget, scenario: Scenario, seconds: float, total: int) -> Job:
        target = running.target
        return Job(
            port=running.workspace.port,
            path=target.path,
            headers=target.headers(running.workspace),
            model=target.model,
            size=scenario.size,
            stream=scenario.stream,
            seed=None if scenario.is_repeated else next(self._seeds),
            connections=scenario.connections,
            seconds=seconds,
            total=total,
            rate=0 if total else scenario.rate,
        )

    async def warm(
        self, running: RunningTarget, scenario: Scenario, calls: int = WARM_CALLS
    ) -> None:
        """Send load that is not measured."""
        running.send_signal(signal.SIGCONT)
        if scenario.is_repeated:  # one call fills the cache before concurrent calls
            single = Scenario(is_repeated=True, size=scenario.size, connections=1)
            await load.run(self._job(running, single, 0, 1), OTHER_CORES)
            await asyncio.sleep(RESUME_S)
        await load.run(self._job(running, scenario, 0, calls), OTHER_CORES)
        await asyncio.sleep(SETTLE_S)
        running.send_signal(signal.SIGSTOP)

    async def measure(
        self, running: RunningTarget, name: str, scenario: Scenario, seconds: float, total: int = 0
    ) -> None:
        """Give a target its turn for ``seconds``, or for ``total`` calls if not 0.

        Raises:
            UnexpectedCacheUse: The cache answered other calls than it should.
            CallFailed: A call was not answered.
        """
        running.send_signal(signal.SIGCONT)
        await asyncio.sleep(RESUME_S)
        lookups_before, cpu_before = await running.cache_lookups(), running.cpu_s()
        result = await load.run(self._job(running, scenario, seconds, total), OTHER_CORES)
        await asyncio.sleep(SETTLE_S)
        cpu_s = running.cpu_s() - cpu_before
        if running.target.parts is not None:
            lookups = await running.cache_lookups()
            lookups.subtract(lookups_before)
            has_cache = "cache:" in policies.PARTS[running.target.parts]
            check_lookups(has_cache, scenario.is_repeated, result.calls, lookups)
        figures = compute_figures(scenario, result, cpu_s)
        for figure, value in figures.items():
            running.rounds.setdefault(name, {}).setdefault(figure, []).append(value)
        running.load_mb = max(running.load_mb, running.memory_mb())
        running.send_signal(signal.SIGSTOP)
        row = ", ".join(f"{figure} {format_figure(value)}" for figure, value in figures.items())
        print(f"{name:14} {running.target.name:12} {row}", file=sys.stderr)


async def measure_rounds(
    bench: Bench,
    plan: Iterable[tuple[RunningTarget, Sequence[str]]],
    rounds: int,
    seconds: float,
) -> None:
    """Measure each target in its scenarios, one scenario after the other in each round."""
    pairs = list(plan)
    for _ in range(rounds):
        for name, scenario in SCENARIOS.items():
            for running, names in pairs:
                if name in names:
                    await bench.measure(running, name, scenario, seconds)
