"""The sink that counts what is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, ClassVar, Literal

from proxy.emit.counting import Counting
from proxy.emit.registry import Registry, levels
from proxy.record import Record
from proxy.summary import facts_of
from proxy.types import Endpoint, Target
from proxy.types.outcome import Standing
from proxy.types.roster import Roster
from proxy.usage import NANO

if TYPE_CHECKING:
    from proxy.emit.exposition import Exposition

Circuit = Literal["closed", "half_open", "open"]
CIRCUITS: dict[Circuit, int] = {"closed": 0, "half_open": 1, "open": 2}


class Metrics:
    """The sink that counts. One thread counts; another may scrape."""

    name: ClassVar[str] = "metrics"

    def __init__(self, version: str, registry: Registry | None = None) -> None:
        self._series = registry or Registry()
        self._child = self._series.child
        self.roster = Roster()
        self._counting = Counting(self._child, {})
        self._inflight = self._child("headrace_inflight_requests")
        self._series.replace("headrace_build_info", {(version,): 1})
        self._exposition: Exposition | None = None

    def secrets(self, fingerprints: Mapping[str, str]) -> None:
        """Show the fingerprint of the secret of each use."""
        self._series.replace("headrace_secret_info", dict.fromkeys(fingerprints.items(), 1.0))

    def admit(self, roster: Roster) -> Callable[[], None]:
        """Let the names of policies be labels. Call the result once the policies are in force.

        Takes long for large policies, so call it off the event loop; the result takes little.
        """
        enforce_names = self._series.admit(roster, "policies")
        tags: dict[tuple[str, ...], float] = {
            (name, tag, value): 1.0
            for name, listed in roster.deployments.items()
            for tag, value in (listed.tags or {("none", "none")})
        }
        info = levels(tags)
        replaced: list[Roster] = []

        def enforce() -> None:
            enforce_names()
            replaced.append(self.roster)  # freed with this function, when the next are admitted
            self.roster = roster
            self._counting = Counting(self._child, roster.tags)
            self._series.replace("headrace_policy_info", {(roster.revision,): 1})
            self._series.show("headrace_deployment_info", info)
            if roster.prices_as_of is not None:
                taken = datetime.combine(roster.prices_as_of, time(), UTC).timestamp()
                self._series.replace("headrace_price_table_timestamp_seconds", {(): taken})

        return enforce

    def admit_candidate(self, roster: Roster) -> Callable[[], None]:
        """Let the names of rules of a candidate be labels. Call the result once it is in force."""
        return self._series.admit(roster, "candidate", begin=False)

    def watch(self, name: str, *labels: str, read: Callable[[], float]) -> None:
        """Show a number that somebody else keeps."""
        self._series.watch(name, *labels, read=read)

    def dropped(self, signal: str, reason: str, count: int = 1) -> None:
        """Count what could not be emitted."""
        self._child("headrace_telemetry_dropped_total", signal, reason).inc(count)

    def trace_sampled(self, decision: str) -> None:
        """Count a call that is traced, or that is not because of the rate limit."""
        self._child("headrace_traces_sampled_total", decision).inc()

    def writer_failed(self, writer: str) -> None:
        """Count an exception in the thread of a writer."""
        self._child("headrace_writer_failures_total", writer).inc()

    def file_replaced(self, writer: str) -> None:
        """Count a file that was gone or damaged, and begun anew."""
        self._child("headrace_files_replaced_total", writer).inc()

    def reloaded(self, result: str) -> None:
        """Count a reading of the policies."""
        self._child("headrace_policy_reloads_total", result).inc()
        self._child("headrace_policy_last_reload_success").set(result != "rejected")
        now = datetime.now(UTC).timestamp()
        self._child("headrace_policy_last_reload_timestamp_seconds").set(now)

    def limit_warned(self, limit: str) -> None:
        """Count a call that took a limit past its mark."""
        self._child("headrace_limit_warnings_total", limit).inc()

    def budget_lost(self, limit: str) -> None:
        """Count a budget that the shared store has lost in the middle of its window."""
        self._child("headrace_budget_lost_total", limit).inc()

    def counters_degraded(self, degraded: bool) -> None:
        """Show whether limits are counted without the store that others share."""
        self._child("headrace_limit_store_degraded").set(degraded)

    def stand(self, standings: Iterable[Standing], now: float) -> None:
        """Show where limits stand, and no others; a budget that nobody has asked yet is not known.

        ``now`` is in seconds since the epoch.
        """
        shown: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _STANDING}
        for each in standings:
            if each.fresh:
                continue
            labels = (each.limit.name, each.scope or "all")
            left = each.remaining / each.limit.capacity
            shown["headrace_limit_remaining_ratio"][labels] = left
            if each.limit.is_budget:
                for name, value in _budget(each, now):
                    shown[name][labels] = value
        for name, values in shown.items():
            self._series.replace(name, values)

    def drifted(self, drifts: Mapping[str, int]) -> None:
        """Show by how many nano-USD counters of budgets and the ledger differ, and no others."""
        usd: dict[tuple[str, ...], float] = {}
        usd.update({(limit,): nano / NANO for limit, nano in drifts.items()})
        self._series.replace("headrace_ledger_drift_usd", usd)

    def candidate(self, kind: str, rule: str) -> None:
        """Count a way in which the candidate differs, or that it does not."""
        self._child("headrace_candidate_decisions_total", kind, rule).inc()

    def circuit(self, target: Target, endpoint: Endpoint, state: Circuit) -> None:
        """Show what became of the circuit of a target's endpoint."""
        names = (target.upstream.name, target.model, endpoint)
        self._child("headrace_circuit_state", *names).set(CIRCUITS[state])

    def held(self, store: str, entries: int, size: int) -> None:
        """Show what a cache store holds."""
        self._child("headrace_cache_entries", store).set(entries)
        self._child("headrace_cache_bytes", store).set(size)

    def evicted(self, why: str, count: int) -> None:
        """Count kept answers that were let go."""
        self._child("headrace_cache_evictions_total", why).inc(count)

    def failed(self, store: str) -> None:
        """Count a cache store that could not be used."""
        self._child("headrace_cache_store_failures_total", store).inc()

    def late(self, seconds: float) -> None:
        """Note how late the event loop was."""
        self._child("headrace_event_loop_lag_seconds").observe(seconds)

    def guard_waited(self, seconds: float) -> None:
        """Observe a wait for a turn of the threads of guards."""
        self._child("headrace_guard_wait_seconds").observe(seconds)

    def compared(self, result: str) -> None:
        """Count a lookup in the semantic cache."""
        self._child("headrace_cache_semantic_total", result).inc()

    def begin(self, record: Record) -> None:
        self._inflight.value += 1

    def end(self, record: Record) -> None:
        self._inflight.value -= 1
        self._counting.count(record.facts or facts_of(record))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Drop the series of names that are long out of force. Return the exposition in the best
        form that is accepted, and its media type."""
        self._series.retire()
        return self.prepare().render(accept)

    def prepare(self) -> Exposition:
        """Return what a scrape is shown, made when it is first asked for."""
        if self._exposition is None:
            from proxy.emit.exposition import Exposition  # noqa: PLC0415  # 30 modules, for scrapes

            self._exposition = Exposition(self._series)
        return self._exposition


_STANDING = (
    "headrace_limit_remaining_ratio",
    "headrace_budget_limit_usd",
    "headrace_budget_spent_usd",
    "headrace_budget_remaining_usd",
    "headrace_budget_reset_timestamp_seconds",
)


def _budget(standing: Standing, now: float) -> Iterable[tuple[str, float]]:
    values: Mapping[str, float] = {
        "limit_usd": standing.limit.capacity / NANO,
        "spent_usd": standing.used / NANO,
        "remaining_usd": standing.remaining / NANO,
        "reset_timestamp_seconds": now + (standing.reset_s or 0.0),
    }
    return ((f"headrace_budget_{name}", value) for name, value in values.items())
