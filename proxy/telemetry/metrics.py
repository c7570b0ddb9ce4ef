"""Sink that counts calls, metrics of the process, and the registry that bounds all series.

A value that is not in the active policies is counted as ``other``. After a reload, series of
removed names stay for ``RETIRED_S`` seconds, because calls may still run under the old policies.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.money.usage import NANO
from proxy.telemetry.call_metrics import CallMetrics
from proxy.telemetry.catalog import METRICS, OVERFLOW
from proxy.telemetry.catalog.spec import OTHER, CallbackGauge, Gauge, LabelSet, MetricSpec, Values
from proxy.types import Endpoint, Target
from proxy.types.limit import CounterState
from proxy.types.roster import LabelCatalog

if TYPE_CHECKING:
    from proxy.telemetry.exposition import Exposition


MAX_SERIES = 50_000
RETIRED_S = 900.0
LAG_EVERY_S = 0.25
LABEL_SETS = {label_set for metric in METRICS for label_set in metric.label_sets}


@dataclass(slots=True)
class _Admitted:
    """Allowed values of a roster, which expire at the monotonic second ``expires_at``."""

    values: dict[LabelSet, frozenset[Values]]
    source: str
    is_active: bool = False
    expires_at: float | None = None


class Registry:
    """All series by metric and labels. One thread counts; others may scrape, admit and retire.

    ``max_series`` bounds all metrics together, beside the bound that each metric declares.
    """

    def __init__(
        self, now: Callable[[], float] = time.monotonic, max_series: int = MAX_SERIES
    ) -> None:
        self._now = now
        self._max_series = max_series
        self._metrics = {metric.name: metric for metric in METRICS}
        self._series: dict[str, dict[Values, Any]] = {name: {} for name in self._metrics}
        self._admitted = [_Admitted(_allowed(LabelCatalog()), "nothing", is_active=True)]
        self._lock = threading.Lock()
        self._allowed: dict[LabelSet, frozenset[Values]] = {}
        self._merge_allowed()
        self._start(LabelCatalog())

    def child(self, name: str, *labels: str) -> Any:
        """Return the series of a metric by its labels, or the one for ``other``."""
        series = self._series[name].get(labels)
        return series if series is not None else self._create(name, labels)

    def watch(self, name: str, *labels: str, read: Callable[[], float]) -> None:
        """Show the number that ``read`` returns at each scrape, called by another thread."""
        self._series[name][labels] = CallbackGauge(read)

    def replace(self, name: str, values: Mapping[Values, float]) -> None:
        """Replace all series of a gauge."""
        self.show(name, gauges(values))

    def show(self, name: str, series: dict[Values, Gauge]) -> None:
        """Replace all series of a gauge by prepared ones."""
        self._series[name] = series

    def admit(self, roster: LabelCatalog, source: str, *, start: bool = True) -> Callable[[], None]:
        """Allow the names of a roster as labels, and ``start`` the initial series at zero.

        Blocks for long with a large roster, so call it off the event loop. Call the result once the
        roster is active: it retires the previous roster of the same source.
        """
        admitted = _Admitted(_allowed(roster), source)
        with self._lock:
            for other in self._admitted:
                if other.source == source and not other.is_active:  # it was rejected
                    other.expires_at = self._now()
            self._admitted.append(admitted)
            self._drop_expired()
            self._merge_allowed()
            if start:
                self._start(roster)

        def activate() -> None:
            for admitted_roster in self._admitted:
                if (
                    admitted_roster.source == source
                    and admitted_roster.expires_at is None
                    and admitted_roster is not admitted
                ):
                    admitted_roster.expires_at = self._now() + RETIRED_S
            admitted.is_active = True

        return activate

    def retire(self) -> None:
        """Drop the series of expired names."""
        with self._lock:
            self._drop_expired()

    def _drop_expired(self) -> None:
        now = self._now()
        current = [
            admitted
            for admitted in self._admitted
            if admitted.expires_at is None or admitted.expires_at > now
        ]
        if len(current) == len(self._admitted):
            return
        self._admitted = current
        self._merge_allowed()
        for metric in METRICS:
            series = self._series[metric.name]
            for labels in list(series):
                if not all(self._is_allowed(*part) for part in _parts(metric, labels)):
                    del series[labels]

    def collect(self) -> Iterator[tuple[MetricSpec, list[tuple[Values, Any]]]]:
        """Yield each metric of Headrace with its series by labels."""
        for metric in METRICS:
            if metric.own:
                yield metric, list(self._series[metric.name].items())  # calls may add some

    def _merge_allowed(self) -> None:
        self._allowed = {
            label_set: frozenset().union(
                *(admitted.values[label_set] for admitted in self._admitted)
            )
            for label_set in LABEL_SETS
        }

    def _start(self, roster: LabelCatalog) -> None:
        for metric in METRICS:
            for labels in metric.initial(roster):
                self.child(metric.name, *labels)

    def _is_allowed(self, label_set: LabelSet, part: Values) -> bool:
        return part in self._allowed[label_set] or part == label_set.other

    def _create(self, name: str, labels: Values) -> Any:
        metric = self._metrics[name]
        bounded: list[str] = []
        for label_set, part in _parts(metric, labels):
            is_allowed = self._is_allowed(label_set, part)
            bounded += part if is_allowed else label_set.other
            if not is_allowed:
                self.child(OVERFLOW.name, label_set.labels[0]).inc()
        if sum(map(len, self._series.values())) >= self._max_series:
            bounded = [OTHER] * len(labels)
        return self._series[name].setdefault(tuple(bounded), metric.create())


def gauges(values: Mapping[Values, float]) -> dict[Values, Gauge]:
    return {labels: Gauge(value) for labels, value in values.items()}


def _allowed(roster: LabelCatalog) -> dict[LabelSet, frozenset[Values]]:
    return {label_set: frozenset(label_set.allowed(roster)) for label_set in LABEL_SETS}


def _parts(metric: MetricSpec, labels: Values) -> Iterator[tuple[LabelSet, Values]]:
    """Yield each label_set of a metric with its part of the labels."""
    start = 0
    for label_set in metric.label_sets:
        end = start + len(label_set.labels)
        yield label_set, labels[start:end]
        start = end


Circuit = Literal["closed", "half_open", "open"]
CIRCUITS: dict[Circuit, int] = {"closed": 0, "half_open": 1, "open": 2}


class Metrics:
    """Counts calls. One thread counts; another may scrape."""

    name: ClassVar[str] = "metrics"

    def __init__(self, version: str, registry: Registry | None = None) -> None:
        self._registry = registry or Registry()
        self._child = self._registry.child
        self.roster = LabelCatalog()
        self._calls = CallMetrics(self._child, {})
        self._inflight = self._child("headrace_inflight_requests")
        self._registry.replace("headrace_build_info", {(version,): 1})
        self._exposition: Exposition | None = None

    def secrets(self, fingerprints: Mapping[str, str]) -> None:
        """Show a fingerprint of each secret, by its use."""
        self._registry.replace("headrace_secret_info", dict.fromkeys(fingerprints.items(), 1.0))

    def admit(self, roster: LabelCatalog) -> Callable[[], None]:
        """Allow the names of policies as labels. Call the result when the policies are active.

        Blocks for long with large policies, so call it off the event loop; the result is fast.
        """
        activate_names = self._registry.admit(roster, "policies")
        info = gauges(
            {
                (name, tag, value): 1.0
                for name, deployment in roster.deployments.items()
                for tag, value in (deployment.tags or {("none", "none")})
            }
        )
        replaced: list[LabelCatalog] = []

        def activate() -> None:
            activate_names()
            replaced.append(self.roster)  # freed with this function, when the next are admitted
            self.roster = roster
            self._calls = CallMetrics(self._child, roster.tags)
            self._registry.replace("headrace_policy_info", {(roster.revision,): 1})
            self._registry.show("headrace_deployment_info", info)
            if roster.prices_as_of is not None:
                taken = datetime.combine(roster.prices_as_of, datetime.min.time(), UTC).timestamp()
                self._child("headrace_price_table_timestamp_seconds").value = taken

        return activate

    def admit_candidate(self, roster: LabelCatalog) -> Callable[[], None]:
        """Allow the rule names of a candidate as labels. Call the result when it is active."""
        return self._registry.admit(roster, "candidate", start=False)

    def watch(self, name: str, *labels: str, read: Callable[[], float]) -> None:
        """Show a number that ``read`` returns at each scrape, called by another thread."""
        self._registry.watch(name, *labels, read=read)

    def count(self, name: str, *labels: str) -> None:
        """Add 1 to a counter."""
        self._child(name, *labels).inc()

    def observe(self, name: str, value: float) -> None:
        """Add a value to a histogram without labels."""
        self._child(name).observe(value)

    def dropped(self, signal: str, reason: str, count: int = 1) -> None:
        """Count lost log lines, spans or rows."""
        self._child("headrace_telemetry_dropped_total", signal, reason).inc(count)

    def reloaded(self, result: str) -> None:
        """Count a load of the policies."""
        self._child("headrace_policy_reloads_total", result).inc()
        self._child("headrace_policy_last_reload_success").value = float(result != "rejected")
        now = datetime.now(UTC).timestamp()
        self._child("headrace_policy_last_reload_timestamp_seconds").value = now

    def counters_degraded(self, degraded: bool) -> None:
        """Show whether limits are counted without the shared store."""
        self._child("headrace_limit_store_degraded").value = float(degraded)

    def stand(self, standings: Iterable[CounterState], now: float) -> None:
        """Replace the gauges of limits and budgets. A counter without a call has none.

        ``now`` is in seconds since the epoch.
        """
        shown: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _LIMIT_GAUGES}
        for standing in standings:
            if standing.is_fresh:
                continue
            limit = standing.limit
            amounts: tuple[float, ...] = (standing.remaining / limit.capacity,)
            if limit.is_budget:
                usd = (limit.capacity, standing.used, standing.remaining)
                amounts += (*(nano_usd / NANO for nano_usd in usd), now + (standing.reset_s or 0.0))
            for name, amount in zip(_LIMIT_GAUGES, amounts, strict=False):
                shown[name][limit.name, standing.scope or "all"] = amount
        for name, values in shown.items():
            self._registry.replace(name, values)

    def drifted(self, drifts: Mapping[str, int]) -> None:
        """Replace the gauges of the difference between budgets and the ledger, in nano-USD."""
        usd: dict[tuple[str, ...], float] = {}
        usd.update({(limit,): nano / NANO for limit, nano in drifts.items()})
        self._registry.replace("headrace_ledger_drift_usd", usd)

    def circuit(self, target: Target, endpoint: Endpoint, state: Circuit) -> None:
        """Show the circuit state of a target's endpoint."""
        names = (target.upstream.name, target.model, endpoint)
        self._child("headrace_circuit_state", *names).value = float(CIRCUITS[state])

    def set_cache_size(self, store: str, entries: int, size: int) -> None:
        """Show the entries and bytes of a cache store."""
        self._child("headrace_cache_entries", store).value = float(entries)
        self._child("headrace_cache_bytes", store).value = float(size)

    def evicted(self, why: str, count: int) -> None:
        """Count evicted responses."""
        self._child("headrace_cache_evictions_total", why).inc(count)

    def failed(self, store: str) -> None:
        """Count a failure of a cache store."""
        self._child("headrace_cache_store_failures_total", store).inc()

    def begin(self, record: Record) -> None:
        self._inflight.value += 1

    def end(self, record: Record) -> None:
        self._inflight.value -= 1
        self._calls.count(record.facts or summarize(record))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the exposition in the best accepted format, and its media type."""
        self._registry.retire()
        return self.prepare().render(accept)

    def prepare(self) -> Exposition:
        """Return the exposition, created at the first call."""
        if self._exposition is None:
            from proxy.telemetry.exposition import Exposition  # noqa: PLC0415  # 30 modules, for scrapes

            self._exposition = Exposition(self._registry.collect)
        return self._exposition


_LIMIT_GAUGES = (
    "headrace_limit_remaining_ratio",
    "headrace_budget_limit_usd",
    "headrace_budget_spent_usd",
    "headrace_budget_remaining_usd",
    "headrace_budget_reset_timestamp_seconds",
)
"""Gauges of a limit, and of a budget after the first."""


class LoopLag:
    """Reports the delay of an event loop timer every ``LAG_EVERY_S`` seconds while entered."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._schedule()

    async def __aexit__(self, *exc_info: object) -> None:
        self._timer.cancel()

    def _schedule(self) -> None:
        due_at = self._loop.time() + LAG_EVERY_S
        self._timer = self._loop.call_at(due_at, self._on_timer, due_at)

    def _on_timer(self, due_at: float) -> None:
        self._tell(max(0.0, self._loop.time() - due_at))
        self._schedule()
