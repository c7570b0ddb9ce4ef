"""Specification of a metric, and the values of its series.

Values cost a tenth of prometheus-client's, which lock each operation: one thread changes them, any
thread may read them. Names, help and the text format are prometheus-client's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, product
from math import prod
from typing import Literal

from proxy.runtime.frozen import frozen
from proxy.types.roster import LabelCatalog

Bucket = tuple[str, float, tuple[str, float] | None]
"""Upper edge of a bucket, its cumulative count, and the trace id and size of its last value."""


class Counter:
    """A number that never decreases."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add an amount. Raises ``ValueError`` if it is negative."""
        if amount < 0:
            raise ValueError("a counter never decreases")
        self.value += amount


class Gauge:
    """A number that is set."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0.0) -> None:
        self.value = float(value)


class CallbackGauge:
    """A number that ``read`` returns at each scrape."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    @property
    def value(self) -> float:
        return float(self._read())


class Histogram:
    """Counts of values by bucket, their sum, and for each bucket the trace of its last value."""

    __slots__ = ("counts", "edges", "sum", "traces")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.traces: list[tuple[str, float] | None] = [None] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float, trace_id: str | None = None) -> None:
        index = bisect_left(self.edges, value)
        self.counts[index] += 1
        self.sum += value
        if trace_id is not None:
            self.traces[index] = (trace_id, value)

    def buckets(self) -> list[Bucket]:
        """Return the cumulative buckets, as they are scraped."""
        names = (*(str(float(edge)) for edge in self.edges), "+Inf")
        return list(zip(names, map(float, accumulate(self.counts)), self.traces, strict=True))


Kind = Literal["counter", "gauge", "histogram"]
Values = tuple[str, ...]
OTHER = "other"


@dataclass(frozen=True, slots=True, eq=False)
class LabelSet:
    """Labels whose values belong together.

    ``allowed`` returns all values under a roster, ``initial`` those whose series start at zero, so
    that a rate sees their first increment.
    """

    labels: tuple[str, ...]
    allowed: Callable[[LabelCatalog], Iterable[Values]]
    initial: Callable[[LabelCatalog], Iterable[Values]]

    @property
    def other(self) -> Values:
        """Values that replace all values that are not allowed."""
        return (OTHER,) * len(self.labels)


def closed(label: str, *values: str, initial: tuple[str, ...] | None = None) -> LabelSet:
    """Return a label with the same values under every policy. By default all are initial."""
    starts = values if initial is None else initial
    return LabelSet((label,), lambda _: [(v,) for v in values], lambda _: [(v,) for v in starts])


@frozen
class MetricSpec:
    """Name, kind, help and labels of a metric. ``edges`` are the bucket edges of a histogram.

    A ``lazy`` metric has no initial series. ``own`` is False for a metric of prometheus-client.
    """

    name: str
    kind: Kind
    help: str
    label_sets: tuple[LabelSet, ...] = ()
    edges: tuple[float, ...] = ()
    lazy: bool = False
    own: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for label_set in self.label_sets for label in label_set.labels)

    @property
    def lines(self) -> int:
        """Number of Prometheus series for one set of labels."""
        return len(self.edges) + 3 if self.kind == "histogram" else 1

    def max_series(self, roster: LabelCatalog) -> int:
        """Return the largest possible number of Prometheus series."""
        return (
            prod(
                len({*label_set.allowed(roster), label_set.other}) for label_set in self.label_sets
            )
            * self.lines
        )

    def initial(self, roster: LabelCatalog) -> Iterator[Values]:
        """Yield the labels of the series that start at zero."""
        if self.lazy or not self.own:
            return
        for values in product(*(label_set.initial(roster) for label_set in self.label_sets)):
            yield tuple(value for part in values for value in part)

    def create(self) -> Counter | Gauge | Histogram:
        """Return the value of a new series."""
        if self.kind == "histogram":
            return Histogram(self.edges)
        return Counter() if self.kind == "counter" else Gauge()


def counter(name: str, help: str, *label_sets: LabelSet) -> MetricSpec:
    return MetricSpec(name=name, kind="counter", help=help, label_sets=label_sets)


def gauge(name: str, help: str, *label_sets: LabelSet, lazy: bool = False) -> MetricSpec:
    return MetricSpec(name=name, kind="gauge", help=help, label_sets=label_sets, lazy=lazy)


def histogram(name: str, help: str, *label_sets: LabelSet, edges: tuple[float, ...]) -> MetricSpec:
    return MetricSpec(name=name, kind="histogram", help=help, label_sets=label_sets, edges=edges)


def library_metric(name: str, help: str, kind: Kind = "gauge") -> MetricSpec:
    return MetricSpec(name=name, kind=kind, help=help, own=False)
