"""PromQL over metrics of the proxy. An undeclared name or label raises ``KeyError``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.telemetry.catalog.table import METRICS

LABELS: Mapping[str, tuple[str, ...]] = {metric.name: metric.labels for metric in METRICS}
HISTOGRAMS = frozenset(metric.name for metric in METRICS if metric.kind == "histogram")
SCRAPED = ("instance", "job")  # labels that Prometheus adds
SUFFIXES = ("_bucket", "_sum", "_count")
OPERATORS = ("!~", "!=", "=~")
PROCESS = "process_start_time_seconds"  # one series per process


def labels_of(series: str) -> tuple[str, ...]:
    """Return the labels of a series. Raises ``KeyError`` if it is not declared."""
    for suffix in SUFFIXES:
        name = series.removesuffix(suffix)
        if name != series and name in HISTOGRAMS:
            return (*LABELS[name], "le") if suffix == "_bucket" else LABELS[name]
    if series in HISTOGRAMS:
        raise KeyError(f"{series} is a histogram: use its _bucket, _sum or _count")
    return LABELS[series]


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects metrics by the variables of a dashboard that are labels of the metric."""

    variables: tuple[str, ...] = ()

    def __call__(self, name: str, *unfiltered: str, **values: str) -> str:
        """Select ``headrace_<name>``.

        ``values`` may begin with an operator: ``=~``, ``!~`` or ``!=``. Variables in
        ``unfiltered`` are ignored.
        """
        series = f"headrace_{name}"
        labels = labels_of(series)
        for label in (*values, *unfiltered):
            if label not in labels:
                raise KeyError(f"{series} has no label {label}")
        matchers = [
            f'{name}=~"${name}"'
            for name in self.variables
            if name in labels and name not in (*values, *unfiltered)
        ]
        matchers += [_matcher(label, value) for label, value in values.items()]
        return f"{series}{{{', '.join(matchers)}}}" if matchers else series


def _matcher(label: str, value: str) -> str:
    for operator in OPERATORS:
        if value.startswith(operator):
            return f'{label}{operator}"{value.removeprefix(operator)}"'
    return f'{label}="{value}"'


def by(labels: str, expr: str, operator: str = "sum") -> str:
    """Aggregate by labels, or to one number without labels."""
    return f"{operator} by ({labels}) ({expr})" if labels else f"{operator}({expr})"


def rate(selector: str) -> str:
    return f"rate({selector}[$__rate_interval])"


def increase(selector: str) -> str:
    """Return the increase of counters within the time range, including their first value.

    PromQL's ``increase`` ignores the first value of a series that starts within the range. A series
    without a sample at the start of the range counts with its full value if its process started
    within the range, or has more samples than the series. After a restart the larger number counts.
    """
    labels = ", ".join(labels_of(selector.partition("{")[0]))
    full_value = f"({selector} unless {selector} offset $__range)"
    samples = f"count_over_time({selector}[$__range])"
    process_samples = f"count_over_time({PROCESS}[$__range])"
    is_later = f"{samples} < ignoring ({labels}) group_left () {process_samples}"
    is_first = f"{selector} and ignoring ({labels}) {PROCESS} > time() - $__range_s"
    new = f"({full_value} and ({is_later} or {is_first}))"
    prometheus_increase = f"increase({selector}[$__range])"
    return f"({prometheus_increase} > {new} or {new} or {prometheus_increase})"


def quantile(share: float, buckets: str, labels: str = "") -> str:
    grouped = f"{labels}, le" if labels else "le"
    return f"histogram_quantile({share}, {by(grouped, rate(buckets))})"


def ratio(part: str, total: str) -> str:
    """Divide. The result is empty where the total is 0."""
    return f"{part} / ({total} > 0)"


def or_zero(total: str) -> str:
    """Return 0 instead of an empty number."""
    return f"({total} or vector(0))"


def positive(expr: str, label: str) -> str:
    """Keep values above 0. Without any, return 0 with the label value ``none``."""
    return f'({expr} > 0 or on() label_replace(vector(0), "{label}", "none", "", ""))'


def active_rates(selector: str, labels: str) -> str:
    """Return rates of series that increase within the time range, or 0 for ``none``."""
    active = f"{by(labels, f'increase({selector}[$__range] @ end())')} > 0"
    first_label = labels.split(",", maxsplit=1)[0]
    fallback = f'label_replace(vector(0), "{first_label}", "none", "", "")'
    rates = f"{by(labels, rate(selector))} and on ({labels}) {active}"
    return f"{rates} or on () ({fallback} unless on () {active})"
