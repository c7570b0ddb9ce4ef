"""Holds the series of all metrics and bounds their number.

A value that is not in the active policies is counted as ``other``. After a reload, series of
removed names stay for ``RETIRED_S`` seconds, because calls may still run under the old policies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.telemetry.catalog import METRICS, OVERFLOW
from proxy.telemetry.catalog.spec import OTHER, CallbackGauge, Gauge, LabelSet, MetricSpec, Values
from proxy.types.roster import LabelCatalog

MAX_SERIES = 50_000
RETIRED_S = 900.0
LABEL_SETS = {label_set for metric in METRICS for label_set in metric.label_sets}


@dataclass(slots=True)
class _Admitted:
    """Allowed values of a roster, which expire at the monotonic second ``expires_at``."""

    values: dict[LabelSet, frozenset[Values]]
    source: str
    is_active: bool = False
    expires_at: float | None = None


class Registry:
    """All series by metric and labels. One thread counts; others may scrape, admit and retire.

    ``max_series`` bounds all metrics together, beside the bound that each metric declares.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, max_series: int = MAX_SERIES
    ) -> None:
        self._now = now
        self._max_series = max_series
        self._metrics = {metric.name: metric for metric in METRICS}
        self._series: dict[str, dict[Values, Any]] = {name: {} for name in self._metrics}
        self._admitted = [_Admitted(_allowed(LabelCatalog()), "nothing", is_active=True)]
        self._lock = threading.Lock()
        self._allowed: dict[LabelSet, frozenset[Values]] = {}
        self._merge_allowed()
        self._start(LabelCatalog())

    def child(self, name: str, *labels: str) -> Any:
        """Return the series of a metric by its labels, or the one for ``other``."""
        series = self._series[name].get(labels)
        return series if series is not None else self._create(name, labels)

    def watch(self, name: str, *labels: str, read: Callable[[], float]) -> None:
        """Show the number that ``read`` returns at each scrape, called by another thread."""
        self._series[name][labels] = CallbackGauge(read)

    def replace(self, name: str, values: Mapping[Values, float]) -> None:
        """Replace all series of a gauge."""
        self.show(name, gauges(values))

    def show(self, name: str, series: dict[Values, Gauge]) -> None:
        """Replace all series of a gauge by prepared ones."""
        self._series[name] = series

    def admit(self, roster: LabelCatalog, source: str, *, start: bool = True) -> Callable[[], None]:
        """Allow the names of a roster as labels, and ``start`` the initial series at zero.

        Blocks for long with a large roster, so call it off the event loop. Call the result once the
        roster is active: it retires the previous roster of the same source.
        """
        admitted = _Admitted(_allowed(roster), source)
        with self._lock:
            for admitted_roster in self._admitted:
                if (
                    admitted_roster.source == source and not admitted_roster.is_active
                ):  # it was rejected
                    admitted_roster.expires_at = self._now()
            self._admitted.append(admitted)
            self._drop_expired()
            self._merge_allowed()
            if start:
                self._start(roster)

        def activate() -> None:
            for admitted_roster in self._admitted:
                if (
                    admitted_roster.source == source
                    and admitted_roster.expires_at is None
                    and admitted_roster is not admitted
                ):
                    admitted_roster.expires_at = self._now() + RETIRED_S
            admitted.is_active = True

        return activate

    def retire(self) -> None:
        """Drop the series of expired names."""
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
        self._merge_allowed()
        for metric in METRICS:
            series = self._series[metric.name]
            for labels in list(series):
                if not all(self._is_allowed(*part) for part in _parts(metric, labels)):
                    del series[labels]

    def collect(self) -> Iterator[tuple[MetricSpec, list[tuple[Values, Any]]]]:
        """Yield each metric of Headrace with its series by labels."""
        for metric in METRICS:
            if metric.own:
                yield metric, list(self._series[metric.name].items())  # calls may add some

    def _merge_allowed(self) -> None:
        self._allowed = {
            label_set: frozenset().union(
                *(admitted.values[label_set] for admitted in self._admitted)
            )
            for label_set in LABEL_SETS
        }

    def _start(self, roster: LabelCatalog) -> None:
        for metric in METRICS:
            for labels in metric.initial(roster):
                self.child(metric.name, *labels)

    def _is_allowed(self, label_set: LabelSet, part: Values) -> bool:
        return part in self._allowed[label_set] or part == label_set.other

    def _create(self, name: str, labels: Values) -> Any:
        metric = self._metrics[name]
        bounded: list[str] = []
        for label_set, part in _parts(metric, labels):
            is_allowed = self._is_allowed(label_set, part)
            bounded += part if is_allowed else label_set.other
            if not is_allowed:
                self.child(OVERFLOW.name, label_set.labels[0]).inc()
        if sum(map(len, self._series.values())) >= self._max_series:
            bounded = [OTHER] * len(labels)
        return self._series[name].setdefault(tuple(bounded), metric.create())


def gauges(values: Mapping[Values, float]) -> dict[Values, Gauge]:
    return {labels: Gauge(value) for labels, value in values.items()}


def _allowed(roster: LabelCatalog) -> dict[LabelSet, frozenset[Values]]:
    return {label_set: frozenset(label_set.allowed(roster)) for label_set in LABEL_SETS}


def _parts(metric: MetricSpec, labels: Values) -> Iterator[tuple[LabelSet, Values]]:
    """Yield each label_set of a metric with its part of the labels."""
    start = 0
    for label_set in metric.label_sets:
        end = start + len(label_set.labels)
        yield label_set, labels[start:end]
        start = end
