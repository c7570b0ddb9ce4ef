"""Specification of a metric. ``table.py`` has all of them, ``labels.py`` their labels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Literal

from proxy.runtime.frozen import frozen
from proxy.telemetry.catalog.labels import LabelSet, Values
from proxy.types.label_catalog import LabelCatalog

Kind = Literal["counter", "gauge", "histogram"]


@frozen
class MetricSpec:
    """Name, kind, help and labels of a metric. ``edges`` are the bucket edges of a histogram.

    If ``is_lazy``, it has no initial series. ``is_own`` is False for prometheus-client's metrics.
    """

    name: str
    kind: Kind
    help: str
    label_sets: tuple[LabelSet, ...] = ()
    edges: tuple[float, ...] = ()
    is_lazy: bool = False
    is_own: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for label_set in self.label_sets for label in label_set.labels)

    @property
    def series_per_label_set(self) -> int:
        """Number of Prometheus series for one set of labels."""
        return len(self.edges) + 3 if self.kind == "histogram" else 1

    def max_series(self, catalog: LabelCatalog) -> int:
        """Return the largest possible number of Prometheus series."""
        return (
            prod(
                len({*label_set.allowed(catalog), label_set.overflow_values})
                for label_set in self.label_sets
            )
            * self.series_per_label_set
        )

    def iter_initial_values(self, catalog: LabelCatalog) -> Iterator[Values]:
        """Yield the labels of the series that start at zero."""
        if self.is_lazy or not self.is_own:
            return
        initial = [(labels.initial or labels.allowed)(catalog) for labels in self.label_sets]
        for values in product(*initial):
            yield tuple(value for part in values for value in part)


def counter(name: str, help: str, *label_sets: LabelSet) -> MetricSpec:
    return MetricSpec(name=name, kind="counter", help=help, label_sets=label_sets)


def gauge(name: str, help: str, *label_sets: LabelSet) -> MetricSpec:
    return MetricSpec(name=name, kind="gauge", help=help, label_sets=label_sets)


def lazy_gauge(name: str, help: str, *label_sets: LabelSet) -> MetricSpec:
    return MetricSpec(name=name, kind="gauge", help=help, label_sets=label_sets, is_lazy=True)


def histogram(name: str, help: str, *label_sets: LabelSet, edges: tuple[float, ...]) -> MetricSpec:
    return MetricSpec(name=name, kind="histogram", help=help, label_sets=label_sets, edges=edges)


def library_metric(name: str, help: str, kind: Kind = "gauge") -> MetricSpec:
    return MetricSpec(name=name, kind=kind, help=help, is_own=False)
