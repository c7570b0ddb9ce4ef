"""The arithmetic of a measurement: medians over rounds, ratios within one, and what grows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FLAT = 1.15
"""What grows by less than this beyond its beginning is called flat: less is noise."""
STRAIGHT = 1.3
"""How far a point may be from the line that all points are on."""


@dataclass(frozen=True)
class Spread:
    """A figure over the rounds: its median, the smallest and the largest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{shown(self.median)} [{shown(self.low)}-{shown(self.high)}]"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return what is ours in parts of theirs, round by round: a machine that is slower in one
    round is so for both."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


def above(ours: Sequence[float], base: Sequence[float], unit: Sequence[float]) -> Spread:
    """Return what is ours above a base, in units, round by round."""
    rounds = zip(ours, base, unit, strict=True)
    return spread([(mine - under) / one for mine, under, one in rounds])


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of sorted values does not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def shown(value: float) -> str:
    """Return a figure with as many digits as mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class Line:
    """A cost that begins at ``base`` and grows by ``slope`` for each of a size."""

    base: float
    slope: float

    def at(self, size: float) -> float:
        return self.base + self.slope * size


def fitted(sizes: Sequence[float], costs: Sequence[float]) -> Line:
    """Return the line nearest to the points by their relative distance: sizes go over decades, and
    the largest alone would else decide."""
    weights = [1 / cost**2 for cost in costs]
    whole = sum(weights)
    x = sum(w * size for w, size in zip(weights, sizes, strict=True)) / whole
    y = sum(w * cost for w, cost in zip(weights, costs, strict=True)) / whole
    points = list(zip(weights, sizes, costs, strict=True))
    spread_x = sum(w * (size - x) ** 2 for w, size, _ in points)
    together = sum(w * (size - x) * (cost - y) for w, size, cost in points)
    slope = together / spread_x if spread_x else 0.0
    return Line(y - slope * x, slope)


def growth(sizes: Sequence[float], costs: Sequence[float]) -> str:
    """Return how a cost grows with a size: ``flat``, ``linear``, or ``neither`` of them."""
    if max(costs) <= FLAT * costs[0]:
        return "flat"
    line = fitted(sizes, costs)
    off = [
        max(cost / line.at(size), line.at(size) / cost) if line.at(size) > 0 else STRAIGHT + 1
        for size, cost in zip(sizes, costs, strict=True)
    ]
    return "linear" if max(off) <= STRAIGHT else "neither"
