"""What a metric is between two scrapes: numbers that one thread changes and any may read.

They cost a tenth of the library's own, which guards each with a lock; names, help and the text
format stay the library's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

Bucket = tuple[str, float, tuple[str, float] | None]
"""The edge of a range, how many values are up to it, and the trace and size of its last value."""


class Counter:
    """A number that never goes down. Raises ``ValueError`` where it is told to."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        if amount < 0:
            raise ValueError("a count never goes down")
        self.value += amount


class Gauge:
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


class CallbackGauge:
    """A number that somebody else keeps, read when it is scraped."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    @property
    def value(self) -> float:
        return float(self._read())


class Histogram:
    """How many values were up to each of the ``edges``, and their sum; of each range the trace of
    the last value in it."""

    __slots__ = ("counts", "edges", "sum", "traces")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.traces: list[tuple[str, float] | None] = [None] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float, trace_id: str | None = None) -> None:
        at = bisect_left(self.edges, value)
        self.counts[at] += 1
        self.sum += value
        if trace_id is not None:
            self.traces[at] = (trace_id, value)

    def buckets(self) -> list[Bucket]:
        """Return the count up to each edge, the last one without an end, as they are scraped."""
        counts = map(float, accumulate(self.counts))
        return list(zip(_names(self.edges), counts, self.traces, strict=True))


def observe_all(values: Sequence[tuple[Histogram, float]], trace_id: str | None) -> None:
    """Observe what is known of one call, each value in its histogram."""
    for histogram, value in values:
        at = bisect_left(histogram.edges, value)
        histogram.counts[at] += 1
        histogram.sum += value
        if trace_id is not None:
            histogram.traces[at] = (trace_id, value)


@lru_cache(maxsize=64)
def _names(edges: tuple[float, ...]) -> tuple[str, ...]:
    return (*(str(float(edge)) for edge in edges), "+Inf")
