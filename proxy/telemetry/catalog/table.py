"""All metrics: name, help, labels and bucket edges."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.telemetry.catalog import (
    MetricSpec,
    counter,
    gauge,
    histogram,
    labels,
    lazy_gauge,
    library_metric,
)
from proxy.types.label_catalog import LabelCatalog

BUCKETS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96)
LONG_BUCKETS_S = (*BUCKETS_S, 81.92, 163.84, 327.68)
SHORT_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
TOKEN_GAPS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
LOOP_LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
TOKENS_PER_SECOND_BUCKETS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640)
TOKEN_BUCKETS = tuple(4.0**power for power in range(11))
USD_BUCKETS = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)

CALL_METRICS = (
    counter(
        "headrace_requests_total", "Calls that ended, by outcome.",
        labels.DEPLOYMENT, labels.DIALECT, labels.ENDPOINT, labels.OUTCOME, labels.STREAM,
    ),
    counter(
        "headrace_unauthenticated_requests_total",
        "Calls without a valid key, by reason and, if known, the key. The log, the ledger and "
        "traces have a limited number of them.", labels.KEY_REJECTION,
    ),
    lazy_gauge(
        "headrace_key_last_used_timestamp_seconds",
        "End of the last call with this credential of a key, in seconds since the epoch. `digest` "
        "is the start of its SHA-256. No series before the first such call of a process.",
        labels.CREDENTIAL,
    ),
    histogram(
        "headrace_request_duration_seconds",
        "Time from the head of the request to the last byte of the response.",
        labels.DEPLOYMENT, labels.ENDPOINT, labels.STREAM, edges=LONG_BUCKETS_S,
    ),
    histogram(
        "headrace_time_to_first_token_seconds",
        "Time from the head of the request to the first text of the response.",
        labels.MODEL, edges=BUCKETS_S,
    ),
    histogram(
        "headrace_inter_token_latency_seconds",
        "Mean time between the tokens of a streamed response, observed once for each response.",
        labels.MODEL, edges=TOKEN_GAPS_S,
    ),
    histogram(
        "headrace_output_tokens_per_second",
        "Tokens of a response divided by the duration of the request to the upstream.",
        labels.MODEL, edges=TOKENS_PER_SECOND_BUCKETS,
    ),
    histogram(
        "headrace_overhead_seconds", "Time of a call outside its upstreams.",
        labels.DEPLOYMENT, edges=SHORT_BUCKETS_S,
    ),
    gauge("headrace_inflight_requests", "Active calls."),
    gauge(
        "headrace_queued_requests",
        "Calls that wait for an upstream connection because all allowed ones are in use.",
    ),
    lazy_gauge(
        "headrace_open_connections", "Open connections, by peer.", labels.CONNECTION_PEER,
    ),
    counter(
        "headrace_stream_aborts_total",
        "Streams that were not completed, by the side that ended them and the phase.",
        labels.DEPLOYMENT, labels.ABORT_SIDE, labels.ABORT_PHASE,
    ),
    counter(
        "headrace_dropped_tags_total",
        "Tags of callers that the policy does not allow.", labels.DEPLOYMENT,
    ),
    counter(
        "headrace_tagged_requests_total",
        "Calls by each tag of the policies. The values of one tag add up to all calls.",
        labels.TAG_VALUE,
    ),
    counter(
        "headrace_tokens_total",
        "Tokens by type. The types do not overlap: their sum is what was billed.",
        labels.SERVED_MODEL, labels.TOKEN_TYPE, labels.ESTIMATED,
    ),
    histogram(
        "headrace_request_tokens",
        "Tokens of a call that reached an upstream, over all attempts.",
        labels.DEPLOYMENT, labels.DIRECTION, edges=TOKEN_BUCKETS,
    ),
    counter(
        "headrace_cost_usd_total",
        "Cost of attempts with a known price, by cost type (other: cache writes, audio).",
        labels.PRICED_MODEL, labels.COST_TYPE,
    ),
    histogram(
        "headrace_request_cost_usd",
        "Cost of a call that reached an upstream, if all its attempts have a known price.",
        labels.DEPLOYMENT, edges=USD_BUCKETS,
    ),
    counter(
        "headrace_money_usd_total",
        "Cost by use: useful, retried, abandoned, blocked or shadow. The uses add up to the cost.",
        labels.DEPLOYMENT, labels.SPEND_USE,
    ),
    counter(
        "headrace_lost_cost_usd_total",
        "Cost of responses that no client received to the end, by cause.",
        labels.PRICED_MODEL, labels.LOSS_CAUSE,
    ),
    counter(
        "headrace_key_cost_usd_total",
        "Cost of attempts with a known price, by virtual key.", labels.KEY,
    ),
    counter(
        "headrace_tagged_cost_usd_total",
        "Cost by each tag of the policies. The values of one tag add up to the whole cost.",
        labels.TAG_VALUE,
    ),
    counter(
        "headrace_tagged_tokens_total",
        "Tokens by each tag of the policies. The values of one tag add up to all tokens.",
        labels.TAG_VALUE,
    ),
    counter(
        "headrace_unpriced_requests_total",
        "Responses with an unknown cost: the model has no known price (no_price), or the response "
        "reports no usage (no_usage), as on some passthrough paths.",
        labels.UNPRICED_MODEL, labels.UNPRICED_REASON,
    ),
    counter(
        "headrace_usage_estimated_total",
        "Responses with estimated tokens: the upstream reported none, or not those of all text.",
        labels.MODEL,
    ),
    counter("headrace_usage_invalid_total", "Invalid usage reports of upstreams.", labels.UPSTREAM),
    lazy_gauge(
        "headrace_price_table_timestamp_seconds",
        "Date of the price table, in seconds since the epoch.",
    ),
    histogram(
        "headrace_upstream_request_duration_seconds",
        "Time from sending a request to an upstream to the end of its response.",
        labels.UPSTREAM, edges=LONG_BUCKETS_S,
    ),
    counter(
        "headrace_upstream_attempts_total",
        "Requests to upstreams, by status class or error code, and cause of a failed connection.",
        labels.UPSTREAM, labels.ATTEMPT_RESULT,
    ),
    counter(
        "headrace_fallbacks_total",
        "Calls that continued at another upstream because one failed before it responded.",
        labels.FALLBACK,
    ),
    counter(
        "headrace_upstream_repeats_total",
        "Repeated attempts: retries of failed ones, hedges of slow ones, guard retries.",
        labels.UPSTREAM, labels.REPEAT_REASON,
    ),
    counter(
        "headrace_upstream_skipped_total",
        "Targets that were skipped because their circuit was open or their upstream busy.",
        labels.UPSTREAM, labels.SKIP_REASON,
    ),
    lazy_gauge(
        "headrace_circuit_state",
        "0 closed, 1 half open or open for some callers only, 2 open. An endpoint that has not "
        "failed recently has no series.", labels.UPSTREAM, labels.ENDPOINT,
    ),
    lazy_gauge(
        "headrace_upstream_ratelimit_remaining_requests",
        "Requests that an upstream still allows, by its last response.", labels.UPSTREAM,
    ),
    lazy_gauge(
        "headrace_upstream_ratelimit_remaining_tokens",
        "Tokens that an upstream still allows, by its last response.", labels.UPSTREAM,
    ),
)  # fmt: skip
POLICY_METRICS = (
    counter(
        "headrace_policy_rules_total", "Calls to which a rule (policy/rule) applied.", labels.RULE
    ),
    counter(
        "headrace_policy_shadow_rules_total",
        "Calls to which a rule in shadow mode would have applied.", labels.RULE,
    ),
    counter(
        "headrace_guard_decisions_total",
        "Verdicts of guards: passed, flagged, masked, blocked, failed, not_applicable.",
        labels.GUARD, labels.VERDICT, labels.SHADOW,
    ),
    histogram(
        "headrace_guard_duration_seconds",
        "Processor time of a guard for one call, or the response time of its service.",
        labels.GUARD, edges=SHORT_BUCKETS_S,
    ),
    histogram(
        "headrace_guard_wait_seconds",
        "Time that a large text waited for a guard thread.", edges=SHORT_BUCKETS_S,
    ),
    counter(
        "headrace_limit_decisions_total",
        "Decisions of limits: allow, deny, or would_deny in shadow mode.",
        labels.LIMIT, labels.LIMIT_DECISION,
    ),
    counter(
        "headrace_limit_warnings_total", "Calls that took a limit past its warn_at.", labels.LIMIT
    ),
    lazy_gauge(
        "headrace_limit_remaining_ratio",
        "Share of a limit that remains for one of its owners.", labels.SCOPE,
    ),
    lazy_gauge(
        "headrace_budget_limit_usd",
        "Budget of one of its owners for each window.", labels.BUDGET,
    ),
    lazy_gauge(
        "headrace_budget_spent_usd",
        "Spend in the window, including the estimates of active calls.", labels.BUDGET,
    ),
    lazy_gauge(
        "headrace_budget_remaining_usd",
        "Budget that remains in the window, at least 0.", labels.BUDGET,
    ),
    lazy_gauge(
        "headrace_budget_reset_timestamp_seconds",
        "End of the window, in seconds since the epoch.", labels.BUDGET,
    ),
    lazy_gauge(
        "headrace_ledger_drift_usd",
        "Spend in the counters of a budget minus spend in the ledger. No series if unknown.",
        labels.LIMIT,
    ),
    counter(
        "headrace_budget_lost_total",
        "Budget counters that the shared store lost within their window.", labels.LIMIT,
    ),
    gauge(
        "headrace_limit_store_degraded",
        "1 while the shared store of counters is unavailable and limits use their fallback.",
    ),
    counter(
        "headrace_candidate_decisions_total",
        "Decisions of the candidate policies, by the kind of difference and the rule, or `same`.",
        labels.DIFFERENCE, labels.CANDIDATE_RULE,
    ),
    counter(
        "headrace_policy_reloads_total",
        "Loads of the policy folder: in_force, rejected, unchanged, or restored to the active "
        "policies after a rejected one.", labels.RELOAD_RESULT,
    ),
    gauge(
        "headrace_policy_last_reload_success",
        "1 if the last load of the folder is active, 0 if it was rejected.",
    ),
    gauge(
        "headrace_policy_last_reload_timestamp_seconds",
        "Time of the last load of the policy folder, in seconds since the epoch.",
    ),
    gauge(
        "headrace_policy_revocations_unread",
        "Places in the policy folder that may contain revocations and cannot be read.",
    ),
    lazy_gauge("headrace_policy_info", "Always 1. Revision of the active policies.",
          labels.REVISION),
    lazy_gauge(
        "headrace_deployment_info",
        "Always 1. Tags of a deployment and of the keys that may use it.", labels.DEPLOYMENT_TAG,
    ),
    counter(
        "headrace_cache_lookups_total",
        "Calls under a cache rule: hit, hit_semantic, miss, refresh, coalesced or bypass.",
        labels.DEPLOYMENT, labels.CACHE_RESULT,
    ),
    counter(
        "headrace_cache_semantic_total",
        "Prompts compared with cached ones. would_hit is in shadow mode. ineligible, timeout, "
        "failed, invalid (no usable vector) and busy: not compared.", labels.SEMANTIC_RESULT,
    ),
    histogram(
        "headrace_cache_lookup_duration_seconds", "Duration of cache lookups.",
        labels.CACHE_STORE, edges=SHORT_BUCKETS_S,
    ),
    counter(
        "headrace_cache_saved_usd_total",
        "Cost that cached and shared responses saved, if the price is known.", labels.DEPLOYMENT,
    ),
    counter(
        "headrace_cache_saved_tokens_total",
        "Tokens of cached and shared responses.", labels.DEPLOYMENT, labels.DIRECTION,
    ),
    lazy_gauge(
        "headrace_cache_bytes",
        "Size of the cached responses; vectors: of prompt embeddings.", labels.CACHE_CONTENT,
    ),
    lazy_gauge("headrace_cache_entries", "Cached responses.", labels.CACHE_CONTENT),
    counter(
        "headrace_cache_evictions_total",
        "Responses removed from the cache: full, expired, dropped (the store did not take them) "
        "or changed.", labels.EVICTION_REASON,
    ),
    counter(
        "headrace_cache_store_failures_total",
        "Failed operations of a cache store. The calls were served without it.", labels.CACHE_STORE,
    ),
)  # fmt: skip
PROCESS_METRICS = (
    histogram(
        "headrace_event_loop_lag_seconds",
        "Delay of timers in the event loop. A call waits as long for its turn.",
        edges=LOOP_LAG_BUCKETS_S,
    ),
    lazy_gauge(
        "headrace_telemetry_queue_length",
        "Items that wait to be written or exported.", labels.QUEUE,
    ),
    lazy_gauge("headrace_request_body_bytes", "Size of the bodies of active requests."),
    lazy_gauge("headrace_answer_body_bytes", "Size of the buffered responses."),
    counter(
        "headrace_telemetry_dropped_total",
        "Log lines, spans and rows that were lost.", labels.DROPPED_SIGNAL, labels.DROP_REASON,
    ),
    counter(
        "headrace_traces_sampled_total",
        "Calls whose spans are exported (sampled), or are not because of the rate limit of the "
        "default sampler (limited).", labels.SAMPLING_DECISION,
    ),
    counter(
        "headrace_writer_failures_total",
        "Unexpected exceptions in a thread that writes or exports.", labels.WRITER,
    ),
    counter(
        "headrace_files_replaced_total",
        "Missing or damaged files that were created again while the process ran.",
        labels.FILE_WRITER,
    ),
    lazy_gauge("headrace_build_info", "Always 1. Version of Headrace.", labels.VERSION),
    lazy_gauge(
        "headrace_secret_info",
        "Always 1. A short digest of the secret for each use: ids and placeholders (ids), all "
        "secrets whose ids are accepted (accepted), and cache keys in Redis (cache).",
        labels.SECRET_FINGERPRINT,
    ),
    library_metric("process_cpu_seconds_total", "User and system processor time.", "counter"),
    library_metric("process_resident_memory_bytes", "Resident memory."),
    library_metric("process_virtual_memory_bytes", "Virtual memory."),
    library_metric("process_start_time_seconds", "Start time, in seconds since the epoch."),
    library_metric("process_open_fds", "Open file descriptors."),
    library_metric("process_max_fds", "Maximum of open file descriptors."),
)  # fmt: skip
_TABLE = (*CALL_METRICS, *POLICY_METRICS, *PROCESS_METRICS)
_LABELS = sorted({label for metric in _TABLE for label in metric.labels} | {"label"})
OVERFLOW_METRIC = counter(
    "headrace_label_overflow_total",
    "Values outside the allowed set of a label, which were counted as `other`.",
    labels.make_fixed_label("label", *_LABELS),
)
METRICS: tuple[MetricSpec, ...] = (*_TABLE, OVERFLOW_METRIC)


def describe_series_bounds(catalog: LabelCatalog) -> Iterator[str]:
    """Yield a text table of the metrics with the most series that each can have under a catalog."""
    width = max(len(metric.name) for metric in METRICS)
    yield f"{'METRIC':<{width}}  {'KIND':<9}  SERIES  LABELS"
    total = 0
    for metric in METRICS:
        total += (series := metric.max_series(catalog))
        labels = ", ".join(metric.labels)
        yield f"{metric.name:<{width}}  {metric.kind:<9}  {series:>6}  {labels}".rstrip()
        yield f"    {metric.help}"
    initial = sum(
        len([*metric.iter_initial_values(catalog)]) * metric.series_per_label_set
        for metric in METRICS
    )
    yield f"{total} series at the most, {initial} at the start"
