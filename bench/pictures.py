"""How cost grows, as a table and as pictures: ``python -m bench.pictures`` draws what was kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import results
from bench.axes import AXES
from bench.figures import fitted, growth, shown, spread
from bench.results import Results

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 36, 48
COLOURS = ("#0b6e99", "#c2410c", "#4d7c0f")
CACHED = "answers kept"
LEAST_US = 0.01  # a slope that is less says nothing
NAMES = {
    "bare": "bare",
    "everything": "everything on",
    "hit": "a look-up in the store",
    "kept": "keeping another",
}


class Series(NamedTuple):
    """The medians of one line of a picture."""

    name: str
    sizes: list[float]
    costs: list[float]


def series(cost: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Series]:
    """Return a line for each of the parts that were measured."""
    return [
        Series(
            NAMES.get(name, name),
            [float(size) for size in rounds],
            [spread(each).median for each in rounds.values()],
        )
        for name, rounds in cost.items()
    ]


def title(axis: str) -> str:
    return AXES[axis].title if axis in AXES else CACHED


def unit(axis: str) -> str:
    return "a chunk" if axis == "streams" else "an entry" if axis == "cached" else "a call"


def amount(size: float) -> str:
    """Return how much there is of a thing, in short."""
    for letter, one in (("M", 1e6), ("k", 1e3)):
        if size >= one:
            return f"{size / one:g}{letter}"
    return f"{size:g}"


def table(kept: Results) -> Iterator[str]:
    """What grows, by how much, and how many functions of ours run."""
    yield "| with | cost, us | grows | by | functions run |"
    yield "|---|---|---|---|---|"
    for axis, found in kept["growth"].items():
        for name, rounds in zip(found["cost"], series(found["cost"]), strict=True):
            first, last = rounds.costs[0], rounds.costs[-1]
            ends = f"{amount(rounds.sizes[0])} to {amount(rounds.sizes[-1])}"
            word = growth(rounds.sizes, rounds.costs)
            by = f"x {shown(last / first)}"
            slope = fitted(rounds.sizes, rounds.costs).slope * 1000
            if word == "linear" and slope >= LEAST_US:
                by += f", {shown(slope)} us for each 1,000"
            counts = list(found.get("functions", {}).get(name, {}).values())
            run = f"{counts[0]:,.0f} to {counts[-1]:,.0f}" if counts else ""
            yield (
                f"| {ends} {title(axis)}, {rounds.name} | {shown(first)} to {shown(last)},"
                f" {unit(axis)} | {word} | {by} | {run} |"
            )


def pictures(kept: Results) -> Iterator[str]:
    """The pictures of all that was measured."""
    for axis in kept["growth"]:
        yield f"![The cost of {unit(axis)} with {title(axis)}](pictures/growth-{axis}.svg)"


class Scale(NamedTuple):
    """Where values are on a picture: by their logarithm, or as they are."""

    low: float
    high: float
    begin: float
    end: float
    logarithmic: bool

    def at(self, value: float) -> float:
        low, high = self._as(self.low), self._as(self.high)
        share = (self._as(value) - low) / ((high - low) or 1)
        return self.begin + share * (self.end - self.begin)

    def _as(self, value: float) -> float:
        return math.log10(max(value, 1)) if self.logarithmic else value


def picture(heading: str, lines: Sequence[Series]) -> str:
    """Return an SVG of the lines over their sizes, with the costs beginning at nothing; where they
    go over decades, by their logarithm."""
    sizes = sorted({size for line in lines for size in line.sizes})
    costs = [cost for line in lines for cost in line.costs]
    decades = max(costs) > 20 * min(costs)
    across = Scale(
        sizes[0], sizes[-1], LEFT, WIDTH - RIGHT, logarithmic=sizes[-1] >= 50 * sizes[0] > 0
    )
    low = 10 ** math.floor(math.log10(min(costs))) if decades else 0.0
    high = 10 ** math.ceil(math.log10(max(costs))) if decades else rounded_up(max(costs))
    up = Scale(low, high, HEIGHT - BOTTOM, TOP, logarithmic=decades)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text(LEFT, 20, heading, "start"),
        *_rules(up, ticks(low, high, decades)),
        *(text(across.at(size), HEIGHT - BOTTOM + 18, amount(size)) for size in sizes),
        *(part for at, line in enumerate(lines) for part in _line(line, across, up, COLOURS[at])),
        *_names(lines, up),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def rounded_up(value: float) -> float:
    """Return the next number of one digit, or of a half of one, that is as large."""
    one = 10.0 ** math.floor(math.log10(value))
    return float(math.ceil(2 * value / one) * one / 2)


def ticks(low: float, high: float, decades: bool) -> list[float]:
    """Return where the rules are: at each decade, or at each quarter."""
    if decades:
        first, last = round(math.log10(low)), round(math.log10(high))
        return [10.0**power for power in range(first, last + 1)]
    return [low + (high - low) * quarter / 4 for quarter in range(5)]


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = "#333333") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def _rules(up: Scale, values: Sequence[float]) -> Iterator[str]:
    for value in values:
        y = up.at(value)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
        yield text(LEFT - 8, y + 4, f"{value:,.0f}" if value >= 10 else f"{value:g}", "end")


def _line(line: Series, across: Scale, up: Scale, colour: str) -> Iterator[str]:
    points = [
        (across.at(size), up.at(cost)) for size, cost in zip(line.sizes, line.costs, strict=True)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def _names(lines: Sequence[Series], up: Scale) -> Iterator[str]:
    """Yield the names of lines beside their ends, none over another."""
    ends = sorted((up.at(line.costs[-1]), at) for at, line in enumerate(lines))
    y = 0.0
    for end, at in ends:
        y = max(end + 4, y + 14)
        yield text(WIDTH - RIGHT + 8, y, lines[at].name, "start", COLOURS[at])


def drawn(kept: Results) -> dict[str, str]:
    """Return each picture by the name of its file."""
    return {
        f"growth-{axis}.svg": picture(
            f"Processor time of {unit(axis)}, us, with {title(axis)}", series(found["cost"])
        )
        for axis, found in kept["growth"].items()
    }


def main() -> None:
    if results.GROWTH.exists():
        for name, svg in drawn(results.read(results.GROWTH)).items():
            (FOLDER / name).write_text(svg)


if __name__ == "__main__":
    main()
