"""Statistics of a benchmark: medians over rounds, ratios within a round, and growth."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MAX_FLAT_GROWTH = 1.15
"""Costs within this factor of the first are called flat. The rest is noise."""
MAX_LINE_ERROR = 1.3
"""Largest factor between a point and a line that is said to fit."""


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest value over all rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{format_figure(self.median)} [{format_figure(self.low)}-{format_figure(self.high)}]"
        )


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratios(costs: Sequence[float], reference: Sequence[float]) -> Spread:
    """Divide by the reference of the same round, which cancels changes in machine speed."""
    return spread([cost / unit for cost, unit in zip(costs, reference, strict=True)])


def overhead(costs: Sequence[float], base: Sequence[float], unit: Sequence[float]) -> Spread:
    """Return ``(cost - base) / unit`` of each round."""
    rounds = zip(costs, base, unit, strict=True)
    return spread([(cost - base_cost) / unit_cost for cost, base_cost, unit_cost in rounds])


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of the sorted values do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def format_figure(value: float) -> str:
    """Format with three significant digits, and without decimals from 100 on."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class Line:
    """A cost that grows linearly with a size."""

    base: float
    slope: float

    def cost_at(self, size: float) -> float:
        return self.base + self.slope * size


def fit_line(sizes: Sequence[float], costs: Sequence[float]) -> Line:
    """Fit a line by least squares of relative errors.

    Sizes span decades, so absolute errors would let the largest size decide alone.
    """
    points = [(1 / cost**2, size, cost) for size, cost in zip(sizes, costs, strict=True)]
    total = sum(weight for weight, _, _ in points)
    mean_size = sum(weight * size for weight, size, _ in points) / total
    mean_cost = sum(weight * cost for weight, _, cost in points) / total
    variance = sum(weight * (size - mean_size) ** 2 for weight, size, _ in points)
    covariance = sum(
        weight * (size - mean_size) * (cost - mean_cost) for weight, size, cost in points
    )
    slope = covariance / variance if variance else 0.0
    return Line(mean_cost - slope * mean_size, slope)


def classify_growth(sizes: Sequence[float], costs: Sequence[float]) -> str:
    """Return ``flat``, ``linear`` or ``neither``."""
    if max(costs) <= MAX_FLAT_GROWTH * costs[0]:
        return "flat"
    line = fit_line(sizes, costs)
    for size, cost in zip(sizes, costs, strict=True):
        expected = line.cost_at(size)
        if expected <= 0 or max(cost / expected, expected / cost) > MAX_LINE_ERROR:
            return "neither"
    return "linear"
