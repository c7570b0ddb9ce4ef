"""A metric: its declaration, and the numbers that count for each set of its labels.

One thread changes the numbers, any thread may read them. They cost a tenth of the library's own,
which guards each with a lock; names, help and the text format stay the library's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product
from math import prod
from typing import Literal

from proxy.frozen import frozen
from proxy.types.roster import Roster

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


Kind = Literal["counter", "gauge", "histogram"]
Values = tuple[str, ...]
OTHER = "other"


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Labels whose values come together. ``known`` gives all values that there may be; ``usual``
    those whose series begin at zero, so that a rate sees their first increment."""

    labels: tuple[str, ...]
    known: Callable[[Roster], Iterable[Values]]
    usual: Callable[[Roster], Iterable[Values]]

    @property
    def other(self) -> Values:
        """What stands for all values that are not known."""
        return (OTHER,) * len(self.labels)


def closed(label: str, *known: str, usual: tuple[str, ...] | None = None) -> Axis:
    """Return a label whose values no policy changes."""
    begin = known if usual is None else usual
    return Axis(
        (label,), lambda roster: [(v,) for v in known], lambda roster: [(v,) for v in begin]
    )


@frozen
class Declared:
    """One metric. ``edges`` are those of a histogram's buckets.

    ``lazy`` metrics have a series only once there is something to say. ``own`` is False for what a
    library tells.
    """

    name: str
    kind: Kind
    help: str
    axes: tuple[Axis, ...] = ()
    edges: tuple[float, ...] = ()
    lazy: bool = False
    own: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for axis in self.axes for label in axis.labels)

    def worst(self, roster: Roster) -> int:
        """Return the most series that there can be; a histogram has one for each line it shows."""
        sizes = (len({*axis.known(roster), axis.other}) for axis in self.axes)
        return prod(sizes) * self.lines

    @property
    def lines(self) -> int:
        """How many series Prometheus makes of one set of labels."""
        return len(self.edges) + 3 if self.kind == "histogram" else 1

    def usual(self, roster: Roster) -> Iterator[Values]:
        """Return the labels of the series that begin at zero."""
        if self.lazy or not self.own:
            return
        for values in product(*(axis.usual(roster) for axis in self.axes)):
            yield tuple(value for part in values for value in part)

    def made(self) -> Counter | Gauge | Histogram:
        """Return what counts for one set of labels."""
        if self.kind == "histogram":
            return Histogram(self.edges)
        return Counter() if self.kind == "counter" else Gauge()


def counter(name: str, help: str, axes: tuple[Axis, ...] = ()) -> Declared:
    return Declared(name=name, kind="counter", help=help, axes=axes)


def gauge(name: str, help: str, axes: tuple[Axis, ...] = (), *, lazy: bool = False) -> Declared:
    return Declared(name=name, kind="gauge", help=help, axes=axes, lazy=lazy)


def histogram(
    name: str, help: str, axes: tuple[Axis, ...] = (), *, edges: tuple[float, ...]
) -> Declared:
    return Declared(name=name, kind="histogram", help=help, axes=axes, edges=edges)
