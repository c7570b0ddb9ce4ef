"""Metrics of calls: how many there are, how they end, and how long they take."""

from __future__ import annotations

from proxy.emit.declared import axes
from proxy.emit.declared.metric import Declared

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96)
LONG_SECONDS = (*SECONDS, 81.92, 163.84, 327.68)
SHORT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
SPEEDS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640)

METRICS = (
    Declared(
        name="headrace_requests_total",
        kind="counter",
        axes=(axes.DEPLOYMENT, axes.DIALECT, axes.ENDPOINT, axes.OUTCOME, axes.STREAM),
        help="Calls that ended, by how they ended.",
    ),
    Declared(
        name="headrace_unauthenticated_requests_total",
        kind="counter",
        axes=(axes.LAPSE,),
        help="Calls without a key that counts, by why not and, where it is known, which key was "
        "used; the log, the ledger and traces tell of some of them only.",
    ),
    Declared(
        name="headrace_key_last_used_timestamp_seconds",
        kind="gauge",
        axes=(axes.CREDENTIAL,),
        help="When a call with this text of a key ended last, in seconds since the epoch; "
        "`digest` is how its SHA-256 begins. There is none before the first such call of a "
        "process.",
        lazy=True,
    ),
    Declared(
        name="headrace_request_duration_seconds",
        kind="histogram",
        axes=(axes.DEPLOYMENT, axes.ENDPOINT, axes.STREAM),
        help="From the request's head to the last byte of the answer.",
        edges=LONG_SECONDS,
    ),
    Declared(
        name="headrace_time_to_first_token_seconds",
        kind="histogram",
        axes=(axes.MODEL,),
        help="From the request's head to the first text of the answer.",
        edges=SECONDS,
    ),
    Declared(
        name="headrace_inter_token_latency_seconds",
        kind="histogram",
        axes=(axes.MODEL,),
        help="Mean time between the tokens of a streamed answer, once for each answer.",
        edges=BETWEEN,
    ),
    Declared(
        name="headrace_output_tokens_per_second",
        kind="histogram",
        axes=(axes.MODEL,),
        help="Tokens of an answer by the seconds from asking the upstream to the end of its "
        "answer.",
        edges=SPEEDS,
    ),
    Declared(
        name="headrace_overhead_seconds",
        kind="histogram",
        axes=(axes.DEPLOYMENT,),
        help="What the proxy itself added: all time but that of its upstreams.",
        edges=SHORT_SECONDS,
    ),
    Declared(name="headrace_inflight_requests", kind="gauge", axes=(), help="Calls under way."),
    Declared(
        name="headrace_queued_requests",
        kind="gauge",
        axes=(),
        help="Calls that wait for a connection to an upstream, as all that may be open are in use.",
    ),
    Declared(
        name="headrace_open_connections",
        kind="gauge",
        axes=(axes.OPEN,),
        help="Open connections, by who is at the other end.",
        lazy=True,
    ),
    Declared(
        name="headrace_stream_aborts_total",
        kind="counter",
        axes=(axes.DEPLOYMENT, axes.SIDE, axes.PHASE),
        help="Streams that did not reach their end, by who ended them and when.",
    ),
    Declared(
        name="headrace_dropped_tags_total",
        kind="counter",
        axes=(axes.DEPLOYMENT,),
        help="Tags of callers that the policy does not allow.",
    ),
    Declared(
        name="headrace_tagged_requests_total",
        kind="counter",
        axes=(axes.TAGGED,),
        help="Calls by each tag of the policies; its values together are all calls.",
    ),
)
