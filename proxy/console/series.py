"""Time series of the last hour, and the objects that the console's pages read."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add, sub
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from proxy.limits.stores.store import CounterStore
from proxy.policy.review.compare import CandidateSink
from proxy.policy.store import PolicyStore
from proxy.runtime.frozen import frozen
from proxy.telemetry.metrics import Metrics
from proxy.upstream.health import Health

SAMPLE_S = 5
HOUR_S = 3600
MAX_INCREASES = 300_000
"""Stored increases of series. Beyond it the oldest samples are dropped."""
SAMPLED_METRICS = (
    "headrace_cache_lookups_total",
    "headrace_cache_saved_usd_total",
    "headrace_fallbacks_total",
    "headrace_guard_decisions_total",
    "headrace_limit_decisions_total",
    "headrace_money_usd_total",
    "headrace_overhead_seconds",
    "headrace_policy_rules_total",
    "headrace_policy_shadow_rules_total",
    "headrace_requests_total",
    "headrace_time_to_first_token_seconds",
    "headrace_upstream_attempts_total",
    "headrace_upstream_repeats_total",
    "headrace_upstream_request_duration_seconds",
    "headrace_upstream_skipped_total",
)
Labels = tuple[str, ...]
Amounts = tuple[float, ...]
"""Number of a counter, or counts by bucket of a histogram."""
SeriesByMetric = Mapping[str, Mapping[Labels, Amounts]]


class Sample(NamedTuple):
    """Increases since the previous sample. Times are seconds since 1970."""

    start: float
    end: float
    increases: SeriesByMetric
    in_flight: float


@frozen
class Period:
    """Increases of counters and histograms during consecutive samples, if there are any."""

    samples: Sequence[Sample]

    @property
    def seconds(self) -> float:
        """Duration, at least 1 s so that rates have a divisor."""
        return max(1.0, sum(sample.end - sample.start for sample in self.samples))

    def sum_amounts(self, name: str, *positions: int) -> dict[Labels, Amounts]:
        """Return the increase of a metric by the labels at these positions."""
        sums: dict[Labels, Amounts] = {}
        for sample in self.samples:
            for labels, amounts in sample.increases.get(name, {}).items():
                key = tuple(labels[position] for position in positions)
                sums[key] = tuple(map(add, sums[key], amounts)) if key in sums else amounts
        return sums

    def count(self, name: str, *positions: int) -> dict[Labels, int]:
        """Return the increase of a counter by the labels at these positions."""
        amounts = self.sum_amounts(name, *positions)
        return {labels: round(amount) for labels, [amount] in amounts.items()}

    def total(self, name: str) -> float:
        """Return the increase of a counter over all labels."""
        return sum(self.sum_amounts(name).get((), ()))


class TimeSeries:
    """Samples of the last hour. ``now`` returns seconds since 1970. Methods run in any thread."""

    def __init__(
        self, metrics: Metrics, now: Callable[[], float], max_increases: int = MAX_INCREASES
    ) -> None:
        self._metrics = metrics
        self._now = now
        self._max_increases = max_increases
        self.started_at = self._sampled_at = now()
        self._amounts: SeriesByMetric = {}
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._samples: deque[Sample] = deque()
        self._lock = Lock()

    def add_sample(self) -> None:
        """Add a sample. Call it every ``SAMPLE_S`` seconds."""
        with self._lock:
            amounts = self._read_amounts()
            sample = self._make_sample(amounts)
            self._samples.append(sample)
            self._amounts, self._sampled_at = amounts, sample.end
            for name in sample.increases:
                self._totals[name] += Period([sample]).total(name)
            size = sum(len(series) for s in self._samples for series in s.increases.values())
            first_end = sample.end - HOUR_S - SAMPLE_S
            while size > self._max_increases or self._samples[0].end < first_end:
                size -= sum(map(len, self._samples.popleft().increases.values()))

    def list_samples(self) -> list[Sample]:
        """Return the samples, and one of the time since the last of them."""
        with self._lock:
            return [*self._samples, self._make_sample(self._read_amounts())]

    def get_total(self, name: str) -> float:
        """Return a counter since the start, with the series that a reload has dropped."""
        with self._lock:
            sample = self._make_sample(self._read_amounts([name]))
            return self._totals[name] + Period([sample]).total(name)

    def get_last(self, seconds: float) -> Period:
        """Return the increases of the last seconds, at most an hour."""
        first = self._now() - seconds
        return Period([sample for sample in self.list_samples() if sample.end > first])

    def split_with_end_times(self, step: int, count: int) -> list[tuple[float, Period]]:
        """Return the last periods of ``step`` seconds, each with its end, the oldest first.

        Periods before the start of the process have no samples.
        """
        end = self._now() // step * step
        periods: defaultdict[int, list[Sample]] = defaultdict(list)
        for sample in self.list_samples():
            periods[math.ceil((sample.end - SAMPLE_S / 2 - end) / step)].append(sample)
        return [(end + n * step, Period(periods[n])) for n in range(1 - count, 1)]

    def _make_sample(self, amounts: SeriesByMetric) -> Sample:
        increases: dict[str, dict[Labels, Amounts]] = {}
        for name, series in amounts.items():
            previous = self._amounts.get(name, {})
            for labels, new in series.items():
                old = previous.get(labels, ())
                if new != old and any(new):
                    # A series that a reload dropped starts again at zero.
                    is_new = sum(new) < sum(old) or not old
                    increase = new if is_new else tuple(map(sub, new, old))
                    increases.setdefault(name, {})[labels] = increase
        in_flight = self._metrics.get_series("headrace_inflight_requests").value
        return Sample(self._sampled_at, self._now(), increases=increases, in_flight=in_flight)

    def _read_amounts(self, names: Iterable[str] = SAMPLED_METRICS) -> SeriesByMetric:
        return {
            name: {
                labels: tuple(getattr(series, "counts", ())) or (series.value,)
                for labels, series in self._metrics.copy_series(name).items()
            }
            for name in names
        }


@frozen
class Sources:
    """Parts of the process. ``now`` returns seconds since 1970.

    ``folder`` and ``candidate_folder`` are the policy folders. ``ledger`` is None without a SQLite
    ledger. ``listen`` returns the address at which calls are served.
    """

    policies: PolicyStore
    folder: Path
    candidate: CandidateSink | None
    candidate_folder: Path | None
    metrics: Metrics
    series: TimeSeries
    health: Health
    counters: CounterStore
    ledger: Path | None
    listen: Callable[[], str]
    now: Callable[[], float]


def to_epoch_ms(seconds: float) -> int:
    """Return milliseconds since 1970."""
    return round(seconds * 1000)


def estimate_quantile_ms(share: float, edges: Sequence[float], counts: Amounts) -> float | None:
    """Return a quantile of a histogram of seconds, given counts by bucket. None without any."""
    rank = share * sum(counts)
    if not rank:
        return None
    for low, edge, count in zip((0.0, *edges), edges, counts, strict=False):
        if count and rank <= count:
            return 1000 * (low + (edge - low) * rank / count)
        rank -= count
    return 1000 * edges[-1]
