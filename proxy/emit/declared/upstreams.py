"""Metrics of requests to upstreams: one call may make several, or none."""

from __future__ import annotations

from proxy.emit.declared import axes
from proxy.emit.declared.calls import LONG_SECONDS
from proxy.emit.declared.metric import Declared

METRICS = (
    Declared(
        name="headrace_upstream_request_duration_seconds",
        kind="histogram",
        axes=(axes.UPSTREAM,),
        help="From sending a request to an upstream to the end of its answer.",
        edges=LONG_SECONDS,
    ),
    Declared(
        name="headrace_upstream_attempts_total",
        kind="counter",
        axes=(axes.UPSTREAM, axes.RESULT),
        help="Requests to upstreams, by status class or error code, and why a connection failed.",
    ),
    Declared(
        name="headrace_fallbacks_total",
        kind="counter",
        axes=(axes.FALLBACK,),
        help="Calls that went on to another upstream because one failed before it answered.",
    ),
    Declared(
        name="headrace_upstream_repeats_total",
        kind="counter",
        axes=(axes.UPSTREAM, axes.WHY),
        help="Attempts that asked again: retries of a failed one, hedges against a slow one.",
    ),
    Declared(
        name="headrace_upstream_skipped_total",
        kind="counter",
        axes=(axes.UPSTREAM, axes.SKIPPED),
        help="Targets that were not asked as their circuit was open or their upstream busy.",
    ),
    Declared(
        name="headrace_circuit_state",
        kind="gauge",
        axes=(axes.UPSTREAM, axes.ENDPOINT),
        help="0 closed, 1 half open or open for some callers alone, 2 open; "
        "an endpoint that never failed for long has none.",
        lazy=True,
    ),
    Declared(
        name="headrace_upstream_ratelimit_remaining_requests",
        kind="gauge",
        axes=(axes.UPSTREAM,),
        help="Requests that an upstream still allows, as its last answer said.",
        lazy=True,
    ),
    Declared(
        name="headrace_upstream_ratelimit_remaining_tokens",
        kind="gauge",
        axes=(axes.UPSTREAM,),
        help="Tokens that an upstream still allows, as its last answer said.",
        lazy=True,
    ),
)
