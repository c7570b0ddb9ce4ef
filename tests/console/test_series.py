"""Time series: periods, rates and quantiles from the counters of a process."""

from __future__ import annotations

from proxy.console.series import (
    HOUR_S,
    SAMPLE_S,
    TimeSeries,
    estimate_quantile_ms,
)
from proxy.telemetry.metrics import Metrics
from tests.for_each import for_each

EDGES = (1.0, 2.0, 4.0)
REQUESTS = "headrace_requests_total"


def count_call(metrics: Metrics, deployment: str = "unknown") -> None:
    metrics.count(REQUESTS, deployment, "openai", "chat", "success", "false")


@for_each(
    ("share", "counts", "expected"),
    [
        (0.5, (10, 0, 0, 0), 500),
        (0.5, (0, 10, 0, 0), 1500),
        (0.99, (50, 49, 1, 0), 2000),
        (1.0, (0, 0, 0, 5), 4000),
        (0.5, (0, 0, 0, 0), None),
        (0.5, (), None),
    ],
)
def test_quantile_interpolates_within_a_bucket(
    share: float, counts: tuple[int, ...], expected: float | None
) -> None:
    assert estimate_quantile_ms(share, EDGES, counts) == expected


def test_periods_before_the_start_are_unknown_and_others_are_exact() -> None:
    now = [1_000_001.0]
    metrics = Metrics("1")
    series = TimeSeries(metrics, lambda: now[0])
    for _ in range(13):
        series.add_sample()
        now[0] += SAMPLE_S
        count_call(metrics)
    points = series.split_with_end_times(5, 60)

    assert [time for time, _ in points] == [1_000_065 - 5 * n for n in reversed(range(60))]
    assert [bool(period.samples) for _, period in points] == [False] * 46 + [True] * 14
    assert [period.count(REQUESTS, 3) for _, period in points[47:]] == [{("success",): 1}] * 13
    assert [period.seconds for _, period in points[47:]] == [SAMPLE_S] * 13


def test_period_has_only_the_increases_of_its_seconds() -> None:
    now = [0.0]
    metrics = Metrics("1")
    series = TimeSeries(metrics, lambda: now[0])
    for _ in range(800):  # more than an hour
        series.add_sample()
        now[0] += SAMPLE_S
        count_call(metrics)
        metrics.get_series("headrace_overhead_seconds", "unknown", "openai", "chat").observe(1.0)

    for seconds in (60, HOUR_S):
        period = series.get_last(seconds)
        assert period.total(REQUESTS) == period.count(REQUESTS)[()] == seconds / SAMPLE_S
        assert sum(period.sum_amounts("headrace_overhead_seconds")[()]) == seconds / SAMPLE_S
        assert period.seconds == seconds
    assert series.get_last(60).total("headrace_fallbacks_total") == 0
    assert HOUR_S < series.get_last(99_999).seconds <= HOUR_S + 3 * SAMPLE_S


def test_series_that_a_reload_dropped_starts_again_at_zero() -> None:
    now = [0.0]
    metrics = Metrics("1")
    labels = REQUESTS, "unknown", "openai", "chat", "success", "false"
    series = TimeSeries(metrics, lambda: now[0])
    metrics.get_series(*labels).value = 7.0
    series.add_sample()
    metrics.get_series(*labels).value = 3.0
    assert series.get_last(60).total(REQUESTS) == series.get_total(REQUESTS) == 10
    series.add_sample()
    metrics.get_series(*labels).value = 4.0
    assert series.get_last(60).total(REQUESTS) == series.get_total(REQUESTS) == 11


def test_bounds_the_stored_increases() -> None:
    now = [0.0]
    metrics = Metrics("1")
    series = TimeSeries(metrics, lambda: now[0], max_increases=10)
    for _ in range(25):
        now[0] += SAMPLE_S
        count_call(metrics)
        series.add_sample()
    assert series.get_last(HOUR_S).total(REQUESTS) == 10
