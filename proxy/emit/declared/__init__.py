"""Every metric, declared once: name, kind, labels, help, edges of buckets, and what bounds it.

Label values come from the policies or from closed sets, never from a client; what is neither is
``other``, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.emit.declared import calls, policy, process
from proxy.emit.declared.metric import Declared, closed, counter
from proxy.types.roster import Roster

_TABLE = (*calls.METRICS, *policy.METRICS, *process.METRICS)
_LABELS = sorted({label for metric in _TABLE for label in metric.labels} | {"label"})
OVERFLOW = counter(
    "headrace_label_overflow_total",
    "Values that were no part of a label's bounded set, and were counted as other.",
    (closed("label", *_LABELS),),
)
METRICS: tuple[Declared, ...] = (*_TABLE, OVERFLOW)


def declared() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Return name, kind, labels and help of each metric, for the reference."""
    for metric in METRICS:
        yield metric.name, metric.kind, metric.labels, metric.help


def bounds(roster: Roster) -> Iterator[str]:
    """Return a line for each metric with the most series that it can have under these names, and a
    last one with their sum."""
    counted = [(metric, metric.worst(roster)) for metric in METRICS]
    wide = max(len(metric.name) for metric in METRICS)
    yield f"{'METRIC':<{wide}}  {'KIND':<9}  SERIES  LABELS"
    for metric, worst in counted:
        labels = ", ".join(metric.labels)
        yield f"{metric.name:<{wide}}  {metric.kind:<9}  {worst:>6}  {labels}".rstrip()
        yield f"    {metric.help}"
    total = sum(worst for _, worst in counted)
    begin = sum(len([*metric.usual(roster)]) * metric.lines for metric in METRICS)
    yield f"{total} series at the most, {begin} at the start"
