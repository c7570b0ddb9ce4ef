"""The overview page: traffic of the last minutes, upstreams, limits and what needs attention."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel

import proxy
from proxy.call.attempts import CallOutcome
from proxy.console import Data
from proxy.console.series import (
    Labels,
    Period,
    Sources,
    TimeSeries,
    estimate_quantile,
    sum_series,
)
from proxy.errors.words import format_count
from proxy.money.usage import NANO_PER_USD
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.source import Rejection
from proxy.policy.store import PolicyStore
from proxy.telemetry.catalog.table import BUCKETS_S, LONG_BUCKETS_S, SHORT_BUCKETS_S
from proxy.telemetry.metrics import CIRCUIT_VALUES

RANGES = {"5m": (5, 60), "15m": (10, 90), "1h": (30, 120)}
"""Seconds of a point, and number of points, of each range."""
OUTCOMES: tuple[str, ...] = get_args(CallOutcome)
VERDICTS = ("blocked", "masked", "flagged", "failed")
SECONDS_EDGES_MS, SHORT_EDGES_MS, LONG_EDGES_MS = (
    [1000 * edge for edge in edges] for edges in (BUCKETS_S, SHORT_BUCKETS_S, LONG_BUCKETS_S)
)
QUANTILES = {
    "first_token_p50_ms": ("headrace_time_to_first_token_seconds", 0.5, SECONDS_EDGES_MS),
    "first_token_p99_ms": ("headrace_time_to_first_token_seconds", 0.99, SECONDS_EDGES_MS),
    "overhead_p50_ms": ("headrace_overhead_seconds", 0.5, SHORT_EDGES_MS),
    "overhead_p99_ms": ("headrace_overhead_seconds", 0.99, SHORT_EDGES_MS),
}
"""Histogram, share and edges of buckets of each quantile in the charts."""
NO_FAILURES = frozenset({"1xx", "2xx", "3xx", "4xx", "cancelled"})
"""Results of attempts that are not failures of the upstream."""
SPENT_SHARE = 0.995
CIRCUIT_NAMES = {int(value): name for name, value in CIRCUIT_VALUES.items()}
Limits = Sequence[Mapping[str, Any]] | None


class RangeQuery(BaseModel):
    """The time that the charts show."""

    range: Literal["5m", "15m", "1h"] = "15m"


def build_overview(sources: Sources, range_name: str, limits: Limits) -> Data:
    """Return the page for a range of ``RANGES``. Times are milliseconds since 1970."""
    series = sources.series
    step, count = RANGES[range_name]
    period = series.get_last(step * count)
    upstreams = list(_make_upstream_rows(sources, period))
    outcomes = period.count("headrace_requests_total", 3)
    reasons = period.count("headrace_upstream_repeats_total", 2)
    spend, saved = (
        round(series.get_total(name) * NANO_PER_USD)
        for name in ("headrace_money_usd_total", "headrace_cache_saved_usd_total")
    )
    return {
        "now": to_epoch_ms(sources.now()),
        "instance": {
            "name": socket.gethostname(),
            "version": proxy.__version__,
            "listen": sources.listen(),
            "started": to_epoch_ms(series.started_at),
        },
        "deployment": _find_example_deployment(sources.snapshot),
        "series": _make_charts(series, step, count),
        "spend": {"nano": spend, "saved_nano": saved},
        "calls": round(series.get_total("headrace_requests_total")),
        "in_flight": sum_series(sources.metrics, "headrace_inflight_requests"),
        "upstreams": upstreams,
        "outcomes": {outcome: n for (outcome,), n in outcomes.items()},
        "retries": {reason: n for (reason,), n in reasons.items()},
        "fallbacks": period.total("headrace_fallbacks_total"),
        "skipped": period.total("headrace_upstream_skipped_total"),
        "limits": limits,
        "policy": {
            **make_revision_data(sources.policies),
            "candidate": sources.candidate and sources.candidate.get_snapshot().revision,
        },
        "attention": list(_find_alerts(sources.policies, upstreams, limits)),
    }


def _make_charts(series: TimeSeries, step: int, count: int) -> Data:
    """Return a list of values for each line of a chart, None before the start of the process."""
    points = [
        (time, _make_point(period) if period.samples else {})
        for time, period in series.split_with_end_times(step, count)
    ]

    def values(name: str) -> list[float | None]:
        return [point.get(name) for _, point in points]

    return {
        "step": step * 1000,
        "times": [to_epoch_ms(time) for time, _ in points],
        "outcomes": {outcome: values(outcome) for outcome in OUTCOMES},
        "verdicts": {verdict: values(f"guard_{verdict}") for verdict in VERDICTS},
        **{name: values(name) for name in ("spend", "lookups", "hits", "in_flight")},
        **{name: values(name) for name in QUANTILES},
    }


def _make_point(period: Period) -> dict[str, float | None]:
    """Return the value of each line at a point. Outcomes are calls per second."""
    calls, seconds = period.count("headrace_requests_total", 3), period.seconds
    verdicts = period.count("headrace_guard_decisions_total", 2, 3)
    lookups = period.count("headrace_cache_lookups_total", 1)
    point: dict[str, float | None] = {
        **{outcome: calls.get((outcome,), 0) / seconds for outcome in OUTCOMES},
        **{f"guard_{verdict}": verdicts.get((verdict, "false"), 0) for verdict in VERDICTS},
        "spend": period.total("headrace_money_usd_total"),
        "lookups": sum(lookups.values()),
        "hits": sum(lookups.get((result,), 0) for result in ("hit", "hit_semantic")),
        "in_flight": period.samples[-1].in_flight,
    }
    for name, (metric, share, edges) in QUANTILES.items():
        point[name] = estimate_quantile(share, edges, period.sum_amounts(metric).get((), ()))
    return point


def _make_upstream_rows(sources: Sources, period: Period) -> Iterator[Data]:
    attempts, failures, circuits = Counter[Labels](), Counter[Labels](), dict[Labels, int]()
    results = period.count("headrace_upstream_attempts_total", 0, 1, 2)
    for (upstream, model, result), count in results.items():
        attempts[upstream, model] += count
        failures[upstream, model] += 0 if result in NO_FAILURES else count
    durations = period.sum_amounts("headrace_upstream_request_duration_seconds", 0, 1)
    for labels, gauge in sources.metrics.copy_series("headrace_circuit_state").items():
        circuits[labels[:2]] = max(circuits.get(labels[:2], 0), int(gauge.value))
    remaining = sources.metrics.copy_series("headrace_upstream_ratelimit_remaining_requests")
    deployments = sources.snapshot.deployments.values()
    targets = {target.id: target for deployment in deployments for _, target in deployment.targets}
    for target in targets.values():
        key = target.upstream.name, target.model
        yield {
            "upstream": key[0],
            "model": key[1],
            "circuit": CIRCUIT_NAMES[circuits.get(key, 0)],
            "in_flight": sources.health.count_in_flight(*key),
            "max_concurrency": target.upstream.max_concurrency,
            "per_second": attempts[key] / period.seconds,
            "failed": failures[key] / attempts[key] if attempts[key] else None,
            "p99_ms": estimate_quantile(0.99, LONG_EDGES_MS, durations.get(key, ())),
            "remaining_requests": remaining[key].value if key in remaining else None,
        }


def _find_alerts(
    policies: PolicyStore, upstreams: Sequence[Data], limits: Limits
) -> Iterator[Data]:
    """Yield states that need attention, each with a link of the console and a runbook."""
    for target in upstreams:
        if target["circuit"] == "open":
            yield {
                "level": "error",
                "text": f"Circuit open: {target['upstream']}/{target['model']}",
                "note": "Calls go to the other targets of their deployment.",
                "link": "#/calls?outcome=upstream_error",
                "runbook": "circuit-open",
            }
    if policies.rejection is not None:
        problems = len(policies.rejection.problems)
        yield {
            "level": "error",
            "text": f"Policy reload rejected, {format_count(problems, 'problem')}",
            "note": f"Revision {policies.current.revision} stays active.",
            "link": "#/policy?at=revision",
            "runbook": "reload-failing",
        }
    if limits is None:
        yield {
            "level": "error",
            "text": "The limit store does not answer",
            "note": "Limits use their fallback, and their state is unknown.",
            "link": "#/policy?at=limits",
            "runbook": "limit-store-away",
        }
    for limit in limits or ():
        if limit["kind"] == "usd" and limit["mode"] == "enforce":
            yield from _find_budget_alert(limit)


def _find_budget_alert(limit: Mapping[str, Any]) -> Iterator[Data]:
    owner = f"Budget {limit['name']} of {limit['scope']}"
    if limit["used"] >= SPENT_SHARE * limit["capacity"]:
        text, note = f"{owner} is spent", "Calls that may cost more are refused with 429."
    elif limit["denied"]:
        calls = format_count(limit["denied"], "call")
        text = f"Budget {limit['name']} refused {calls} in the last hour"
        note = f"{owner} has less left than a call may cost, or another owner has."
    else:
        return
    link = "#/calls?outcome=limited"
    yield {"level": "warning", "text": text, "note": note, "link": link, "runbook": "budget"}


def make_revision_data(store: PolicyStore) -> Data:
    """Return the active revision, and the problems of the last reload if it was rejected."""
    return {
        "revision": store.current.revision,
        "since": to_epoch_ms(store.active_since.timestamp()),
        "rejected": make_rejected_reload_data(store.rejection),
    }


def _find_example_deployment(snapshot: Snapshot) -> str | None:
    """Return the simplest deployment of a key, for the example of an empty page."""
    owned = [d.deployment for key in snapshot.keys.values() for d in key.deployments.values()]
    served = [deployment for deployment in owned if not deployment.only_passthrough]
    return min(served, key=lambda d: len(d.routes.targets)).name if served else None


def make_rejected_reload_data(rejection: Rejection | None) -> Data | None:
    """Return a rejected reload, with its time in milliseconds since 1970."""
    if rejection is None:
        return None
    return {"at": to_epoch_ms(rejection.at.timestamp()), "problems": list(rejection.problems)}


def to_epoch_ms(seconds: float) -> int:
    """Return milliseconds since 1970."""
    return round(seconds * 1000)
