"""The tables that a measurement of calls comes to, from what was kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.figures import Spread, above, ratios, shown, spread
from bench.results import Results

RELAY, NGINX, DIRECT, HITS = "relay", "nginx", "direct", "cache"
ALL, BARE, MID, GUARDS = "everything", "bare", "mid", "guards"
SHARE = 0.6
"""How much of a core a process may use at a peak: beyond it calls wait for each other."""
CHUNKS_PER_S = 50
"""How many chunks a second one stream of a quick model has."""
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


class Rounds:
    """The figures of the rounds of a measurement."""

    def __init__(self, results: Results) -> None:
        self._rounds = results["rounds"]

    def of(self, target: str, scenario: str, figure: str) -> Sequence[float] | None:
        """Return a figure round by round; None where it was not measured."""
        found: Sequence[float] | None = self._rounds.get(target, {}).get(scenario, {}).get(figure)
        return found

    def targets(self, scenario: str) -> list[str]:
        return [name for name, scenarios in self._rounds.items() if scenario in scenarios]

    def parts_of(self, figure: str, ours: Seen, theirs: Seen = (RELAY, "closed")) -> Spread | None:
        """Return what is ours in parts of theirs, each a target in a scenario."""
        mine, other = self.of(*ours, figure), self.of(*theirs, figure)
        return ratios(mine, other) if mine and other else None


Seen = tuple[str, str]


def goals(results: Results) -> Iterator[tuple[str, str]]:
    """Yield each figure that speed is judged by, and what it is: median and range of the rounds."""
    rounds = Rounds(results)
    for name, ours, theirs in (
        ("everything on", (ALL, "closed"), (RELAY, "closed")),
        ("no policy (`bare`)", (BARE, "closed"), (RELAY, "closed")),
        ("all but guards (`mid`)", (MID, "closed"), (RELAY, "closed")),
        ("a hit of the cache", (HITS, "hits"), (RELAY, "closed")),
        ("everything on, 10 KB", (ALL, "closed, 10 KB"), (RELAY, "closed, 10 KB")),
        ("`bare`, 10 KB", (BARE, "closed, 10 KB"), (RELAY, "closed, 10 KB")),
        ("a streamed chunk, `bare`", (BARE, "stream"), (RELAY, "stream")),
        ("a streamed chunk, guards", (GUARDS, "stream"), (RELAY, "stream")),
        ("a streamed chunk, everything on", (ALL, "stream"), (RELAY, "stream")),
    ):
        found = rounds.parts_of("cpu_us", ours, theirs)
        if found is not None:
            yield name, f"{found}"
    three = [rounds.of(target, "closed", "cpu_us") for target in (GUARDS, BARE, RELAY)]
    if all(three):
        guards, bare, relay = (values or () for values in three)
        yield "guards above `bare`", f"{above(guards, bare, relay)}"
    yield from _latency(rounds)
    for target, process in results["processes"].items():
        if target in (BARE, ALL):
            yield f"memory at rest, {target}, MB", shown(process["rest_mb"])
            yield f"listens after, {target}, s", shown(process["ready_s"])


def _latency(rounds: Rounds) -> Iterator[tuple[str, str]]:
    three = [rounds.of(target, "open", "p50_us") for target in (ALL, DIRECT, RELAY)]
    tail = rounds.of(ALL, "open", "p99_us")
    if all(three) and tail:
        ours, none, relay = (values or () for values in three)
        under = [one - base for one, base in zip(relay, none, strict=True)]
        yield "p50 added at 100 calls a second, to the relay's", f"{above(ours, none, under)}"
        yield "p99 at 100 calls a second, ms", f"{spread([each / 1000 for each in tail])}"
    slow, usual = rounds.of(ALL, "closed", "p99_us"), rounds.of(ALL, "closed", "p50_us")
    if slow and usual:
        yield "p99 to p50 at 32 saturated, everything on", f"{ratios(slow, usual)}"


def lookback(results: Results) -> Iterator[str]:
    yield "| in multiples of the relay's, unless said | median and range of the rounds |"
    yield "|---|--:|"
    for name, figure in goals(results):
        yield f"| {name} | {figure} |"


def calls(results: Results) -> Iterator[str]:
    """The cost of a call, of 1 KB and of 10 KB."""
    rounds = Rounds(results)
    yield "| a call through | processor time, us | to the relay's | calls a second on a core |"
    yield "|---|--:|--:|--:|"
    for scenario, note in (("closed", ""), ("hits", ""), ("closed, 10 KB", ", 10 KB")):
        for target in rounds.targets(scenario):
            costs = rounds.of(target, scenario, "cpu_us")
            if costs is None or not any(costs):
                continue
            base = "closed" if scenario == "hits" else scenario
            ratio = rounds.parts_of("cpu_us", (target, scenario), (RELAY, base))
            cost = spread(costs)
            name = NAMES.get(target, target) + note
            yield f"| {name} | {cost} | {ratio or ''} | {shown(1e6 / cost.median)} |"


def streams(results: Results) -> Iterator[str]:
    rounds = Rounds(results)
    yield "| a stream through | processor time a chunk, us | to the relay's | first chunk, ms |"
    yield "|---|--:|--:|--:|"
    for target in rounds.targets("stream"):
        costs, first = (rounds.of(target, "stream", name) for name in ("cpu_us", "first_us"))
        if costs and first and any(costs):
            ratio = rounds.parts_of("cpu_us", (target, "stream"), (RELAY, "stream"))
            wait = shown(spread(first).median / 1000)
            yield f"| {NAMES.get(target, target)} | {spread(costs)} | {ratio or ''} | {wait} |"


def latency(results: Results) -> Iterator[str]:
    rounds = Rounds(results)
    yield "| 100 calls a second through | half are answered in, ms | 99 of 100 in, ms |"
    yield "|---|--:|--:|"
    for target in rounds.targets("open"):
        found = [rounds.of(target, "open", name) or (0.0,) for name in ("p50_us", "p99_us")]
        half, most = (spread([each / 1000 for each in values]) for values in found)
        yield f"| {NAMES.get(target, target)} | {half} | {most} |"


def processes(results: Results) -> Iterator[str]:
    yield "| a process of | memory at rest, MB | after load, MB | listens after, s |"
    yield "|---|--:|--:|--:|"
    for target, process in results["processes"].items():
        figures = (shown(process[name]) for name in ("rest_mb", "load_mb", "ready_s"))
        yield f"| {NAMES.get(target, target)} | {' | '.join(figures)} |"


def sizing(results: Results) -> Iterator[str]:
    """What a process of one core bears, at the share of it that it should have to."""
    rounds = Rounds(results)
    yield f"| at {SHARE:.0%} of a core | calls of 1 KB a second | chunks a second | streams |"
    yield "|---|--:|--:|--:|"
    for target in (BARE, ALL):
        call, chunk = (rounds.of(target, name, "cpu_us") for name in ("closed", "stream"))
        if call and chunk:
            calls, chunks = (SHARE * 1e6 / spread(costs).median for costs in (call, chunk))
            figures = (shown(each) for each in (calls, chunks, chunks / CHUNKS_PER_S))
            yield f"| {NAMES[target]} | {' | '.join(figures)} |"


def machine(results: Results) -> Iterator[str]:
    """What the tables were measured on."""
    known, settings = results["machine"], results["settings"]
    libraries = ", ".join(f"{name} {version}" for name, version in known["libraries"].items())
    yield f"Measured {results['date']} at `{results['revision']}`: {known['processor']},"
    yield f"{known['cores']} processors, {known['memory_gib']} GiB, {known['system']},"
    yield f"{known['python']} {known['built']}, {libraries};"
    yield f"{settings['rounds']} rounds of {settings['seconds']:g} seconds each."
