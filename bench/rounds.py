"""Rounds of a measurement: every target in turn, scenario by scenario, so that a machine that is
slower for a while is so for all. What does not have its turn stands still.

Each round asks the proxy itself how many of its calls were hits and misses of its cache: a client
that asks the same twice would measure another way through it than it says.
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
from bench.figures import shown
from bench.load import Job, Result
from bench.processes import BESIDE, UNDER_TEST, Program, port_in, program, serving
from bench.targets import Place, Target, placed_in
from bench.upstream import CHUNKS

CONNECTIONS, RATE = 32, 100
WARM_CALLS = 300
RESTED_S, RESUMED_S = 1.0, 0.1
SETTLED_S = 1.2  # what is told of calls waits for a second at most: it is counted with them
SEEDS = 1_000_000  # so many calls may one round have that no other has
LOOKUPS = "headrace_cache_lookups_total"


class Wrong(Exception):
    """A round that measured something else than it should have."""


@dataclass(frozen=True)
class Scenario:
    """How a target is asked. ``same`` asks one question over and over, for the cache to answer;
    ``rate`` calls a second are due in open loop, where it is not 0."""

    size: int = 1000
    stream: bool = False
    same: bool = False
    rate: float = 0
    connections: int = CONNECTIONS


SCENARIOS = {
    "closed": Scenario(),
    "closed, 10 KB": Scenario(size=10_000),
    "hits": Scenario(same=True),
    "stream": Scenario(stream=True),
    "open": Scenario(rate=RATE, connections=64),
}


@dataclass
class Measured:
    """A target that runs, and what its rounds gave: by scenario, and by figure."""

    target: Target
    place: Place
    program: Program | None
    rest_mb: float = 0.0
    load_mb: float = 0.0
    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def tell(self, number: signal.Signals) -> None:
        if self.program is not None:
            self.program.tell(number)

    def cpu_s(self) -> float:
        return self.program.cpu_s() if self.program is not None else 0.0

    def memory_mb(self) -> float:
        return self.program.memory_mb() if self.program is not None else 0.0

    def note(self, scenario: str, figures: Mapping[str, float]) -> None:
        kept = self.rounds.setdefault(scenario, {})
        for name, figure in figures.items():
            kept.setdefault(name, []).append(figure)


def lookups(exposition: str) -> Counter[str]:
    """Return the look-ups of the cache by their result, from what the admin port tells."""
    found: Counter[str] = Counter()
    for line in exposition.splitlines():
        if line.startswith(f"{LOOKUPS}{{"):
            labels, _, value = line.rpartition(" ")
            found[labels.partition('result="')[2].partition('"')[0]] += int(float(value))
    return found


def check(caches: bool, same: bool, calls: int, found: Mapping[str, int]) -> None:
    """Raise ``Wrong`` unless a cache answered all calls that it should have, and no others."""
    wanted = {("hit" if same else "miss"): calls} if caches else {}
    met = {result: number for result, number in found.items() if number}
    if met != wanted:
        raise Wrong(f"{calls} calls were to be {wanted or 'no look-ups'} of the cache, not {met}")


def figures(scenario: Scenario, result: Result, cpu_s: float) -> dict[str, float]:
    """Return what a round gave, in microseconds."""
    made = {"p50_us": result.p50, "p99_us": result.p99}
    if scenario.rate:
        return made
    if scenario.stream:
        chunks = result.calls * CHUNKS
        return {"cpu_us": cpu_s / chunks * 1e6, "first_us": result.first_p50}
    made["cpu_us"] = cpu_s / result.calls * 1e6
    made["per_second"] = result.calls / result.seconds
    return made


class Bench:
    """Starts targets, and asks them in rounds."""

    def __init__(self, folder: Path, opened: AsyncExitStack) -> None:
        self._folder = folder
        self._opened = opened
        self._seeds = count(SEEDS, SEEDS)
        self._ports: tuple[int, int] | None = None

    async def start(self, target: Target, upstream: Sequence[str] = ()) -> Measured:
        """Start a target, warm it up, and let it stand still. ``upstream`` is said to one of its
        own, where it needs that."""
        place = await self._place(target, upstream)
        if target.command is None:
            place = place._replace(port=place.upstream)
            return Measured(target, place, None)
        command = target.command(place)
        port = command.port or place.port
        started = program(
            port,
            *command.words,
            environment=command.environment,
            cores=UNDER_TEST,
            ready_s=target.ready_s,
        )
        running = await self._opened.enter_async_context(started)
        measured = Measured(target, place._replace(port=port_in(port)), running)
        await asyncio.sleep(RESTED_S)
        measured.rest_mb = measured.memory_mb()
        measured.tell(signal.SIGSTOP)
        return measured

    async def _place(self, target: Target, upstream: Sequence[str]) -> Place:
        if self._ports is None or upstream:
            enter = self._opened.enter_async_context
            own = await enter(serving("bench.upstream", *upstream, cores=BESIDE))
            collector = self._ports[1] if self._ports else 0
            collector = collector or await enter(serving("bench.collector", cores=BESIDE))
            if upstream:
                return placed_in(self._folder / f"{next(self._seeds)}", own, collector)
            self._ports = own, collector
        return placed_in(self._folder / f"{next(self._seeds)}", *self._ports)

    def _job(self, measured: Measured, scenario: Scenario, seconds: float, total: int) -> Job:
        target = measured.target
        return Job(
            port=measured.place.port,
            path=target.path,
            headers=target.headers(measured.place),
            model=target.model,
            size=scenario.size,
            stream=scenario.stream,
            seed=None if scenario.same else next(self._seeds),
            connections=scenario.connections,
            seconds=seconds,
            total=total,
            rate=0 if total else scenario.rate,
        )

    async def warm(self, measured: Measured, scenario: Scenario, calls: int = WARM_CALLS) -> None:
        """Ask a target what does not count."""
        measured.tell(signal.SIGCONT)
        if scenario.same:  # the first alone, so that it is kept before others ask
            one = Scenario(same=True, size=scenario.size, connections=1)
            await load.run(self._job(measured, one, 0, 1), BESIDE)
            await asyncio.sleep(RESUMED_S)
        await load.run(self._job(measured, scenario, 0, calls), BESIDE)
        await asyncio.sleep(SETTLED_S)
        measured.tell(signal.SIGSTOP)

    async def measure(
        self, measured: Measured, name: str, scenario: Scenario, seconds: float, total: int = 0
    ) -> None:
        """Give a target its turn, for so long or for so many calls. Raises ``Wrong`` and
        ``load.Failed``."""
        measured.tell(signal.SIGCONT)
        await asyncio.sleep(RESUMED_S)
        before, begun = await _lookups(measured), measured.cpu_s()
        result = await load.run(self._job(measured, scenario, seconds, total), BESIDE)
        await asyncio.sleep(SETTLED_S)
        spent = measured.cpu_s() - begun
        if measured.target.parts is not None:
            caches = "cache:" in policies.PARTS[measured.target.parts]
            found = await _lookups(measured)
            found.subtract(before)
            check(caches, scenario.same, result.calls, found)
        made = figures(scenario, result, spent)
        measured.note(name, made)
        measured.load_mb = max(measured.load_mb, measured.memory_mb())
        measured.tell(signal.SIGSTOP)
        told = ", ".join(f"{figure} {shown(value)}" for figure, value in made.items())
        print(f"{name:14} {measured.target.name:12} {told}", file=sys.stderr)


async def _lookups(measured: Measured) -> Counter[str]:
    if measured.target.parts is None:
        return Counter()
    url = f"http://127.0.0.1:{measured.place.admin}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return lookups(await answer.text())


async def in_turn(
    bench: Bench, plan: Iterable[tuple[Measured, Sequence[str]]], rounds: int, seconds: float
) -> None:
    """Measure each target in its scenarios, all of one scenario after each other."""
    pairs = list(plan)
    for _ in range(rounds):
        for name, scenario in SCENARIOS.items():
            for measured, names in pairs:
                if name in names:
                    await bench.measure(measured, name, scenario, seconds)
