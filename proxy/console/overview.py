"""The overview page: traffic of the last minutes, upstreams, limits and what needs attention."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from typing import get_args

import proxy
from proxy.call.attempts import CallOutcome
from proxy.console import Data
from proxy.console.limits import LimitRows
from proxy.console.series import Labels, Period, Sources, estimate_quantile_ms, to_epoch_ms
from proxy.errors.words import format_count
from proxy.money.usage import NANO_PER_USD
from proxy.policy.files.source import Rejection
from proxy.policy.store import PolicyStore
from proxy.telemetry.catalog.table import BUCKETS_S, LONG_BUCKETS_S, SHORT_BUCKETS_S
from proxy.telemetry.metrics import CIRCUIT_VALUES

RANGES = {"5m": (5, 60), "15m": (10, 90), "1h": (30, 120)}
"""Seconds of a point, and number of points, of each range."""
LATENCIES = {
    "first_token": ("headrace_time_to_first_token_seconds", BUCKETS_S),
    "overhead": ("headrace_overhead_seconds", SHORT_BUCKETS_S),
}
"""Histogram and edges of its buckets of each latency in the charts."""
VERDICTS = ("blocked", "masked", "flagged")
NO_FAILURES = frozenset({"1xx", "2xx", "3xx", "4xx", "cancelled"})
"""Results of attempts that are not failures of the upstream."""
SPENT_SHARE = 0.995
CIRCUIT_NAMES = {int(value): name for name, value in CIRCUIT_VALUES.items()}


def build_overview(sources: Sources, range_name: str, limits: LimitRows) -> Data:
    """Return the page for a range of ``RANGES``. Times are milliseconds since 1970."""
    series, policies = sources.series, sources.policies
    step, count = RANGES[range_name]
    period = series.get_last(step * count)
    upstreams = list(_make_upstream_rows(sources, period))
    return {
        "now": to_epoch_ms(sources.now()),
        "host": socket.gethostname(),
        "version": proxy.__version__,
        "listen": sources.listen(),
        "started": to_epoch_ms(series.started_at),
        "deployment": _find_example_deployment(sources),
        "step": step * 1000,
        "points": [
            {"time": to_epoch_ms(time), **_make_point(part)}
            for time, part in series.split_with_end_times(step, count)
        ],
        "spend_nano": round(series.get_total("headrace_money_usd_total") * NANO_PER_USD),
        "saved_nano": round(series.get_total("headrace_cache_saved_usd_total") * NANO_PER_USD),
        "calls": round(series.get_total("headrace_requests_total")),
        "in_flight": sources.metrics.get_series("headrace_inflight_requests").value,
        "upstreams": upstreams,
        "outcomes": {name: n for (name,), n in period.count("headrace_requests_total", 3).items()},
        "retries": period.count("headrace_upstream_repeats_total", 2).get(("retry",), 0),
        "hedges": period.count("headrace_upstream_repeats_total", 2).get(("hedge",), 0),
        "fallbacks": period.total("headrace_fallbacks_total"),
        "skipped": period.total("headrace_upstream_skipped_total"),
        "limits": limits,
        "policy": make_revision_data(policies),
        "candidate": sources.candidate and sources.candidate.get_snapshot().revision,
        "attention": list(_find_alerts(policies, upstreams, limits)),
    }


def _find_example_deployment(sources: Sources) -> str | None:
    """Return the deployment with the fewest targets, for the example of an empty page."""
    keys = sources.policies.current.keys.values()
    owned = [d.deployment for key in keys for d in key.deployments.values()]
    served = [deployment for deployment in owned if not deployment.only_passthrough]
    return min(served, key=lambda d: len(d.routes.targets)).name if served else None


def _make_point(period: Period) -> Data:
    """Return the value of each line of a chart, none before the start of the process.

    Outcomes are calls per second.
    """
    if not period.samples:
        return {}
    calls = period.count("headrace_requests_total", 3)
    verdicts = period.count("headrace_guard_decisions_total", 2, 3)
    lookups = period.count("headrace_cache_lookups_total", 1)
    return {
        **{name: calls.get((name,), 0) / period.seconds for name in get_args(CallOutcome)},
        **{f"guard_{verdict}": verdicts.get((verdict, "false"), 0) for verdict in VERDICTS},
        "spend": period.total("headrace_money_usd_total"),
        "lookups": sum(lookups.values()),
        "hits": lookups.get(("hit",), 0) + lookups.get(("hit_semantic",), 0),
        "in_flight": period.samples[-1].in_flight,
        **{
            f"{name}_p{percent}_ms": estimate_quantile_ms(
                percent / 100, edges, period.sum_amounts(metric).get((), ())
            )
            for name, (metric, edges) in LATENCIES.items()
            for percent in (50, 99)
        },
    }


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
    deployments = sources.policies.current.deployments.values()
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
            "p99_ms": estimate_quantile_ms(0.99, LONG_BUCKETS_S, durations.get(key, ())),
            "remaining_requests": remaining[key].value if key in remaining else None,
        }


def _find_alerts(store: PolicyStore, upstreams: list[Data], limits: LimitRows) -> Iterator[Data]:
    """Yield states that need attention, each with a link of the console and a runbook."""
    for target in upstreams:
        if target["circuit"] == "open":
            text = f"Circuit open: {target['upstream']}/{target['model']}"
            note = "Calls go to the other targets of their deployment."
            yield _make_alert(text, note, "#/calls?outcome=upstream_error", "circuit-open")
    if store.rejection is not None:
        text = f"Policy reload rejected, {format_count(len(store.rejection.problems), 'problem')}"
        note = f"Revision {store.current.revision} stays active."
        yield _make_alert(text, note, "#/policy?at=revision", "reload-failing")
    if limits is None:
        note = "Limits use their fallback, and their state is unknown."
        text = "The limit store does not answer"
        yield _make_alert(text, note, "#/policy?at=limits", "limit-store-away")
    for limit in limits or ():
        is_budget = limit["kind"] == "usd" and limit["mode"] == "enforce"
        owner = f"Budget {limit['name']} of {limit['scope']}"
        if is_budget and limit["used"] >= SPENT_SHARE * limit["capacity"]:
            text, note = f"{owner} is spent", "Calls that may cost more are refused with 429."
        elif is_budget and limit["denied"]:
            calls = format_count(limit["denied"], "call")
            text = f"Budget {limit['name']} refused {calls} in the last hour"
            note = f"{owner} has less left than a call may cost, or another owner has."
        else:
            continue
        yield _make_alert(text, note, "#/calls?outcome=limited", "budget", level="warning")


def _make_alert(text: str, note: str, link: str, runbook: str, level: str = "error") -> Data:
    return {"level": level, "text": text, "note": note, "link": link, "runbook": runbook}


def make_revision_data(store: PolicyStore) -> Data:
    """Return the active revision, and the problems of the last reload if it was rejected."""
    return {
        "revision": store.current.revision,
        "since": to_epoch_ms(store.active_since.timestamp()),
        "rejected": make_rejection_data(store.rejection),
    }


def make_rejection_data(rejection: Rejection | None) -> Data | None:
    """Return a rejected reload, with its time in milliseconds since 1970."""
    if rejection is None:
        return None
    return {"at": to_epoch_ms(rejection.at.timestamp()), "problems": list(rejection.problems)}
