"""Sink that counts calls, and metrics of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, ClassVar, Literal

from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.money.usage import NANO
from proxy.telemetry.call_metrics import CallMetrics
from proxy.telemetry.registry import Registry, gauges
from proxy.types import Endpoint, Target
from proxy.types.outcome import CounterState
from proxy.types.roster import LabelCatalog

if TYPE_CHECKING:
    from proxy.telemetry.exposition import Exposition

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
                taken = datetime.combine(roster.prices_as_of, time(), UTC).timestamp()
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

            self._exposition = Exposition(self._registry)
        return self._exposition


_LIMIT_GAUGES = (
    "headrace_limit_remaining_ratio",
    "headrace_budget_limit_usd",
    "headrace_budget_spent_usd",
    "headrace_budget_remaining_usd",
    "headrace_budget_reset_timestamp_seconds",
)
"""Gauges of a limit, and of a budget after the first."""
