"""Time series of the last hour, and the other parts of the process that the pages read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from proxy.call.attempts import CallOutcome
from proxy.limits.stores.store import CounterStore
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.compare import CandidateSink
from proxy.policy.store import PolicyStore
from proxy.runtime.frozen import frozen
from proxy.telemetry.metrics import Metrics
from proxy.upstream.health import Health

SAMPLE_S = 5
MAX_SAMPLES = 3600 // SAMPLE_S + 1
TOTALS_EVERY = 60 // SAMPLE_S
"""Samples between two sets of ``Totals``, which are larger."""
MAX_TOTALS = 62
MAX_SERIES = 5000
"""Totals are not stored beyond this number of series."""
RANGES: Mapping[str, tuple[int, int]] = {"5m": (5, 60), "15m": (10, 90), "1h": (30, 120)}
"""Seconds of a point, and number of points, of each range."""
OUTCOMES: tuple[str, ...] = get_args(CallOutcome)
VERDICTS = ("blocked", "masked", "flagged", "failed")
HIT_RESULTS = frozenset({"hit", "hit_semantic"})
TOTALED_COUNTERS = (
    "headrace_upstream_attempts_total",
    "headrace_upstream_repeats_total",
    "headrace_upstream_skipped_total",
    "headrace_fallbacks_total",
    "headrace_policy_rules_total",
    "headrace_policy_shadow_rules_total",
    "headrace_guard_decisions_total",
    "headrace_limit_decisions_total",
    "headrace_requests_total",
)
DURATION_METRIC = "headrace_upstream_request_duration_seconds"
Labels = tuple[str, ...]
Buckets = tuple[int, ...]


class Sample(NamedTuple):
    """Counters and histograms at a time in seconds since 1970. Money is in USD."""

    time: float
    counters: Mapping[str, float]
    histograms: Mapping[str, Buckets]
    in_flight: float


class Totals(NamedTuple):
    """Counters by metric and labels, and durations of requests by upstream and model."""

    time: float
    counters: Mapping[str, Mapping[Labels, float]]
    durations: Mapping[Labels, Buckets]

    def sum_by_labels(self, name: str, *positions: int) -> dict[Labels, float]:
        """Return the sums of a counter by the labels at these positions."""
        sums: dict[Labels, float] = {}
        for labels, value in self.counters.get(name, {}).items():
            key = tuple(labels[position] for position in positions)
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def compute_increase(self, earlier: Totals, name: str, *positions: int) -> dict[Labels, float]:
        """Return the increase of a counter since ``earlier``, by the labels at these positions."""
        counts = earlier.sum_by_labels(name, *positions)
        return {
            labels: count - counts.get(labels, 0.0)
            for labels, count in self.sum_by_labels(name, *positions).items()
        }


class TimeSeries:
    """Samples of the last hour. ``now`` returns seconds since 1970.

    Methods may run in any thread; only one may call ``add_sample``.
    """

    def __init__(self, metrics: Metrics, now: Callable[[], float]) -> None:
        self._metrics = metrics
        self._now = now
        self.started_at = now()
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._totals: deque[Totals] = deque(maxlen=MAX_TOTALS)
        self._until_totals = 0

    def add_sample(self) -> None:
        """Add a sample. Call it every ``SAMPLE_S`` seconds."""
        self._samples.append(self.make_sample())
        if self._until_totals <= 0:
            self._until_totals = TOTALS_EVERY
            totals = self.make_totals()
            if sum(map(len, totals.counters.values())) <= MAX_SERIES:
                self._totals.append(totals)
        self._until_totals -= 1

    def make_sample(self) -> Sample:
        """Return a sample of now."""
        series = self._metrics.copy_series
        verdicts = series("headrace_guard_decisions_total").items()
        enforced = {labels: counter for labels, counter in verdicts if labels[3] == "false"}
        lookups = _sum_by_label(series("headrace_cache_lookups_total"), 1)
        return Sample(
            time=self._now(),
            counters={
                **_sum_by_label(series("headrace_requests_total"), 3),
                **{f"guard_{verdict}": n for verdict, n in _sum_by_label(enforced, 2).items()},
                "spend": _sum_values(series("headrace_money_usd_total")),
                "saved": _sum_values(series("headrace_cache_saved_usd_total")),
                "lookups": sum(lookups.values()),
                "hits": sum(lookups.get(name, 0.0) for name in HIT_RESULTS),
            },
            histograms={
                "first_token": _sum_buckets(
                    series("headrace_time_to_first_token_seconds").values()
                ),
                "overhead": _sum_buckets(series("headrace_overhead_seconds").values()),
            },
            in_flight=_sum_values(series("headrace_inflight_requests")),
        )

    def make_totals(self, names: Iterable[str] = TOTALED_COUNTERS) -> Totals:
        """Return the totals of now."""
        counters = {
            name: {
                labels: series.value for labels, series in self._metrics.copy_series(name).items()
            }
            for name in names
        }
        durations = {
            labels: tuple(series.counts)
            for labels, series in self._metrics.copy_series(DURATION_METRIC).items()
        }
        return Totals(self._now(), counters, durations)

    def find_totals_before(self, seconds: float) -> Totals:
        """Return the totals of at least so many seconds ago, or those of the start."""
        latest = self._now() - seconds
        for totals in reversed(tuple(self._totals)):
            if totals.time <= latest:
                return totals
        return Totals(self.started_at, {}, {})

    def count_denied_calls(self) -> dict[str, int]:
        """Return how many calls each limit refused in the last hour."""
        name, earlier = "headrace_limit_decisions_total", self.find_totals_before(3600)
        increase = self.make_totals([name]).compute_increase(earlier, name, 0, 1)
        return {limit: round(n) for (limit, decision), n in increase.items() if decision == "deny"}

    def iter_points(self, range_name: str) -> Iterator[tuple[float, Sample | None, Sample | None]]:
        """Yield the end of each point of a range, with the samples at its start and its end.

        Samples are None before the start of the process.
        """
        step, count = RANGES[range_name]
        samples = [*self._samples, self.make_sample()]
        end = self._now() // step * step
        index = 0
        previous: Sample | None = None
        for number in range(-count, 1):
            time = end + number * step
            while index < len(samples) and samples[index].time <= time + SAMPLE_S / 2:
                index += 1
            sample = samples[index - 1] if index else None
            if previous is None and index > 1:
                previous = samples[0]  # the start of the process
            if number > -count:
                yield time, previous, sample
            previous = sample


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

    @property
    def snapshot(self) -> Snapshot:
        return self.policies.current


def estimate_quantile(
    share: float, edges: Sequence[float], old_buckets: Buckets, new_buckets: Buckets
) -> float | None:
    """Return a quantile of the values between two samples of a histogram. None without values."""
    old_buckets = old_buckets or (0,) * len(new_buckets)
    counts = [new - old for old, new in zip(old_buckets, new_buckets, strict=True)]
    rank = share * sum(counts)
    if not rank:
        return None
    low = 0.0
    for edge, count in zip(edges, counts, strict=False):
        if count and rank <= count:
            return low + (edge - low) * rank / count
        rank -= count
        low = edge
    return edges[-1]


def _sum_by_label(series: Mapping[Labels, Any], position: int) -> dict[str, float]:
    sums: dict[str, float] = {}
    for labels, counter in series.items():
        sums[labels[position]] = sums.get(labels[position], 0.0) + counter.value
    return sums


def _sum_values(series: Mapping[Labels, Any]) -> float:
    return sum([float(counter.value) for counter in series.values()])


def _sum_buckets(histograms: Any) -> Buckets:
    return tuple(map(sum, zip(*(histogram.counts for histogram in histograms), strict=True)))
