"""Expressions over metrics that the proxy declares: a wrong name or label stops the build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.telemetry.catalog import METRICS

LABELS: Mapping[str, tuple[str, ...]] = {metric.name: metric.labels for metric in METRICS}
HISTOGRAMS = frozenset(metric.name for metric in METRICS if metric.kind == "histogram")
SCRAPED = ("instance", "job")  # what Prometheus adds
PARTS = ("_bucket", "_sum", "_count")
OPERATORS = ("!~", "!=", "=~")
PROCESS = "process_start_time_seconds"  # one series of each process, with every scrape


def labels_of(series: str) -> tuple[str, ...]:
    """Give the labels of a series by its scraped name. Raises ``KeyError`` for an unknown one."""
    for part in PARTS:
        whole = series.removesuffix(part)
        if whole != series and whole in HISTOGRAMS:
            return (*LABELS[whole], "le") if part == "_bucket" else LABELS[whole]
    if series in HISTOGRAMS:
        raise KeyError(f"{series} is a histogram: name its _bucket, _sum or _count")
    return LABELS[series]


@dataclass(frozen=True, slots=True)
class Selecting:
    """Gives selectors that follow a dashboard's variables, wherever a metric has their label."""

    variables: tuple[str, ...] = ()

    def __call__(self, name: str, *ignored: str, **wanted: str) -> str:
        """Select ``headrace_<name>``.

        ``wanted`` are values, or patterns that begin with ``=~``, ``!~`` or ``!=``; ``ignored``
        are variables that this selector does not follow.
        """
        series = f"headrace_{name}"
        labels = labels_of(series)
        for label in (*wanted, *ignored):
            if label not in labels:
                raise KeyError(f"{series} has no label {label}")
        followed = [v for v in self.variables if v in labels and v not in (*wanted, *ignored)]
        matchers = [f'{label}=~"${label}"' for label in followed]
        matchers += [_matcher(label, value) for label, value in wanted.items()]
        return f"{series}{{{', '.join(matchers)}}}" if matchers else series


def _matcher(label: str, value: str) -> str:
    for operator in OPERATORS:
        if value.startswith(operator):
            return f'{label}{operator}"{value.removeprefix(operator)}"'
    return f'{label}="{value}"'


def by(labels: str, inner: str, how: str = "sum") -> str:
    """Aggregate by labels, or to one number where there are none."""
    return f"{how} by ({labels}) ({inner})" if labels else f"{how}({inner})"


def rate(selector: str) -> str:
    return f"rate({selector}[$__rate_interval])"


def grown(selector: str) -> str:
    """Give by how much counters grew within the range shown.

    ``increase`` alone misses the first count of a series that began within the range, so such a
    one counts whole, unless a restart made that the smaller number. One that only has no sample
    where the range begins has not begun there: it counts whole where its process began within the
    range, or where that was seen more often than the series was.
    """
    own = ", ".join(labels_of(selector.partition("{")[0]))
    whole = f"({selector} unless {selector} offset $__range)"
    seen = f"count_over_time({selector}[$__range])"
    process = f"{PROCESS}[$__range]"
    later = f"{seen} < ignoring ({own}) group_left () count_over_time({process})"
    first = f"{selector} and ignoring ({own}) {PROCESS} > time() - $__range_s"
    new = f"({whole} and ({later} or {first}))"
    increase = f"increase({selector}[$__range])"
    return f"({increase} > {new} or {new} or {increase})"


def quantile(share: float, buckets: str, labels: str = "") -> str:
    grouped = f"{labels}, le" if labels else "le"
    return f"histogram_quantile({share}, {by(grouped, rate(buckets))})"


def ratio(part: str, whole: str) -> str:
    """Divide, and say nothing where there was nothing."""
    return f"{part} / ({whole} > 0)"


def zero(total: str) -> str:
    """Show 0 where nothing was counted yet, for one number."""
    return f"({total} or vector(0))"


def some(expr: str, label: str) -> str:
    """Show what is more than nothing, and ``none`` where nothing is."""
    return f'({expr} > 0 or on() label_replace(vector(0), "{label}", "none", "", ""))'


def lively(selector: str, labels: str) -> str:
    """Give the rates by labels, of those alone that counted something within the range shown;
    where none did, 0 for ``none``."""
    any_of = f"{by(labels, f'increase({selector}[$__range] @ end())')} > 0"
    none = f'label_replace(vector(0), "{labels.split(",", maxsplit=1)[0]}", "none", "", "")'
    seen = f"{by(labels, rate(selector))} and on ({labels}) {any_of}"
    return f"{seen} or on () ({none} unless on () {any_of})"
