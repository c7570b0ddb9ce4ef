"""Growth of cost as a table and as SVG charts. ``python -m bench.pictures`` writes the charts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import results
from bench.axes import AXES
from bench.figures import classify_growth, fit_line, format_figure, spread
from bench.results import Results

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
WIDTH, HEIGHT = 640, 320
LEFT_MARGIN, RIGHT_MARGIN, TOP, BOTTOM = 64, 150, 36, 48
COLORS = ("#0b6e99", "#c2410c", "#4d7c0f")
MIN_SLOPE_US = 0.01  # smaller slopes are noise
SERIES_NAMES = {
    "bare": "bare",
    "everything": "everything on",
    "hit": "lookup",
    "kept": "insertion",
}


class Series(NamedTuple):
    """Median costs by size."""

    name: str
    sizes: list[float]
    costs: list[float]


def to_series(rounds_by_part: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Series]:
    """Return a series for each measured feature set."""
    return [
        Series(
            SERIES_NAMES.get(name, name),
            [float(size) for size in rounds_by_size],
            [spread(rounds).median for rounds in rounds_by_size.values()],
        )
        for name, rounds_by_size in rounds_by_part.items()
    ]


def axis_title(axis: str) -> str:
    return AXES[axis].title if axis in AXES else "entries of the cache"


def cost_unit(axis: str) -> str:
    return {"streams": "chunk", "cached": "operation"}.get(axis, "call")


def format_amount(size: float) -> str:
    for suffix, factor in (("M", 1e6), ("k", 1e3)):
        if size >= factor:
            return f"{size / factor:g}{suffix}"
    return f"{size:g}"


def table(results: Results) -> Iterator[str]:
    yield "| range | cost, us | growth | factor | functions run |"
    yield "|---|---|---|---|---|"
    for axis, measured in results["growth"].items():
        for part, series in zip(measured["cost"], to_series(measured["cost"]), strict=True):
            sizes = f"{format_amount(series.sizes[0])} to {format_amount(series.sizes[-1])}"
            first_cost, last_cost = series.costs[0], series.costs[-1]
            costs = f"{format_figure(first_cost)} to {format_figure(last_cost)}"
            kind = classify_growth(series.sizes, series.costs)
            factor = format_figure(last_cost / first_cost)
            slope = fit_line(series.sizes, series.costs).slope * 1000
            if kind == "linear" and slope >= MIN_SLOPE_US:
                factor += f", {format_figure(slope)} us per 1,000"
            counts = list(measured.get("functions", {}).get(part, {}).values())
            functions = f"{counts[0]:,.0f} to {counts[-1]:,.0f}" if counts else ""
            yield (
                f"| {sizes} {axis_title(axis)}, {series.name} | {costs} per {cost_unit(axis)}"
                f" | {kind} | {factor} | {functions} |"
            )


def picture_links(results: Results) -> Iterator[str]:
    for axis in results["growth"]:
        text = f"Cost per {cost_unit(axis)}, by {axis_title(axis)}"
        yield f"![{text}](pictures/growth-{axis}.svg)"


class Scale(NamedTuple):
    """Maps values to coordinates, on a linear or logarithmic scale."""

    low: float
    high: float
    start: float
    end: float
    is_logarithmic: bool

    def position(self, value: float) -> float:
        low, high = self._transform(self.low), self._transform(self.high)
        share = (self._transform(value) - low) / ((high - low) or 1)
        return self.start + share * (self.end - self.start)

    def _transform(self, value: float) -> float:
        return math.log10(max(value, 1)) if self.is_logarithmic else value


def draw_chart(heading: str, lines: Sequence[Series]) -> str:
    """Return an SVG chart. Axes whose values span decades are logarithmic."""
    sizes = sorted({size for line in lines for size in line.sizes})
    costs = [cost for line in lines for cost in line.costs]
    spans_decades = max(costs) > 20 * min(costs)
    x_scale = Scale(
        sizes[0],
        sizes[-1],
        LEFT_MARGIN,
        WIDTH - RIGHT_MARGIN,
        is_logarithmic=sizes[-1] >= 50 * sizes[0] > 0,
    )
    low = 10 ** math.floor(math.log10(min(costs))) if spans_decades else 0.0
    high = 10 ** math.ceil(math.log10(max(costs))) if spans_decades else round_up(max(costs))
    y_scale = Scale(low, high, HEIGHT - BOTTOM, TOP, is_logarithmic=spans_decades)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        draw_text(LEFT_MARGIN, 20, heading, "start"),
        *_draw_grid(y_scale, ticks(low, high, spans_decades)),
        *(
            draw_text(x_scale.position(size), HEIGHT - BOTTOM + 18, format_amount(size))
            for size in sizes
        ),
    ]
    for line, color in zip(lines, COLORS, strict=False):
        parts += _draw_line(line, x_scale, y_scale, color)
    parts += [*_draw_labels(lines, y_scale), "</svg>"]
    return "\n".join(parts) + "\n"


def round_up(value: float) -> float:
    """Round up to a multiple of half a power of ten: 0.12 to 0.15, 210 to 250."""
    power = 10.0 ** math.floor(math.log10(value))
    return float(math.ceil(2 * value / power) * power / 2)


def ticks(low: float, high: float, decades: bool) -> list[float]:
    """Return the values of grid lines: each decade, or each quarter."""
    if decades:
        powers = range(round(math.log10(low)), round(math.log10(high)) + 1)
        return [10.0**power for power in powers]
    return [low + (high - low) * quarter / 4 for quarter in range(5)]


def draw_text(x: float, y: float, text: str, anchor: str = "middle", color: str = "#333333") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{color}">{text}</text>'


def _draw_grid(y_scale: Scale, values: Sequence[float]) -> Iterator[str]:
    for value in values:
        y = y_scale.position(value)
        yield f'<path d="M{LEFT_MARGIN} {y:.1f}H{WIDTH - RIGHT_MARGIN}" stroke="#dddddd"/>'
        yield draw_text(
            LEFT_MARGIN - 8, y + 4, f"{value:,.0f}" if value >= 10 else f"{value:g}", "end"
        )


def _draw_line(line: Series, x_scale: Scale, y_scale: Scale, color: str) -> Iterator[str]:
    points = [
        (x_scale.position(size), y_scale.position(cost))
        for size, cost in zip(line.sizes, line.costs, strict=True)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>'


def _draw_labels(lines: Sequence[Series], y_scale: Scale) -> Iterator[str]:
    """Yield the names of lines beside their last points, without overlap."""
    ends = sorted((y_scale.position(line.costs[-1]), index) for index, line in enumerate(lines))
    y = 0.0
    for end, index in ends:
        y = max(end + 4, y + 14)
        yield draw_text(WIDTH - RIGHT_MARGIN + 8, y, lines[index].name, "start", COLORS[index])


def charts(results: Results) -> dict[str, str]:
    """Return each chart by file name."""
    return {
        f"growth-{axis}.svg": draw_chart(
            f"CPU time per {cost_unit(axis)}, us, by {axis_title(axis)}",
            to_series(measured["cost"]),
        )
        for axis, measured in results["growth"].items()
    }


def main() -> None:
    if results.GROWTH.exists():
        for name, svg in charts(results.read(results.GROWTH)).items():
            (FOLDER / name).write_text(svg)


if __name__ == "__main__":
    main()
