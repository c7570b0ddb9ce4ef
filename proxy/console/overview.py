"""The overview page: traffic of the last minutes, upstreams, limits and what needs attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from proxy.console import InvalidQuery
from proxy.console.series import (
    OUTCOMES,
    RANGES,
    VERDICTS,
    Buckets,
    Sample,
    TimeSeries,
    Totals,
    quantile,
)
from proxy.errors.words import counted
from proxy.money.usage import NANO
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.source import Rejection
from proxy.policy.store import PolicyStore
from proxy.runtime.frozen import frozen
from proxy.telemetry.catalog.table import LONG_SECONDS, SECONDS, SHORT_SECONDS
from proxy.telemetry.metrics import CIRCUITS, Metrics
from proxy.types import Target
from proxy.upstream.health import Health

NO_FAILURES = frozenset({"1xx", "2xx", "3xx", "4xx", "cancelled"})
"""Results of attempts that are not failures of the upstream."""
FULL = 0.995
Data = dict[str, Any]
Limits = Sequence[Mapping[str, Any]] | None


@frozen
class Instance:
    """Name and version of the process. ``listen`` returns the address at which it serves calls."""

    name: str
    version: str
    listen: Callable[[], str]


@frozen
class Overview:
    """Builds the data of the page. ``now`` returns seconds since 1970."""

    instance: Instance
    series: TimeSeries
    metrics: Metrics
    policies: PolicyStore
    health: Health
    now: Callable[[], float]
    candidate_revision: Callable[[], str] | None = None

    def data(self, range_name: str, limits: Limits) -> Data:
        """Return the page for a range of ``RANGES``. Times are milliseconds since 1970.

        Raises ``InvalidQuery``.
        """
        if range_name not in RANGES:
            raise InvalidQuery(f"range must be one of {', '.join(RANGES)}.")
        earlier = self.series.totals_before(RANGES[range_name][0] * RANGES[range_name][1])
        totals = self.series.totals()
        upstreams = list(self._upstreams(earlier, totals))
        return {
            "now": in_ms(self.now()),
            "instance": {
                "name": self.instance.name,
                "version": self.instance.version,
                "listen": self.instance.listen(),
                "started": in_ms(self.series.started_at),
            },
            "deployment": example_deployment(self.policies.current),
            "series": self._series(range_name),
            "spend": self._spend(),
            "calls": round(sum(totals.by("headrace_requests_total", 3).values())),
            "upstreams": upstreams,
            "outcomes": _by_label(totals.increase(earlier, "headrace_requests_total", 3)),
            "retries": _by_label(totals.increase(earlier, "headrace_upstream_repeats_total", 2)),
            "fallbacks": sum(totals.increase(earlier, "headrace_fallbacks_total").values()),
            "skipped": sum(totals.increase(earlier, "headrace_upstream_skipped_total").values()),
            "limits": limits,
            "policy": self._policy(),
            "attention": list(self._attention(upstreams, limits)),
        }

    def _policy(self) -> Data:
        candidate = self.candidate_revision() if self.candidate_revision else None
        return {**active_revision(self.policies), "candidate": candidate}

    def _spend(self) -> Data:
        """Return the spend and savings since the start of the process, in nano-USD."""
        sample = self.series.current()
        return {"nano": round(sample.spend * NANO), "saved_nano": round(sample.saved * NANO)}

    def _series(self, range_name: str) -> Data:
        points = [(time, _Point(start, end)) for time, start, end in self.series.points(range_name)]
        return {
            "step": RANGES[range_name][0] * 1000,
            "times": [in_ms(time) for time, _ in points],
            "outcomes": {
                name: [point.rate(point.change("outcomes", index)) for _, point in points]
                for index, name in enumerate(OUTCOMES)
            },
            "verdicts": {
                name: [point.change("verdicts", index) for _, point in points]
                for index, name in enumerate(VERDICTS)
            },
            "spend": [point.change("spend") for _, point in points],
            "lookups": [point.change("lookups") for _, point in points],
            "hits": [point.change("hits") for _, point in points],
            "in_flight": [p.end.in_flight if p.end else None for _, p in points],
            **{
                f"{name}_{label}_ms": [p.quantile_ms(name, share, edges) for _, p in points]
                for name, edges in (("first_token", SECONDS), ("overhead", SHORT_SECONDS))
                for label, share in (("p50", 0.5), ("p99", 0.99))
            },
        }

    def _upstreams(self, earlier: Totals, totals: Totals) -> Iterator[Data]:
        attempts = totals.increase(earlier, "headrace_upstream_attempts_total", 0, 1)
        failures: dict[tuple[str, ...], float] = {}
        results = totals.increase(earlier, "headrace_upstream_attempts_total", 0, 1, 2)
        for (upstream, model, result), number in results.items():
            if result not in NO_FAILURES:
                failures[upstream, model] = failures.get((upstream, model), 0.0) + number
        circuits: dict[tuple[str, ...], float] = {}
        for labels, gauge in self.metrics.series("headrace_circuit_state").items():
            circuits[labels[:2]] = max(circuits.get(labels[:2], 0.0), gauge.value)
        names = {int(value): name for name, value in CIRCUITS.items()}
        remaining = self.metrics.series("headrace_upstream_ratelimit_remaining_requests")
        seconds = max(1.0, totals.time - earlier.time)
        for target in targets(self.policies.current):
            key = (target.upstream.name, target.model)
            count = attempts.get(key, 0.0)
            failed = failures.get(key, 0.0)
            p99 = quantile(
                0.99, LONG_SECONDS, earlier.durations.get(key, ()), totals.durations.get(key, ())
            )
            yield {
                "upstream": key[0],
                "model": key[1],
                "circuit": names[int(circuits.get(key, 0.0))],
                "in_flight": self.health.in_flight(*key),
                "max_concurrency": target.upstream.max_concurrency,
                "per_second": count / seconds,
                "failed": failed / count if count else None,
                "p99_ms": None if p99 is None else p99 * 1000,
                "remaining_requests": remaining[key].value if key in remaining else None,
            }

    def _attention(self, upstreams: Sequence[Data], limits: Limits) -> Iterator[Data]:
        for target in upstreams:
            if target["circuit"] == "open":
                name = f"{target['upstream']}/{target['model']}"
                yield {
                    "level": "error",
                    "text": f"Circuit open: {name}",
                    "note": "Calls go to the other targets of their deployment.",
                    "link": "#/calls?outcome=upstream_error",
                    "runbook": "circuit-open",
                }
        rejection = self.policies.rejection
        if rejection is not None:
            count = len(rejection.problems)
            yield {
                "level": "error",
                "text": f"Policy reload rejected, {count} problem{'s' if count != 1 else ''}",
                "note": f"Revision {self.policies.current.revision} stays active.",
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
        yield from _refusing_budgets(limits or ())


def _refusing_budgets(limits: Sequence[Mapping[str, Any]]) -> Iterator[Data]:
    for limit in limits:
        if limit["kind"] != "usd" or limit["mode"] != "enforce":
            continue
        owner = f"Budget {limit['name']} of {limit['scope']}"
        if limit["used"] >= FULL * limit["capacity"]:
            text, note = f"{owner} is spent", "Calls that may cost more are refused with 429."
        elif limit["denied"]:
            calls = counted(limit["denied"], "call")
            text = f"Budget {limit['name']} refused {calls} in the last hour"
            note = f"{owner} has less left than a call may cost, or another owner has."
        else:
            continue
        yield {
            "level": "warning",
            "text": text,
            "note": note,
            "link": "#/calls?outcome=limited",
            "runbook": "budget",
        }


class _Point:
    """Changes between two samples. Unknown values are None."""

    def __init__(self, start: Sample | None, end: Sample | None) -> None:
        self.start = start
        self.end = end

    def change(self, name: str, index: int | None = None) -> float | None:
        if self.start is None or self.end is None:
            return None
        old, new = getattr(self.start, name), getattr(self.end, name)
        return float(new - old if index is None else new[index] - old[index])

    def rate(self, change: float | None) -> float | None:
        if change is None or self.start is None or self.end is None:
            return None
        return change / max(1.0, self.end.time - self.start.time)

    def quantile_ms(self, name: str, share: float, edges: Sequence[float]) -> float | None:
        if self.start is None or self.end is None:
            return None
        old: Buckets = getattr(self.start, name)
        seconds = quantile(share, edges, old, getattr(self.end, name))
        return None if seconds is None else seconds * 1000


def active_revision(store: PolicyStore) -> Data:
    """Return the active revision, and the problems of the last reload if it was rejected."""
    return {
        "revision": store.current.revision,
        "since": in_ms(store.active_since.timestamp()),
        "rejected": rejection_data(store.rejection),
    }


def targets(snapshot: Snapshot) -> list[Target]:
    """Return the targets of all deployments, each upstream and model once."""
    by_id: dict[str, Target] = {}
    for deployment in snapshot.deployments.values():
        for _, target in deployment.targets:
            by_id.setdefault(target.id, target)
    return list(by_id.values())


def example_deployment(snapshot: Snapshot) -> str | None:
    """Return the simplest deployment of a key, for the example of an empty page."""
    owned = [d.deployment for key in snapshot.keys.values() for d in key.deployments.values()]
    served = [deployment for deployment in owned if not deployment.only_passthrough]
    return min(served, key=lambda d: len(d.routes.targets)).name if served else None


def rejection_data(rejection: Rejection | None) -> Data | None:
    """Return a rejected reload, with its time in milliseconds since 1970."""
    if rejection is None:
        return None
    return {"at": in_ms(rejection.at.timestamp()), "problems": list(rejection.problems)}


def in_ms(seconds: float) -> int:
    """Return milliseconds since 1970."""
    return round(seconds * 1000)


def _by_label(counts: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    return {label: count for (label,), count in counts.items()}
