"""Time series: points, rates and quantiles from the counters of a process."""

from __future__ import annotations

from proxy.console.series import MAX_SERIES, RANGES, SAMPLE_S, TimeSeries, estimate_quantile
from proxy.limits.kinds import KINDS
from proxy.telemetry.metrics import Metrics
from proxy.types.limit import Limit
from proxy.types.roster import DeploymentLabels, LabelCatalog
from tests.for_each import for_each

EDGES = (1.0, 2.0, 4.0)


@for_each(
    ("share", "before", "after", "expected"),
    [
        (0.5, (0, 0, 0, 0), (10, 0, 0, 0), 0.5),
        (0.5, (10, 0, 0, 0), (10, 10, 0, 0), 1.5),
        (0.99, (), (50, 49, 1, 0), 2.0),
        (1.0, (0, 0, 0, 0), (0, 0, 0, 5), 4.0),
        (0.5, (1, 2, 3, 4), (1, 2, 3, 4), None),
    ],
)
def test_quantile_interpolates_within_a_bucket(
    share: float, before: tuple[int, ...], after: tuple[int, ...], expected: float | None
) -> None:
    assert estimate_quantile(share, EDGES, before, after) == expected


def test_points_before_the_start_are_unknown_and_others_are_exact() -> None:
    now = [1_000_001.0]
    metrics = Metrics("1")
    series = TimeSeries(metrics, lambda: now[0])
    for _ in range(13):
        series.add_sample()
        now[0] += SAMPLE_S
        metrics.count("headrace_requests_total", "unknown", "openai", "chat", "success", "false")
    iter_points = list(series.iter_points("5m"))

    assert len(iter_points) == RANGES["5m"][1]
    changes = [
        None
        if before is None or after is None
        else after.counters["success"] - before.counters.get("success", 0.0)
        for _, before, after in iter_points
    ]
    assert sum(change for change in changes if change is not None) == 13
    assert changes[:46] == [None] * 46


def test_totals_are_those_of_at_least_so_many_seconds_ago() -> None:
    now = [0.0]
    metrics = Metrics("1")
    series = TimeSeries(metrics, lambda: now[0])
    for _ in range(800):  # more than an hour
        series.add_sample()
        now[0] += SAMPLE_S
        metrics.count("headrace_requests_total", "unknown", "openai", "chat", "success", "false")

    before = series.find_totals_before(3600)
    assert 3600 <= now[0] - before.time <= 3600 + 60
    assert (
        sum(before.sum_by_labels("headrace_requests_total", 3).values()) == before.time / SAMPLE_S
    )
    assert series.find_totals_before(99_999).time == 0.0


def test_limits_count_the_denials_of_the_last_hour_only() -> None:
    now = [0.0]
    metrics = Metrics("1")
    limit = Limit("team-day", KINDS["requests"], 1, 86_400)
    deployment = DeploymentLabels(limits=(limit,))
    metrics.allow_policy_labels(LabelCatalog(deployments={"support-chat": deployment}))()
    series = TimeSeries(metrics, lambda: now[0])
    metrics.count("headrace_limit_decisions_total", "team-day", "deny")
    series.add_sample()
    assert series.count_denied_calls() == {"team-day": 1}

    for _ in range(3700 // SAMPLE_S):
        now[0] += SAMPLE_S
        series.add_sample()
    metrics.count("headrace_limit_decisions_total", "team-day", "deny")
    metrics.count("headrace_limit_decisions_total", "team-day", "deny")
    assert series.count_denied_calls() == {"team-day": 2}


def test_totals_of_too_many_series_are_not_kept() -> None:
    names = [f"d{number}" for number in range(MAX_SERIES)]
    metrics = Metrics("1")
    metrics.allow_policy_labels(
        LabelCatalog(deployments={name: DeploymentLabels() for name in names})
    )()
    series = TimeSeries(metrics, lambda: 10_000.0)
    series.add_sample()

    assert series.find_totals_before(0).counters == {}
