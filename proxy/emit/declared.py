"""Every metric, declared once: name, kind, labels, help and buckets.

Label values come from policy or from closed sets, never from a client.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from proxy.emit.tally import Count, Level, Spread

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
        "headrace_guard_decisions_total",
        Counter,
        ("guard", "stage", "verdict", "shadow"),
        "What guards said of calls: passed, flagged, masked, blocked, failed, or unseen.",
    ),
    Declared(
        "headrace_guard_duration_seconds",
        Histogram,
        ("guard", "stage"),
        "Time that a guard spent on one call.",
        SHORT_SECONDS,
    ),
    Declared(
        "headrace_limit_decisions_total",
        Counter,
        ("limit", "decision"),
        "What limits said to calls: allow, deny, or would_deny where one is in shadow.",
    ),
    Declared(
        "headrace_limit_warnings_total",
        Counter,
        ("limit",),
        "Calls that took a limit past its warn_at.",
    ),
    Declared(
        "headrace_limit_store_degraded",
        Gauge,
        (),
        "1 while the shared store of counters is away and limits fall back to what they say.",
    ),
    Declared(
        "headrace_candidate_decisions_total",
        Counter,
        ("kind", "rule"),
        "What the candidate policies decide otherwise, by what differs and the rule; or the same.",
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
    Declared(
        "headrace_cache_lookups_total",
        Counter,
        ("result",),
        "Calls that a cache rule covers: hit, miss, refresh, coalesced or bypass.",
    ),
    Declared(
        "headrace_cache_saved_usd_total",
        Counter,
        (),
        "What kept and shared answers would have cost, where the price is known.",
    ),
    Declared("headrace_cache_bytes", Gauge, ("store",), "What the kept answers take."),
    Declared("headrace_cache_entries", Gauge, ("store",), "Kept answers."),
    Declared(
        "headrace_cache_evictions_total",
        Counter,
        ("reason",),
        "Kept answers let go: full, expired, or dropped as the store could not take them.",
    ),
    Declared(
        "headrace_cache_store_failures_total",
        Counter,
        ("store",),
        "Times that a store could not be used; the calls were served without it.",
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
