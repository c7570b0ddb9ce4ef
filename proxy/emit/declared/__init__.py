"""Every metric, declared once: name, kind, labels, help, edges of buckets, and what bounds it.

Label values come from the policies or from closed sets, never from a client; what is neither is
``other``, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.emit.declared import calls, money, policy, process, upstreams
from proxy.emit.declared.metric import Declared, closed

_TABLE = (
    *calls.METRICS,
    *money.METRICS,
    *upstreams.METRICS,
    *policy.METRICS,
    *process.METRICS,
)
_LABELS = sorted({label for metric in _TABLE for label in metric.labels} | {"label"})
OVERFLOW = Declared(
    "headrace_label_overflow_total",
    "counter",
    (closed("label", *_LABELS),),
    "Values that were no part of a label's bounded set, and were counted as other.",
)
METRICS: tuple[Declared, ...] = (*_TABLE, OVERFLOW)


def declared() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Give name, kind, labels and help of each metric, for the reference."""
    for metric in METRICS:
        yield metric.name, metric.kind, metric.labels, metric.help
