"""What a metric is between two scrapes: numbers that one thread changes and any may read.

They cost a tenth of the library's own, which guards each with a lock; names, help and the text
format stay the library's.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate


class Count:
    """A number that never goes down. Raises ``ValueError`` where it is told to."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        if amount < 0:
            raise ValueError("a count never goes down")
        self.value += amount


class Level:
    """A number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self) -> None:
        self.value += 1.0

    def dec(self) -> None:
        self.value -= 1.0

    def set(self, value: float) -> None:
        self.value = float(value)


class Spread:
    """How many values were up to each of the ``edges``, and their sum."""

    __slots__ = ("_counts", "edges", "sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self._counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Give the count up to each edge, the last one without an end, as they are scraped."""
        names = [*(str(float(edge)) for edge in self.edges), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))
