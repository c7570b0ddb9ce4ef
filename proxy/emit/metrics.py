"""The sink that counts what is declared."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from proxy.emit import summary
from proxy.emit.declared import METRICS
from proxy.errors import UpstreamError
from proxy.record import Attempt, Bill, Record
from proxy.types import Plan, Target
from proxy.types.guard import Result
from proxy.types.outcome import Outcome
from proxy.usage import TOKEN_TYPES

Circuit = Literal["closed", "half_open", "open"]
CIRCUITS: dict[Circuit, int] = {"closed": 0, "half_open": 1, "open": 2}
MAX_CHILDREN = 10_000


class Metrics(Collector):
    """The sink that counts. Children are looked up once per set of labels and kept.

    One thread counts; another may scrape.
    """

    def __init__(self, version: str) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._declared = {metric.name: metric for metric in METRICS}
        self._children: dict[tuple[str, ...], Any] = {}
        for metric in METRICS:
            if not metric.labels:
                self._child(metric.name)
        self._inflight = self._child("headrace_inflight_requests")
        self._child("headrace_build_info", version).set(1)
        for result in ("in_force", "unchanged", "rejected"):
            self._child("headrace_policy_reloads_total", result)

    def _child(self, name: str, *labels: str) -> Any:
        """Give a child by its labels. They come from bounded sets; the cap is a second net."""
        key = (name, *labels)
        child = self._children.get(key)
        if child is None:
            if len(self._children) >= MAX_CHILDREN:
                labels = tuple("other" for _ in labels)
            child = self._children.setdefault((name, *labels), self._declared[name].made())
        return child

    def dropped(self, signal: str, reason: str, count: int = 1) -> None:
        """Count what could not be emitted."""
        self._child("headrace_telemetry_dropped_total", signal, reason).inc(count)

    def reloaded(self, result: str) -> None:
        """Count a reading of the policies."""
        self._child("headrace_policy_reloads_total", result).inc()
        self._child("headrace_policy_last_reload_success").set(result != "rejected")
        now = datetime.now(UTC).timestamp()
        self._child("headrace_policy_last_reload_timestamp_seconds").set(now)

    def limit_warned(self, limit: str) -> None:
        """Count a call that took a limit past its mark."""
        self._child("headrace_limit_warnings_total", limit).inc()

    def counters_degraded(self, degraded: bool) -> None:
        """Show whether limits are counted without the store that others share."""
        self._child("headrace_limit_store_degraded").set(degraded)

    def candidate(self, kind: str, rule: str) -> None:
        """Count a way in which the candidate differs, or that it does not."""
        self._child("headrace_candidate_decisions_total", kind, rule).inc()

    def circuit(self, target: Target, state: Circuit) -> None:
        """Show what became of a target's circuit."""
        names = (target.upstream.name, target.model)
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

    def begin(self, record: Record) -> None:
        self._inflight.inc()

    def end(self, record: Record) -> None:
        self._inflight.dec()
        deployment, endpoint = summary.deployment(record), summary.endpoint(record)
        stream = "true" if record.call is not None and record.call.stream else "false"
        dialect = summary.dialect(record)
        requests = self._child(
            "headrace_requests_total", deployment, dialect, endpoint, record.outcome, stream
        )
        requests.inc()
        duration = self._child("headrace_request_duration_seconds", deployment, endpoint, stream)
        duration.observe(summary.duration(record))
        self._child("headrace_overhead_seconds", deployment).observe(summary.overhead(record))
        for attempt in record.attempts:
            self._attempt(attempt)
        for failed, next_one in summary.fallbacks(record):
            names = (failed.target.upstream.name, next_one.target.upstream.name)
            self._child("headrace_fallbacks_total", deployment, *names).inc()
        for skip in record.skips:
            names = (skip.target.upstream.name, skip.target.model)
            self._child("headrace_upstream_skipped_total", *names, skip.reason).inc()
        for bill in record.bills():
            self._bill(deployment, bill)
        if record.plan is not None:
            self._ruled(deployment, record.plan)
            self._cached(record, record.plan)
        if record.admission is not None:
            self._limited(record.admission)
        for stage, result in record.verdicts():
            self._guarded(stage, result)
        self._first_token(deployment, record)
        self._oddities(deployment, record)

    def _attempt(self, attempt: Attempt) -> None:
        upstream, model = attempt.target.upstream.name, attempt.target.model
        result = attempt.error or f"{(attempt.status or 0) // 100}xx"
        self._child("headrace_upstream_attempts_total", upstream, model, result).inc()
        spent = self._child("headrace_upstream_request_duration_seconds", upstream, model)
        spent.observe((attempt.ended or attempt.started) - attempt.started)
        if attempt.why in ("retry", "hedge"):
            self._child("headrace_upstream_repeats_total", upstream, model, attempt.why).inc()

    def _bill(self, deployment: str, bill: Bill) -> None:
        if bill.usage.source == "none":
            return
        model, provider = bill.target.model, bill.target.upstream.provider or summary.UNKNOWN
        estimated = bill.usage.source == "partial_estimate"
        for token_type in TOKEN_TYPES:
            count = getattr(bill.usage.tokens, token_type)
            if count:
                said = "true" if estimated else "false"
                labels = (deployment, provider, model, token_type, said)
                self._child("headrace_tokens_total", *labels).inc(count)
        if estimated:
            self._child("headrace_usage_estimated_total", deployment, model).inc()
        if bill.cost is None:
            self._child("headrace_unpriced_requests_total", deployment, provider, model).inc()
        else:
            cost = self._child("headrace_cost_usd_total", deployment, provider, model)
            cost.inc(float(bill.cost) / 1_000_000)
            if not bill.served:
                lost = self._child("headrace_lost_cost_usd_total", deployment, provider, model)
                lost.inc(float(bill.cost) / 1_000_000)

    def _first_token(self, deployment: str, record: Record) -> None:
        attempt, seconds = summary.served(record), summary.first_token(record)
        if attempt is not None and seconds is not None:
            model = attempt.target.model
            self._child("headrace_time_to_first_token_seconds", deployment, model).observe(seconds)

    def _ruled(self, deployment: str, plan: Plan) -> None:
        for rule in plan.rules:
            self._child("headrace_policy_rules_total", deployment, rule).inc()
        for rule in plan.would:
            self._child("headrace_policy_would_total", deployment, rule).inc()

    def _guarded(self, stage: str, result: Result) -> None:
        shadow = "true" if result.shadow else "false"
        names = (result.guard, stage, result.verdict, shadow)
        self._child("headrace_guard_decisions_total", *names).inc()
        spent = self._child("headrace_guard_duration_seconds", result.guard, stage)
        spent.observe(result.seconds)

    def _limited(self, admission: Outcome) -> None:
        for standing in admission.standings:
            said = "allow"
            if standing.refuses:
                said = "would_deny" if standing.limit.shadow else "deny"
            self._child("headrace_limit_decisions_total", standing.limit.name, said).inc()

    def _cached(self, record: Record, plan: Plan) -> None:
        if plan.cache is not None:
            self._child("headrace_cache_lookups_total", record.cache).inc()
        if record.saved is not None and record.saved.cost:
            saved = self._child("headrace_cache_saved_usd_total")
            saved.inc(float(record.saved.cost) / 1_000_000)

    def _oddities(self, deployment: str, record: Record) -> None:
        if record.plan is not None and record.plan.dropped_tags:
            self._child("headrace_dropped_tags_total", deployment).inc(record.plan.dropped_tags)
        for attempt in record.attempts:
            if attempt.meter.invalid_usage:
                names = (attempt.target.upstream.name, attempt.target.model)
                invalid = self._child("headrace_usage_invalid_total", *names)
                invalid.inc(attempt.meter.invalid_usage)
        streamed = record.call is not None and record.call.stream
        if streamed and record.error is not None and record.attempts:
            side = _side(record)
            phase = "before_first" if record.first_sent is None else "after_first"
            self._child("headrace_stream_aborts_total", deployment, side, phase).inc()

    def collect(self) -> Iterator[Metric]:
        children: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
        for key, child in list(self._children.items()):  # a copy: calls may add some meanwhile
            children.setdefault(key[0], []).append((key[1:], child))
        for metric in METRICS:
            yield metric.shown(children.get(metric.name, []))

    def render(self) -> tuple[bytes, str]:
        """Give the exposition and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


def _side(record: Record) -> str:
    if record.outcome == "client_abort":
        return "client"
    return "upstream" if isinstance(record.error, UpstreamError) else "proxy"
