"""What a declaration of a metric says: name, kind, help, labels, and what bounds its series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal

from proxy.emit.instruments import Counter, Gauge, Histogram
from proxy.frozen import frozen
from proxy.types.roster import Roster

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
    axes: tuple[Axis, ...]
    help: str
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
