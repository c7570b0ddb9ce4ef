"""Catalog of all metrics.

Label values come from the policies or from closed sets, never from a client. Others: ``other``.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.telemetry.catalog.spec import MetricSpec, closed, counter
from proxy.telemetry.catalog.table import CALLS, POLICIES, PROCESS
from proxy.types.roster import LabelCatalog

_TABLE = (*CALLS, *POLICIES, *PROCESS)
_LABELS = sorted({label for metric in _TABLE for label in metric.labels} | {"label"})
OVERFLOW = counter(
    "headrace_label_overflow_total",
    "Values outside the allowed set of a label, which were counted as `other`.",
    closed("label", *_LABELS),
)
METRICS: tuple[MetricSpec, ...] = (*_TABLE, OVERFLOW)


def bounds(roster: LabelCatalog) -> Iterator[str]:
    """Yield a text table of the metrics with the most series that each can have under a roster."""
    width = max(len(metric.name) for metric in METRICS)
    yield f"{'METRIC':<{width}}  {'KIND':<9}  SERIES  LABELS"
    total = 0
    for metric in METRICS:
        total += (series := metric.max_series(roster))
        labels = ", ".join(metric.labels)
        yield f"{metric.name:<{width}}  {metric.kind:<9}  {series:>6}  {labels}".rstrip()
        yield f"    {metric.help}"
    initial = sum(len([*metric.initial(roster)]) * metric.lines for metric in METRICS)
    yield f"{total} series at the most, {initial} at the start"
