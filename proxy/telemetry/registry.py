"""All series of metrics, by metric and labels, bounded by the names of the active policies.

A value that is not in the active policies is counted as ``other``. After a reload, series of
removed names stay for ``RETIRED_S`` seconds, because calls may still run under the old policies.

Values cost a tenth of prometheus-client's, which lock each operation: one thread changes them, any
thread may read them.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from proxy.telemetry.catalog import MetricSpec
from proxy.telemetry.catalog.labels import OTHER_VALUE, LabelSet, Values
from proxy.telemetry.catalog.table import METRICS, OVERFLOW_METRIC
from proxy.types.label_catalog import LabelCatalog

MAX_SERIES = 50_000
RETIRED_S = 900.0
MAX_CACHED = 16_384
LABEL_SETS = {label_set for metric in METRICS for label_set in metric.label_sets}
Bucket = tuple[str, float, tuple[str, float] | None]
"""Upper edge of a bucket, its cumulative count, and the trace id and value of its exemplar."""
Activate = Callable[[], None]
"""Makes an allowed catalog the active one of its source."""


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
    """A number that is set, such as a size."""

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


@dataclass(slots=True)
class _AllowedValues:
    """Allowed values of a catalog, which expire at the monotonic second ``expires_at``."""

    values: dict[LabelSet, frozenset[Values]]
    source: str
    is_active: bool = False
    expires_at: float | None = None


class Registry:
    """All series by metric and labels. One thread counts. Others may scrape and allow labels.

    ``max_series`` bounds all metrics together, in addition to the bound that each metric declares.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, max_series: int = MAX_SERIES
    ) -> None:
        self._now = now
        self._max_series = max_series
        self._metrics = {metric.name: metric for metric in METRICS}
        self._series: dict[str, dict[Values, Any]] = {name: {} for name in self._metrics}
        self._admitted = [
            _AllowedValues(_list_allowed_values(LabelCatalog()), "nothing", is_active=True)
        ]
        self._lock = threading.Lock()
        self._allowed: dict[LabelSet, frozenset[Values]] = {}
        self._update_allowed_values()
        self._create_initial_series(LabelCatalog())

    def get_series(self, name: str, *labels: str) -> Any:
        """Return the series of a metric, with ``other`` for labels that are not allowed."""
        series = self._series[name].get(labels)
        return series if series is not None else self._create_series(name, labels)

    def list_series(self, names: tuple[str, ...], *labels: str) -> list[Any]:
        """Return the series of several metrics, given the labels of the first one."""
        values = dict(zip(self._metrics[names[0]].labels, labels, strict=True))
        return [
            self.get_series(name, *[values[label] for label in self._metrics[name].labels])
            for name in names
        ]

    def add_gauge(self, name: str, *labels: str, read: Callable[[], float]) -> None:
        """Show the number that ``read`` returns at each scrape, called by another thread."""
        self._series[name][labels] = CallbackGauge(read)

    def replace(self, name: str, values: Mapping[Values, float]) -> None:
        """Replace all series of a gauge."""
        self._series[name] = make_gauges(values)

    def allow_labels(
        self, catalog: LabelCatalog, source: str, *, create_series: bool = True
    ) -> Activate:
        """Allow the names of a catalog as labels. ``create_series`` creates their initial series.

        Blocks for long with a large catalog, so call it off the event loop. Call the result once
        the catalog is active: it retires the previous catalog of the same source.
        """
        admitted = _AllowedValues(_list_allowed_values(catalog), source)
        with self._lock:
            for other in self._admitted:
                if other.source == source and not other.is_active:  # the reload was rejected
                    other.expires_at = self._now()
            self._admitted.append(admitted)
            self._drop_expired()
            self._update_allowed_values()
            if create_series:
                self._create_initial_series(catalog)

        def activate() -> None:
            for other in self._admitted:
                if other.source == source and other.expires_at is None and other is not admitted:
                    other.expires_at = self._now() + RETIRED_S
            admitted.is_active = True

        return activate

    def drop_expired_series(self) -> None:
        with self._lock:
            self._drop_expired()

    def _drop_expired(self) -> None:
        now = self._now()
        current = [
            admitted
            for admitted in self._admitted
            if admitted.expires_at is None or admitted.expires_at > now
        ]
        if len(current) == len(self._admitted):
            return
        self._admitted = current
        self._update_allowed_values()
        for metric in METRICS:
            series = self._series[metric.name]
            for labels in list(series):
                if not all(self._are_allowed(*part) for part in _split_labels(metric, labels)):
                    del series[labels]

    def copy_series(self, name: str) -> dict[Values, Any]:
        """Return a copy of the series of a metric, by labels."""
        return dict(self._series[name])

    def collect(self) -> Iterator[tuple[MetricSpec, list[tuple[Values, Any]]]]:
        """Yield each metric of Headrace with its series by labels."""
        for metric in METRICS:
            if metric.is_own:
                # A copy, because calls may add series.
                yield metric, list(self._series[metric.name].items())

    def _update_allowed_values(self) -> None:
        self._allowed = {
            label_set: frozenset().union(
                *(admitted.values[label_set] for admitted in self._admitted)
            )
            for label_set in LABEL_SETS
        }

    def _create_initial_series(self, catalog: LabelCatalog) -> None:
        for metric in METRICS:
            for labels in metric.iter_initial_values(catalog):
                self.get_series(metric.name, *labels)

    def _are_allowed(self, label_set: LabelSet, part: Values) -> bool:
        return part in self._allowed[label_set] or part == label_set.overflow_values

    def _create_series(self, name: str, labels: Values) -> Any:
        metric = self._metrics[name]
        bounded: list[str] = []
        for label_set, part in _split_labels(metric, labels):
            is_allowed = self._are_allowed(label_set, part)
            bounded += part if is_allowed else label_set.overflow_values
            if not is_allowed:
                self.get_series(OVERFLOW_METRIC.name, label_set.labels[0]).inc()
        if sum(map(len, self._series.values())) >= self._max_series:
            bounded = [OTHER_VALUE] * len(labels)
        return self._series[name].setdefault(tuple(bounded), _make_series(metric))


def make_gauges(values: Mapping[Values, float]) -> dict[Values, Gauge]:
    return {labels: Gauge(value) for labels, value in values.items()}


def _list_allowed_values(catalog: LabelCatalog) -> dict[LabelSet, frozenset[Values]]:
    return {label_set: frozenset(label_set.allowed(catalog)) for label_set in LABEL_SETS}


def _split_labels(metric: MetricSpec, labels: Values) -> Iterator[tuple[LabelSet, Values]]:
    start = 0
    for label_set in metric.label_sets:
        end = start + len(label_set.labels)
        yield label_set, labels[start:end]
        start = end


def _make_series(metric: MetricSpec) -> Counter | Gauge | Histogram:
    if metric.kind == "histogram":
        return Histogram(metric.edges)
    return Counter() if metric.kind == "counter" else Gauge()


class SeriesCache(dict[tuple[Any, ...], Any]):
    """Cache of series by metric name and labels. It is cleared at ``MAX_CACHED`` entries.

    The names of several metrics, as a tuple, give the list of their series. The labels are those of
    the first metric. A subscript costs half of a call of ``Registry.get_series``, and a call has 15
    to 60 of them.
    """

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def __missing__(self, key: tuple[Any, ...]) -> Any:
        if len(self) >= MAX_CACHED:
            self.clear()
        name, *labels = key
        registry = self._registry
        if isinstance(name, str):
            self[key] = registry.get_series(name, *labels)
        else:
            self[key] = registry.list_series(name, *labels)
        return self[key]
