"""The overview page: traffic of the last minutes, upstreams, limits and what needs attention."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel

import proxy
from proxy.console import Data
from proxy.console.series import (
    OUTCOMES,
    RANGES,
    VERDICTS,
    Labels,
    Sample,
    Sources,
    TimeSeries,
    Totals,
    estimate_quantile,
)
from proxy.errors.words import format_count
from proxy.money.usage import NANO_PER_USD
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.source import Rejection
from proxy.policy.store import PolicyStore
from proxy.telemetry.catalog.table import (
    BUCKETS_S,
    LONG_BUCKETS_S,
    SHORT_BUCKETS_S,
)
from proxy.telemetry.metrics import CIRCUIT_VALUES
from proxy.types import Target

NO_FAILURES = frozenset({"1xx", "2xx", "3xx", "4xx", "cancelled"})
"""Results of attempts that are not failures of the upstream."""
SPENT_SHARE = 0.995
SECONDS_EDGES_MS, SHORT_EDGES_MS, LONG_EDGES_MS = (
    [1000 * edge for edge in edges] for edges in (BUCKETS_S, SHORT_BUCKETS_S, LONG_BUCKETS_S)
)
Limits = Sequence[Mapping[str, Any]] | None


class RangeQuery(BaseModel):
    """The time that the charts show."""

    range: Literal["5m", "15m", "1h"] = "15m"


def build_overview(sources: Sources, range_name: str, limits: Limits) -> Data:
    """Return the page for a range of ``RANGES``. Times are milliseconds since 1970."""
    series = sources.series
    earlier = series.find_totals_before(RANGES[range_name][0] * RANGES[range_name][1])
    totals, sample = series.make_totals(), series.make_sample()
    upstreams = list(_make_upstream_rows(sources, earlier, totals))
    return {
        "now": to_epoch_ms(sources.now()),
        "instance": {
            "name": socket.gethostname(),
            "version": proxy.__version__,
            "listen": sources.listen(),
            "started": to_epoch_ms(series.started_at),
        },
        "deployment": _find_example_deployment(sources.snapshot),
        "series": _make_charts(series, range_name),
        "spend": {
            "nano": round(sample.counters["spend"] * NANO_PER_USD),
            "saved_nano": round(sample.counters["saved"] * NANO_PER_USD),
        },
        "calls": round(sum(totals.sum_by_labels("headrace_requests_total", 3).values())),
        "in_flight": sample.in_flight,
        "upstreams": upstreams,
        "outcomes": _unwrap_labels(totals.compute_increase(earlier, "headrace_requests_total", 3)),
        "retries": _unwrap_labels(
            totals.compute_increase(earlier, "headrace_upstream_repeats_total", 2)
        ),
        "fallbacks": sum(totals.compute_increase(earlier, "headrace_fallbacks_total").values()),
        "skipped": sum(
            totals.compute_increase(earlier, "headrace_upstream_skipped_total").values()
        ),
        "limits": limits,
        "policy": {
            **make_revision_data(sources.policies),
            "candidate": sources.candidate and sources.candidate.current().revision,
        },
        "attention": list(_find_problems(sources.policies, upstreams, limits)),
    }


def _make_charts(series: TimeSeries, range_name: str) -> Data:
    points = list(series.iter_points(range_name))

    def values(value: Callable[[Sample, Sample], float | None]) -> list[float | None]:
        """Return a value of each point, None where one of its samples is unknown."""
        return [value(a, b) if a is not None and b is not None else None for _, a, b in points]

    def changes(name: str) -> list[float | None]:
        return values(lambda a, b: b.counters.get(name, 0.0) - a.counters.get(name, 0.0))

    def quantiles(name: str, share: float, edges: Sequence[float]) -> list[float | None]:
        return values(
            lambda a, b: estimate_quantile(share, edges, a.histograms[name], b.histograms[name])
        )

    seconds = values(lambda a, b: max(1.0, b.time - a.time))
    return {
        "step": RANGES[range_name][0] * 1000,
        "times": [to_epoch_ms(time) for time, _, _ in points],
        "outcomes": {
            name: [
                n if n is None or s is None else n / s
                for n, s in zip(changes(name), seconds, strict=True)
            ]
            for name in OUTCOMES
        },
        "verdicts": {name: changes(f"guard_{name}") for name in VERDICTS},
        **{name: changes(name) for name in ("spend", "lookups", "hits")},
        "in_flight": [None if end is None else end.in_flight for _, _, end in points],
        **{
            f"{name}_{label}_ms": quantiles(name, share, edges)
            for name, edges in (("first_token", SECONDS_EDGES_MS), ("overhead", SHORT_EDGES_MS))
            for label, share in (("p50", 0.5), ("p99", 0.99))
        },
    }


def _make_upstream_rows(sources: Sources, earlier: Totals, totals: Totals) -> Iterator[Data]:
    attempts, failures, circuits = Counter[Labels](), Counter[Labels](), dict[Labels, int]()
    results = totals.compute_increase(earlier, "headrace_upstream_attempts_total", 0, 1, 2)
    for (upstream, model, result), count in results.items():
        attempts[upstream, model] += round(count)
        failures[upstream, model] += 0 if result in NO_FAILURES else round(count)
    for labels, gauge in sources.metrics.copy_series("headrace_circuit_state").items():
        circuits[labels[:2]] = max(circuits.get(labels[:2], 0), int(gauge.value))
    names = {int(value): name for name, value in CIRCUIT_VALUES.items()}
    remaining = sources.metrics.copy_series("headrace_upstream_ratelimit_remaining_requests")
    for target in _list_targets(sources.snapshot):
        key = target.upstream.name, target.model
        durations = earlier.durations.get(key, ()), totals.durations.get(key, ())
        yield {
            "upstream": key[0],
            "model": key[1],
            "circuit": names[circuits.get(key, 0)],
            "in_flight": sources.health.count_in_flight(*key),
            "max_concurrency": target.upstream.max_concurrency,
            "per_second": attempts[key] / max(1.0, totals.time - earlier.time),
            "failed": failures[key] / attempts[key] if attempts[key] else None,
            "p99_ms": estimate_quantile(0.99, LONG_EDGES_MS, *durations),
            "remaining_requests": remaining[key].value if key in remaining else None,
        }


def _find_problems(
    policies: PolicyStore, upstreams: Sequence[Data], limits: Limits
) -> Iterator[Mapping[str, str]]:
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
        if (
            limit["kind"] == "usd"
            and limit["mode"] == "enforce"
            and (texts := _describe_refusal(limit))
        ):
            link = "#/calls?outcome=limited"
            yield {"level": "warning", **texts, "link": link, "runbook": "budget"}


def _describe_refusal(limit: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the texts about a budget that refuses calls, otherwise None."""
    owner = f"Budget {limit['name']} of {limit['scope']}"
    if limit["used"] >= SPENT_SHARE * limit["capacity"]:
        return {
            "text": f"{owner} is spent",
            "note": "Calls that may cost more are refused with 429.",
        }
    if not limit["denied"]:
        return None
    calls = format_count(limit["denied"], "call")
    return {
        "text": f"Budget {limit['name']} refused {calls} in the last hour",
        "note": f"{owner} has less left than a call may cost, or another owner has.",
    }


def make_revision_data(store: PolicyStore) -> Data:
    """Return the active revision, and the problems of the last reload if it was rejected."""
    return {
        "revision": store.current.revision,
        "since": to_epoch_ms(store.active_since.timestamp()),
        "rejected": make_rejected_reload_data(store.rejection),
    }


def _list_targets(snapshot: Snapshot) -> list[Target]:
    """Return the targets of all deployments, each upstream and model once."""
    by_id: dict[str, Target] = {}
    for deployment in snapshot.deployments.values():
        for _, target in deployment.targets:
            by_id.setdefault(target.id, target)
    return list(by_id.values())


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


def _unwrap_labels(counts: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    return {label: count for (label,), count in counts.items()}
