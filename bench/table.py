"""Markdown tables of the results of ``make bench``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.figures import Spread, format_figure, overhead, ratios, spread
from bench.results import Results

RELAY, DIRECT, CACHE_HITS = "relay", "direct", "cache"
EVERYTHING, BARE, MID, GUARDS = "everything", "bare", "mid", "guards"
MAX_CPU_SHARE = 0.6
"""Share of a core for the peak load. Above it, calls queue for each other."""
STREAM_CHUNKS_PER_S = 50
NAMES = {
    "direct": "no proxy",
    "relay": "relay: aiohttp, unread",
    "nginx": "nginx",
    "bare": "Headrace, `bare`: a key, tags, a price",
    "limits": "`bare` and six limits",
    "guards": "`bare` and six guards",
    "cache": "`bare`, answered by the cache",
    "mid": "all but guards",
    "everything": "everything on",
}

Measurement = tuple[str, str]
"""A target and a scenario."""


class Rounds:
    """Figures by target, scenario and name."""

    def __init__(self, results: Results) -> None:
        self._rounds = results["rounds"]

    def get(self, measurement: Measurement, figure: str) -> Sequence[float] | None:
        """Return a figure by round, or None if it was not measured."""
        target, scenario = measurement
        figures: dict[str, Sequence[float]] = self._rounds.get(target, {}).get(scenario, {})
        return figures.get(figure)

    def targets(self, scenario: str) -> list[str]:
        return [name for name, scenarios in self._rounds.items() if scenario in scenarios]

    def ratio(self, figure: str, measurement: Measurement, base: Measurement) -> Spread | None:
        values, base_values = self.get(measurement, figure), self.get(base, figure)
        return ratios(values, base_values) if values and base_values else None


def _name(target: str) -> str:
    return NAMES.get(target, target)


def goals(results: Results) -> Iterator[str]:
    """Yield the figures that performance goals refer to."""
    yield "| relative to the relay, unless a unit is given | median and range of the rounds |"
    yield "|---|--:|"
    for name, figure in goal_figures(results):
        yield f"| {name} | {figure} |"


def goal_figures(results: Results) -> Iterator[tuple[str, str]]:
    rounds = Rounds(results)
    for name, target, scenario, base_scenario in (
        ("everything on", EVERYTHING, "closed", "closed"),
        ("no policy (`bare`)", BARE, "closed", "closed"),
        ("all but guards (`mid`)", MID, "closed", "closed"),
        ("a cache hit", CACHE_HITS, "hits", "closed"),
        ("everything on, 10 KB", EVERYTHING, "closed, 10 KB", "closed, 10 KB"),
        ("`bare`, 10 KB", BARE, "closed, 10 KB", "closed, 10 KB"),
        ("a streamed chunk, `bare`", BARE, "stream", "stream"),
        ("a streamed chunk, guards", GUARDS, "stream", "stream"),
        ("a streamed chunk, everything on", EVERYTHING, "stream", "stream"),
    ):
        ratio = rounds.ratio("cpu_us", (target, scenario), (RELAY, base_scenario))
        if ratio is not None:
            yield name, f"{ratio}"
    guards, bare, relay = (rounds.get((name, "closed"), "cpu_us") for name in (GUARDS, BARE, RELAY))
    if guards and bare and relay:
        yield "guards in addition to `bare`", f"{overhead(guards, bare, relay)}"
    yield from _latency_goals(rounds)
    for target, process in results["processes"].items():
        if target in (BARE, EVERYTHING):
            yield f"memory at rest, {target}, MB", format_figure(process["rest_mb"])
            yield f"start until listening, {target}, s", format_figure(process["ready_s"])


def _latency_goals(rounds: Rounds) -> Iterator[tuple[str, str]]:
    p50, direct, relay = (
        rounds.get((name, "open"), "p50_us") for name in (EVERYTHING, DIRECT, RELAY)
    )
    p99 = rounds.get((EVERYTHING, "open"), "p99_us")
    if p50 and direct and relay and p99:
        relay_overhead = [
            latency - direct_latency for latency, direct_latency in zip(relay, direct, strict=True)
        ]
        yield "added p50 at 100 calls per second", f"{overhead(p50, direct, relay_overhead)}"
        yield "p99 at 100 calls per second, ms", f"{spread([value / 1000 for value in p99])}"
    p99, p50 = (rounds.get((EVERYTHING, "closed"), figure) for figure in ("p99_us", "p50_us"))
    if p99 and p50:
        yield "p99 to p50 with 32 busy connections, everything on", f"{ratios(p99, p50)}"


def calls(results: Results) -> Iterator[str]:
    rounds = Rounds(results)
    yield "| target | CPU time per call, us | relative to relay | calls per second and core |"
    yield "|---|--:|--:|--:|"
    for scenario, suffix in (("closed", ""), ("hits", ""), ("closed, 10 KB", ", 10 KB")):
        base_scenario = "closed" if scenario == "hits" else scenario
        for target in rounds.targets(scenario):
            costs = rounds.get((target, scenario), "cpu_us")
            if not costs or not any(costs):
                continue
            ratio = rounds.ratio("cpu_us", (target, scenario), (RELAY, base_scenario))
            cost = spread(costs)
            per_second = format_figure(1e6 / cost.median)
            yield f"| {_name(target)}{suffix} | {cost} | {ratio or ''} | {per_second} |"


def streams(results: Results) -> Iterator[str]:
    rounds = Rounds(results)
    yield "| target | CPU time per chunk, us | relative to relay | first chunk, ms |"
    yield "|---|--:|--:|--:|"
    for target in rounds.targets("stream"):
        costs, latencies = (
            rounds.get((target, "stream"), figure) for figure in ("cpu_us", "first_us")
        )
        if costs and latencies and any(costs):
            ratio = rounds.ratio("cpu_us", (target, "stream"), (RELAY, "stream"))
            latency_ms = format_figure(spread(latencies).median / 1000)
            yield f"| {_name(target)} | {spread(costs)} | {ratio or ''} | {latency_ms} |"


def latency(results: Results) -> Iterator[str]:
    rounds = Rounds(results)
    yield "| target, at 100 calls per second | p50, ms | p99, ms |"
    yield "|---|--:|--:|"
    for target in rounds.targets("open"):
        latencies = (rounds.get((target, "open"), name) or (0.0,) for name in ("p50_us", "p99_us"))
        p50, p99 = (spread([value / 1000 for value in values]) for values in latencies)
        yield f"| {_name(target)} | {p50} | {p99} |"


def processes(results: Results) -> Iterator[str]:
    yield "| target | memory at rest, MB | memory under load, MB | start until listening, s |"
    yield "|---|--:|--:|--:|"
    for target, process in results["processes"].items():
        figures = (format_figure(process[name]) for name in ("rest_mb", "load_mb", "ready_s"))
        yield f"| {_name(target)} | {' | '.join(figures)} |"


def sizing(results: Results) -> Iterator[str]:
    """Yield the load that a process serves within ``MAX_CPU_SHARE`` of a core."""
    rounds = Rounds(results)
    share = f"{MAX_CPU_SHARE:.0%}"
    yield f"| at {share} of a core | calls of 1 KB per second | chunks per second | streams |"
    yield "|---|--:|--:|--:|"
    for target in (BARE, EVERYTHING):
        call, chunk = (rounds.get((target, name), "cpu_us") for name in ("closed", "stream"))
        if call and chunk:
            calls, chunks = (MAX_CPU_SHARE * 1e6 / spread(costs).median for costs in (call, chunk))
            figures = (calls, chunks, chunks / STREAM_CHUNKS_PER_S)
            yield f"| {NAMES[target]} | {' | '.join(map(format_figure, figures))} |"


def machine(results: Results) -> Iterator[str]:
    """Yield a description of the run."""
    hardware, settings = results["machine"], results["settings"]
    libraries = ", ".join(f"{name} {version}" for name, version in hardware["libraries"].items())
    yield f"Measured {results['date']} at `{results['revision']}`: {hardware['processor']},"
    yield f"{hardware['cores']} processors, {hardware['memory_gib']} GiB, {hardware['system']},"
    yield f"{hardware['python']} {hardware['built']}, {libraries};"
    yield f"{settings['rounds']} rounds of {settings['seconds']:g} seconds each."
