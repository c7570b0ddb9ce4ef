"""Every metric, declared once. Label values come from policy or from closed sets, never from a
client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from proxy.emit import summary
from proxy.emit.tally import Count, Level, Spread
from proxy.errors import UpstreamError
from proxy.record import Attempt, Bill, Record
from proxy.types import Plan, Target
from proxy.usage import TOKEN_TYPES

Circuit = Literal["closed", "half_open", "open"]
CIRCUITS: dict[Circuit, int] = {"closed": 0, "half_open": 1, "open": 2}
MAX_CHILDREN = 10_000
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96)
LONG_SECONDS = (*SECONDS, 81.92, 163.84, 327.68)
SHORT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric: its name as scraped, kind, labels, help and, for a histogram, bucket edges."""

    name: str
    kind: type[Counter] | type[Gauge] | type[Histogram]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()

    def made(self) -> Count | Level | Spread:
        """Give what counts for one set of labels."""
        if self.kind is Histogram:
            return Spread(self.buckets)
        return Count() if self.kind is Counter else Level()

    def shown(self, children: list[tuple[tuple[str, ...], Any]]) -> Metric:
        """Give the metric as it is scraped, from its children by their labels."""
        said = (self.name, self.help)
        if self.kind is Histogram:
            spreads = HistogramMetricFamily(*said, labels=self.labels)
            for labels, spread in children:
                spreads.add_metric(labels, spread.buckets(), spread.sum)
            return spreads
        family = CounterMetricFamily if self.kind is Counter else GaugeMetricFamily
        numbers = family(*said, labels=self.labels)
        for labels, number in children:
            numbers.add_metric(labels, number.value)
        return numbers


METRICS: tuple[Declared, ...] = (
    Declared(
        "headrace_requests_total",
        Counter,
        ("deployment", "dialect", "endpoint", "outcome", "stream"),
        "Calls that ended, by how they ended.",
    ),
    Declared(
        "headrace_request_duration_seconds",
        Histogram,
        ("deployment", "endpoint", "stream"),
        "From the request's head to the last byte of the answer.",
        LONG_SECONDS,
    ),
    Declared(
        "headrace_time_to_first_token_seconds",
        Histogram,
        ("deployment", "model"),
        "From the request's head to the first text of the answer.",
        SECONDS,
    ),
    Declared(
        "headrace_overhead_seconds",
        Histogram,
        ("deployment",),
        "What the proxy itself added: all time but that of its upstreams.",
        SHORT_SECONDS,
    ),
    Declared(
        "headrace_upstream_request_duration_seconds",
        Histogram,
        ("upstream", "model"),
        "From sending a request to an upstream to the end of its answer.",
        LONG_SECONDS,
    ),
    Declared(
        "headrace_upstream_attempts_total",
        Counter,
        ("upstream", "model", "result"),
        "Requests to upstreams, by status class or error code.",
    ),
    Declared(
        "headrace_fallbacks_total",
        Counter,
        ("deployment", "upstream", "to_upstream"),
        "Calls that went on to another upstream because one failed before it answered.",
    ),
    Declared(
        "headrace_upstream_repeats_total",
        Counter,
        ("upstream", "model", "why"),
        "Attempts that asked again: retries of a failed one, hedges against a slow one.",
    ),
    Declared(
        "headrace_upstream_skipped_total",
        Counter,
        ("upstream", "model", "reason"),
        "Targets that were not asked as their circuit was open or their upstream busy.",
    ),
    Declared(
        "headrace_circuit_state",
        Gauge,
        ("upstream", "model"),
        "0 closed, 1 half open, 2 open; a target that never failed for long has none.",
    ),
    Declared(
        "headrace_tokens_total",
        Counter,
        ("deployment", "provider", "model", "token_type", "estimated"),
        "Tokens by type; the types do not overlap, so their sum is what was billed.",
    ),
    Declared(
        "headrace_cost_usd_total",
        Counter,
        ("deployment", "provider", "model"),
        "Cost of attempts whose price is known.",
    ),
    Declared(
        "headrace_lost_cost_usd_total",
        Counter,
        ("deployment", "provider", "model"),
        "The part of the cost whose answer nobody got: failed attempts, and losers of a hedge.",
    ),
    Declared(
        "headrace_unpriced_requests_total",
        Counter,
        ("deployment", "provider", "model"),
        "Answers that used tokens of a model without a known price.",
    ),
    Declared(
        "headrace_usage_estimated_total",
        Counter,
        ("deployment", "model"),
        "Answers whose tokens were estimated, as the upstream reported none.",
    ),
    Declared(
        "headrace_usage_invalid_total",
        Counter,
        ("upstream", "model"),
        "Usage reports of upstreams that could not be trusted.",
    ),
    Declared(
        "headrace_dropped_tags_total",
        Counter,
        ("deployment",),
        "Tags of callers that the policy does not allow.",
    ),
    Declared(
        "headrace_stream_aborts_total",
        Counter,
        ("deployment", "side", "phase"),
        "Streams that did not reach their end, by who ended them and when.",
    ),
    Declared(
        "headrace_policy_rules_total",
        Counter,
        ("deployment", "rule"),
        "Calls to which a rule applied, as policy/rule.",
    ),
    Declared(
        "headrace_policy_would_total",
        Counter,
        ("deployment", "rule"),
        "Calls to which a rule in shadow would have applied.",
    ),
    Declared(
        "headrace_policy_reloads_total",
        Counter,
        ("result",),
        "Readings of the policy folder: in_force, unchanged or rejected.",
    ),
    Declared(
        "headrace_policy_last_reload_success",
        Gauge,
        (),
        "1 while the folder as it was last read is in force, 0 after it was rejected.",
    ),
    Declared(
        "headrace_policy_last_reload_timestamp_seconds",
        Gauge,
        (),
        "When the policy folder was last read, in seconds since the epoch.",
    ),
    Declared("headrace_inflight_requests", Gauge, (), "Calls under way."),
    Declared(
        "headrace_telemetry_dropped_total",
        Counter,
        ("signal", "reason"),
        "Log lines, spans and records that could not be emitted.",
    ),
    Declared("headrace_build_info", Gauge, ("version",), "Always 1; says what runs."),
)


def declared() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Give name, kind, labels and help of each metric, for the reference."""
    for metric in METRICS:
        yield metric.name, metric.kind.__name__.lower(), metric.labels, metric.help


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

    def circuit(self, target: Target, state: Circuit) -> None:
        """Show what became of a target's circuit."""
        names = (target.upstream.name, target.model)
        self._child("headrace_circuit_state", *names).set(CIRCUITS[state])

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
