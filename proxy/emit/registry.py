"""Keeps the series of all metrics within their bounds, whatever labels come.

A name that the policies in force do not close is counted as ``other``. The series of a name that a
reload has retired stay for a while, for calls that still run under it, and then go.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.emit.declared import METRICS, OVERFLOW
from proxy.emit.declared.metric import OTHER, Axis, CallbackGauge, Declared, Gauge, Values
from proxy.types.roster import Roster

Children = tuple[Declared, list[tuple[Values, Any]]]
"""A metric, and its children by their labels."""
MAX_SERIES = 50_000
RETIRED_S = 900.0
AXES = {axis for metric in METRICS for axis in metric.axes}


@dataclass(slots=True)
class _KnownRoster:
    """The names of a roster, by axis. They count for good or ``until`` a moment."""

    names: dict[Axis, frozenset[Values]]
    of: str
    is_in_force: bool = False
    until: float | None = None


class Registry:
    """All children by metric and labels. One thread counts; others may scrape, admit and retire.

    ``most`` bounds the children of all metrics: a second net below the bound that each declares.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, most: int = MAX_SERIES) -> None:
        self._now = now
        self._most = most
        self._table = {metric.name: metric for metric in METRICS}
        self._children: dict[str, dict[Values, Any]] = {metric.name: {} for metric in METRICS}
        self._rosters = [_KnownRoster(_names(Roster()), "nothing", is_in_force=True)]
        self._changing = threading.Lock()
        self._known: dict[Axis, frozenset[Values]] = {}
        self._learn()
        self._begin(Roster())

    def child(self, name: str, *labels: str) -> Any:
        """Return a child by its labels; the one for ``other`` where they are not known."""
        child = self._children[name].get(labels)
        return child if child is not None else self._made(name, labels)

    def watch(self, name: str, *labels: str, read: Callable[[], float]) -> None:
        """Have a number read when it is scraped; ``read`` is called by another thread."""
        self._children[name][labels] = CallbackGauge(read)

    def replace(self, name: str, values: Mapping[Values, float]) -> None:
        """Show these levels of a metric, and no others."""
        self.show(name, levels(values))

    def show(self, name: str, gauges: Mapping[Values, Gauge]) -> None:
        """Show these gauges of a metric, and no others."""
        self._children[name] = dict(gauges)

    def admit(self, roster: Roster, of: str, *, begin: bool = True) -> Callable[[], None]:
        """Let a roster's names be labels; the usual series ``begin`` at zero.

        Takes long for a large roster, so call it off the event loop. Call the result once the
        roster is in force: it retires the roster before it ``of`` the same.
        """
        admitted = _KnownRoster(_names(roster), of)
        with self._changing:
            for kept in self._rosters:
                if kept.of == of and not kept.is_in_force:  # it was rejected
                    kept.until = self._now()
            self._rosters.append(admitted)
            self._retire(self._now())
            self._learn()
            if begin:
                self._begin(roster)

        def enforce() -> None:
            for kept in self._rosters:
                if kept.of == of and kept.until is None and kept is not admitted:
                    kept.until = self._now() + RETIRED_S
            admitted.is_in_force = True

        return enforce

    def retire(self) -> None:
        """Drop the series of names that are out of force for long enough."""
        with self._changing:
            self._retire(self._now())

    def _retire(self, now: float) -> None:
        living = [kept for kept in self._rosters if kept.until is None or kept.until > now]
        if len(living) == len(self._rosters):
            return
        self._rosters = living
        self._learn()
        for metric in METRICS:
            children = self._children[metric.name]
            gone = [labels for labels in list(children) if not self._living(metric.axes, labels)]
            for labels in gone:
                del children[labels]

    def collect(self) -> Iterator[Children]:
        """Yield each metric of ours with its children."""
        for metric in METRICS:
            if metric.own:
                yield metric, list(self._children[metric.name].items())  # calls may add some

    def _learn(self) -> None:
        self._known = {
            axis: frozenset().union(*(kept.names[axis] for kept in self._rosters)) for axis in AXES
        }

    def _begin(self, roster: Roster) -> None:
        for metric in METRICS:
            for labels in metric.usual(roster):
                self.child(metric.name, *labels)

    def _living(self, axes: tuple[Axis, ...], labels: Values) -> bool:
        return all(
            part in self._known[axis] or part == axis.other for axis, part in _parts(axes, labels)
        )

    def _made(self, name: str, labels: Values) -> Any:
        metric, children = self._table[name], self._children[name]
        bounded: list[str] = []
        for axis, part in _parts(metric.axes, labels):
            known = part in self._known[axis] or part == axis.other
            bounded += part if known else axis.other
            if not known:
                self.child(OVERFLOW.name, axis.labels[0]).inc()
        if sum(map(len, self._children.values())) >= self._most:
            bounded = [OTHER] * len(labels)
        return children.setdefault(tuple(bounded), metric.made())


def _names(roster: Roster) -> dict[Axis, frozenset[Values]]:
    """Return the names of a roster by axis."""
    return {axis: frozenset(axis.known(roster)) for axis in AXES}


def levels(values: Mapping[Values, float]) -> dict[Values, Gauge]:
    """Return a gauge for each value."""
    gauges = {labels: Gauge() for labels in values}
    for labels, value in values.items():
        gauges[labels].set(value)
    return gauges


def _parts(axes: tuple[Axis, ...], labels: Values) -> Iterator[tuple[Axis, Values]]:
    at = 0
    for axis in axes:
        yield axis, labels[at : at + len(axis.labels)]
        at += len(axis.labels)
