"""Metrics of requests to upstreams: one call may make several, or none."""

from __future__ import annotations

from proxy.emit.declared import axes
from proxy.emit.declared.calls import LONG_SECONDS
from proxy.emit.declared.metric import Declared

METRICS = (
    Declared(
        "headrace_upstream_request_duration_seconds",
        "histogram",
        (axes.UPSTREAM,),
        "From sending a request to an upstream to the end of its answer.",
        LONG_SECONDS,
    ),
    Declared(
        "headrace_upstream_attempts_total",
        "counter",
        (axes.UPSTREAM, axes.RESULT),
        "Requests to upstreams, by status class or error code.",
    ),
    Declared(
        "headrace_fallbacks_total",
        "counter",
        (axes.FALLBACK,),
        "Calls that went on to another upstream because one failed before it answered.",
    ),
    Declared(
        "headrace_upstream_repeats_total",
        "counter",
        (axes.UPSTREAM, axes.WHY),
        "Attempts that asked again: retries of a failed one, hedges against a slow one.",
    ),
    Declared(
        "headrace_upstream_skipped_total",
        "counter",
        (axes.UPSTREAM, axes.SKIPPED),
        "Targets that were not asked as their circuit was open or their upstream busy.",
    ),
    Declared(
        "headrace_circuit_state",
        "gauge",
        (axes.UPSTREAM, axes.ENDPOINT),
        "0 closed, 1 half open or open for some callers alone, 2 open; "
        "an endpoint that never failed for long has none.",
        lazy=True,
    ),
    Declared(
        "headrace_upstream_ratelimit_remaining_requests",
        "gauge",
        (axes.UPSTREAM,),
        "Requests that an upstream still allows, as its last answer said.",
        lazy=True,
    ),
    Declared(
        "headrace_upstream_ratelimit_remaining_tokens",
        "gauge",
        (axes.UPSTREAM,),
        "Tokens that an upstream still allows, as its last answer said.",
        lazy=True,
    ),
)
