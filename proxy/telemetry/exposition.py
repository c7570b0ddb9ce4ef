"""Exposition of metrics. Imported once the process listens: it loads 30 modules for scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from proxy.telemetry.catalog import MetricSpec
from proxy.telemetry.catalog.labels import Values

Series = list[tuple[Values, Any]]


class Exposition(Collector):
    """Renders the series that ``read`` yields, and prometheus-client's process metrics."""

    def __init__(self, read: Callable[[], Iterator[tuple[MetricSpec, Series]]]) -> None:
        self._read = read
        self._collectors = CollectorRegistry()
        self._collectors.register(self)
        ProcessCollector(registry=self._collectors)

    def collect(self) -> Iterator[Metric]:
        return (make_metric_family(metric, series) for metric, series in self._read())

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the exposition in the best accepted format, and its media type."""
        encoder, media_type = choose_encoder(accept)
        return encoder(self._collectors), media_type


def make_metric_family(metric: MetricSpec, series: Series) -> Metric:
    """Return the family of a metric. Empty histograms with labels are omitted."""
    if metric.kind != "histogram":
        cls = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        numbers = cls(metric.name, metric.help, labels=metric.labels)
        for labels, number in series:
            numbers.add_metric(labels, number.value)
        return numbers
    histograms = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, histogram in series:
        if any(histogram.counts) or not labels:
            buckets: list[Any] = [
                (edge, count, Exemplar({"trace_id": trace[0]}, trace[1]) if trace else None)
                for edge, count, trace in histogram.buckets()
            ]
            histograms.add_metric(labels, buckets, histogram.sum)
    return histograms
