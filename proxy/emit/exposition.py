"""What a scrape is shown. It brings thirty modules of a library that no call asks for: they are
imported once the process listens."""

from __future__ import annotations

from collections.abc import Iterator

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

from proxy.emit.declared.metric import Bucket
from proxy.emit.registry import Children, Registry


class Exposition(Collector):
    """A registry of ours, and what the process takes, in each form that a scrape may accept."""

    def __init__(self, series: Registry) -> None:
        self._series = series
        self._exposed = CollectorRegistry()
        self._exposed.register(self)
        ProcessCollector(registry=self._exposed)

    def collect(self) -> Iterator[Metric]:
        return map(family, self._series.collect())

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return it in the best form that is accepted, and its media type."""
        encoder, media_type = choose_encoder(accept)
        return encoder(self._exposed), media_type


def family(children: Children) -> Metric:
    """Return a metric as it is scraped, from its children by their labels."""
    metric, values = children
    if metric.kind == "histogram":
        spreads = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, spread in values:
            if any(spread.counts) or not labels:  # of many labels most are empty, in many lines
                spreads.add_metric(labels, list(map(_bucket, spread.buckets())), spread.sum)
        return spreads
    made = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    numbers = made(metric.name, metric.help, labels=metric.labels)
    for labels, number in values:
        numbers.add_metric(labels, number.value)
    return numbers


def _bucket(bucket: Bucket) -> tuple[str, float] | tuple[str, float, Exemplar]:
    edge, count, trace = bucket
    if trace is None:
        return edge, count
    return edge, count, Exemplar({"trace_id": trace[0]}, trace[1])
