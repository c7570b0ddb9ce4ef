"""Metrics of calls and of the requests to upstreams that they cause: results, times, usage, cost.

Cost is in whole nano-USD, rounded for each attempt as the ledger does, so that the two agree.
"""

from __future__ import annotations

from proxy.emit.declared import axes
from proxy.emit.declared.metric import counter, gauge, histogram

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96)
LONG_SECONDS = (*SECONDS, 81.92, 163.84, 327.68)
SHORT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
SPEEDS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640)
TOKENS = tuple(4.0**power for power in range(11))
USD = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)

METRICS = (
    counter(
        "headrace_requests_total",
        "Calls that ended, by how they ended.",
        (axes.DEPLOYMENT, axes.DIALECT, axes.ENDPOINT, axes.OUTCOME, axes.STREAM),
    ),
    counter(
        "headrace_unauthenticated_requests_total",
        "Calls without a key that counts, by why not and, where it is known, which key was "
        "used; the log, the ledger and traces tell of some of them only.",
        (axes.LAPSE,),
    ),
    gauge(
        "headrace_key_last_used_timestamp_seconds",
        "When a call with this text of a key ended last, in seconds since the epoch; "
        "`digest` is how its SHA-256 begins. There is none before the first such call of a "
        "process.",
        (axes.CREDENTIAL,),
        lazy=True,
    ),
    histogram(
        "headrace_request_duration_seconds",
        "From the request's head to the last byte of the answer.",
        (axes.DEPLOYMENT, axes.ENDPOINT, axes.STREAM),
        edges=LONG_SECONDS,
    ),
    histogram(
        "headrace_time_to_first_token_seconds",
        "From the request's head to the first text of the answer.",
        (axes.MODEL,),
        edges=SECONDS,
    ),
    histogram(
        "headrace_inter_token_latency_seconds",
        "Mean time between the tokens of a streamed answer, once for each answer.",
        (axes.MODEL,),
        edges=BETWEEN,
    ),
    histogram(
        "headrace_output_tokens_per_second",
        "Tokens of an answer by the seconds from asking the upstream to the end of its answer.",
        (axes.MODEL,),
        edges=SPEEDS,
    ),
    histogram(
        "headrace_overhead_seconds",
        "What the proxy itself added: all time but that of its upstreams.",
        (axes.DEPLOYMENT,),
        edges=SHORT_SECONDS,
    ),
    gauge("headrace_inflight_requests", "Calls under way."),
    gauge(
        "headrace_queued_requests",
        "Calls that wait for a connection to an upstream, as all that may be open are in use.",
    ),
    gauge(
        "headrace_open_connections",
        "Open connections, by who is at the other end.",
        (axes.OPEN,),
        lazy=True,
    ),
    counter(
        "headrace_stream_aborts_total",
        "Streams that did not reach their end, by who ended them and when.",
        (axes.DEPLOYMENT, axes.SIDE, axes.PHASE),
    ),
    counter(
        "headrace_dropped_tags_total",
        "Tags of callers that the policy does not allow.",
        (axes.DEPLOYMENT,),
    ),
    counter(
        "headrace_tagged_requests_total",
        "Calls by each tag of the policies; its values together are all calls.",
        (axes.TAGGED,),
    ),
    counter(
        "headrace_tokens_total",
        "Tokens by type; the types do not overlap, so their sum is what was billed.",
        (axes.SERVED, axes.TOKEN_TYPE, axes.ESTIMATED),
    ),
    histogram(
        "headrace_request_tokens",
        "Tokens of a call that an upstream worked on, all its attempts together.",
        (axes.DEPLOYMENT, axes.DIRECTION),
        edges=TOKENS,
    ),
    counter(
        "headrace_cost_usd_total",
        "Cost of attempts whose price is known, by what it was for (other: cache writes, audio).",
        (axes.PRICED, axes.COST_TYPE),
    ),
    histogram(
        "headrace_request_cost_usd",
        "Cost of a call that an upstream worked on, where the price of all its attempts is known.",
        (axes.DEPLOYMENT,),
        edges=USD,
    ),
    counter(
        "headrace_money_usd_total",
        "What the cost did: useful, retried, abandoned, blocked or shadow; together they are it.",
        (axes.DEPLOYMENT, axes.USE),
    ),
    counter(
        "headrace_lost_cost_usd_total",
        "The part of the cost whose answer nobody got to its end, by why.",
        (axes.PRICED, axes.LOSS),
    ),
    counter(
        "headrace_key_cost_usd_total",
        "Cost of attempts whose price is known, by virtual key.",
        (axes.KEY,),
    ),
    counter(
        "headrace_tagged_cost_usd_total",
        "Cost by each tag of the policies; the values of one tag together are the whole cost.",
        (axes.TAGGED,),
    ),
    counter(
        "headrace_tagged_tokens_total",
        "Tokens by each tag of the policies; the values of one tag together are all tokens.",
        (axes.TAGGED,),
    ),
    counter(
        "headrace_unpriced_requests_total",
        "Answers whose cost is unknown: they used tokens of a model without a known price, or "
        "said nothing of their usage (no_usage), as those of paths that are passed on may.",
        (axes.UNPRICED, axes.LACKING),
    ),
    counter(
        "headrace_usage_estimated_total",
        "Answers whose tokens were estimated, as the upstream reported none.",
        (axes.MODEL,),
    ),
    counter(
        "headrace_usage_invalid_total",
        "Usage reports of upstreams that could not be trusted.",
        (axes.UPSTREAM,),
    ),
    gauge(
        "headrace_price_table_timestamp_seconds",
        "The day on which the table of prices was taken, in seconds since the epoch.",
        lazy=True,
    ),
    histogram(
        "headrace_upstream_request_duration_seconds",
        "From sending a request to an upstream to the end of its answer.",
        (axes.UPSTREAM,),
        edges=LONG_SECONDS,
    ),
    counter(
        "headrace_upstream_attempts_total",
        "Requests to upstreams, by status class or error code, and why a connection failed.",
        (axes.UPSTREAM, axes.RESULT),
    ),
    counter(
        "headrace_fallbacks_total",
        "Calls that went on to another upstream because one failed before it answered.",
        (axes.FALLBACK,),
    ),
    counter(
        "headrace_upstream_repeats_total",
        "Attempts that asked again: retries of a failed one, hedges against a slow one.",
        (axes.UPSTREAM, axes.WHY),
    ),
    counter(
        "headrace_upstream_skipped_total",
        "Targets that were not asked as their circuit was open or their upstream busy.",
        (axes.UPSTREAM, axes.SKIPPED),
    ),
    gauge(
        "headrace_circuit_state",
        "0 closed, 1 half open or open for some callers alone, 2 open; "
        "an endpoint that never failed for long has none.",
        (axes.UPSTREAM, axes.ENDPOINT),
        lazy=True,
    ),
    gauge(
        "headrace_upstream_ratelimit_remaining_requests",
        "Requests that an upstream still allows, as its last answer said.",
        (axes.UPSTREAM,),
        lazy=True,
    ),
    gauge(
        "headrace_upstream_ratelimit_remaining_tokens",
        "Tokens that an upstream still allows, as its last answer said.",
        (axes.UPSTREAM,),
        lazy=True,
    ),
)
