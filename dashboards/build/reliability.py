"""Reliability dashboard: outcomes, latencies, upstreams, and the proxy process."""

from __future__ import annotations

from dashboards.build.panels import Board, Query, Row, Variable, bars, lines, stacked, stat, table
from dashboards.build.promql import Selector, active_rates, by, quantile, rate, ratio

SHARE, SECONDS, PER_S = "percentunit", "s", "reqps"
MAX_FAILURE_SHARE = 0.005  # the objective in dashboards/rules/alerts.yaml
FAILURES = "=~upstream_error|timeout|proxy_error"
JUDGED_OUTCOMES = "=~success|upstream_error|timeout|proxy_error"

metric = Selector(("deployment", "upstream"))
REQUESTS = metric("requests_total")
DURATIONS = metric("request_duration_seconds_bucket")
FIRST_TOKENS = metric("time_to_first_token_seconds_bucket")
OVERHEADS = metric("overhead_seconds_bucket")
ATTEMPTS = metric("upstream_attempts_total")
FAILED_CONNECTIONS = metric("upstream_attempts_total", cause="!=none")


def failure_share(window: str, labels: str = "") -> str:
    """Return the share of failed calls. Client errors, refusals and disconnects do not count."""
    total = by(labels, f"rate({metric('requests_total', outcome=JUDGED_OUTCOMES)}[{window}])")
    failures = by(labels, f"rate({metric('requests_total', outcome=FAILURES)}[{window}])")
    return ratio(f"({failures} or {total} * 0)", total)


OVERVIEW = Row(
    "Overview",
    (
        stat(
            "Availability",
            "What share of the calls succeeded, without client errors and refusals?",
            SHARE,
            f"1 - {failure_share('$__range')}",
            steps=((None, "red"), (0.99, "orange"), (0.995, "green")),
            decimals=2,
        ),
        stat(
            "Error budget left",
            "What share of the failures allowed in 30 days (0.5 %) is left?",
            SHARE,
            f"1 - {failure_share('30d')} / {MAX_FAILURE_SHARE}",
            steps=((None, "red"), (0.0, "orange"), (0.25, "green")),
        ),
        stat(
            "Burn rate",
            "How fast is the error budget spent? At 1 it lasts 30 days, at 14 two days.",
            "none",
            f"{failure_share('1h')} / {MAX_FAILURE_SHARE}",
            steps=((None, "green"), (1, "orange"), (14.4, "red")),
            decimals=1,
        ),
        stat(
            "Calls per second",
            "How many calls end per second?",
            PER_S,
            by("", rate(REQUESTS)),
        ),
        stat(
            "First text, p95",
            "How long do 95 % of the callers wait for the first text, at most?",
            SECONDS,
            quantile(0.95, FIRST_TOKENS),
        ),
        stat(
            "Overhead, p99",
            "How much time does the proxy add to 99 % of the calls, at most?",
            SECONDS,
            quantile(0.99, OVERHEADS),
        ),
    ),
)

CALL_ROW = Row(
    "Calls",
    (
        stacked(
            "Calls by outcome",
            "How do calls end?",
            PER_S,
            Query(active_rates(REQUESTS, "outcome"), "{{outcome}}"),
        ),
        lines(
            "Failures by deployment",
            "Which deployments fail?",
            SHARE,
            Query(failure_share("$__rate_interval", "deployment"), "{{deployment}}"),
        ),
        lines(
            "Burn rate over time",
            "How fast is the error budget spent over 5 minutes, 1 hour and 6 hours?",
            "none",
            *(
                Query(f"{failure_share(window)} / {MAX_FAILURE_SHARE}", window)
                for window in ("5m", "1h", "6h")
            ),
        ),
        lines(
            "Duration",
            "How long do calls take, from the first to the last byte?",
            SECONDS,
            *(Query(quantile(q, DURATIONS), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
            exemplars=True,
        ),
        lines(
            "Time to first text",
            "How long does a response take to begin?",
            SECONDS,
            *(Query(quantile(q, FIRST_TOKENS), f"p{q * 100:g}") for q in (0.5, 0.95)),
            exemplars=True,
        ),
        lines(
            "Time between tokens, p95",
            "How long are pauses within streams, by model?",
            SECONDS,
            Query(
                quantile(0.95, metric("inter_token_latency_seconds_bucket"), "model"), "{{model}}"
            ),
            exemplars=True,
        ),
        lines(
            "Output tokens per second, median",
            "How fast are responses generated, by model?",
            "short",
            Query(quantile(0.5, metric("output_tokens_per_second_bucket"), "model"), "{{model}}"),
            width=12,
        ),
        bars(
            "Duration by deployment, p95",
            "Which deployments are slow?",
            SECONDS,
            Query(quantile(0.95, DURATIONS, "deployment"), "{{deployment}}"),
            width=12,
        ),
    ),
)

UPSTREAM_ROW = Row(
    "Upstreams",
    (
        stacked(
            "Attempts by result",
            "How do attempts end, by upstream?",
            PER_S,
            Query(active_rates(ATTEMPTS, "upstream, result"), "{{upstream}} {{result}}"),
        ),
        stacked(
            "Failed connections by cause",
            "Why do connections to upstreams fail?",
            PER_S,
            Query(active_rates(FAILED_CONNECTIONS, "upstream, cause"), "{{upstream}} {{cause}}"),
        ),
        lines(
            "Duration by upstream, p95",
            "Which upstream is slow?",
            SECONDS,
            Query(
                quantile(0.95, metric("upstream_request_duration_seconds_bucket"), "upstream"),
                "{{upstream}}",
            ),
            exemplars=True,
        ),
        stacked(
            "Retries, hedges, fallbacks and skips",
            "How often is an attempt repeated, or sent to another upstream?",
            PER_S,
            Query(active_rates(metric("upstream_repeats_total"), "why"), "{{why}}"),
            Query(
                f"{by('upstream, to_upstream', rate(metric('fallbacks_total')))} > 0",
                "{{upstream}} to {{to_upstream}}",
            ),
            Query(f"{by('reason', rate(metric('upstream_skipped_total')))} > 0", "{{reason}}"),
        ),
        stat(
            "Circuits",
            "Which targets are skipped because they failed too often?",
            "none",
            by("upstream, model", metric("circuit_state"), "max"),
            value_texts=(
                (0, "closed", "green"),
                (1, "half open, or open for some", "orange"),
                (2, "open", "red"),
            ),
            width=8,
            height=8,
        ),
        table(
            "Headroom at upstreams",
            "What rate limit is left, according to the last responses of providers?",
            ("upstream", "model"),
            Query(
                by("upstream, model", metric("upstream_ratelimit_remaining_requests"), "min"),
                "Requests left",
                "short",
            ),
            Query(
                by("upstream, model", metric("upstream_ratelimit_remaining_tokens"), "min"),
                "Tokens left",
                "short",
            ),
            width=8,
        ),
        stacked(
            "Aborted streams",
            "Which side aborts streams, before or after the first text?",
            PER_S,
            Query(active_rates(metric("stream_aborts_total"), "side, phase"), "{{side}} {{phase}}"),
        ),
    ),
)

PROCESS_ROW = Row(
    "Proxy",
    (
        lines(
            "Overhead",
            "How much time does the proxy add to a call?",
            SECONDS,
            *(Query(quantile(q, OVERHEADS), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
            exemplars=True,
        ),
        lines(
            "Active calls",
            "How many calls are active or queued, by instance?",
            "short",
            Query(by("instance", metric("inflight_requests")), "active {{instance}}"),
            Query(by("instance", metric("queued_requests")), "queued {{instance}}"),
        ),
        lines(
            "Event loop lag, p99",
            "Does anything block the event loop?",
            SECONDS,
            Query(
                quantile(0.99, metric("event_loop_lag_seconds_bucket"), "instance"), "{{instance}}"
            ),
        ),
        lines(
            "Memory",
            "Does the memory of an instance grow?",
            "bytes",
            Query('process_resident_memory_bytes{job="headrace"}', "{{instance}}"),
        ),
        lines(
            "Connections",
            "How many connections are open, to clients and to upstreams?",
            "short",
            Query(by("side", metric("open_connections")), "{{side}}"),
        ),
        table(
            "Active revisions",
            "Do all instances serve the same policies?",
            ("revision",),
            Query(by("revision", metric("policy_info"), "count"), "Instances", "short"),
            width=4,
        ),
        table(
            "Versions",
            "Which versions of the proxy run?",
            ("version",),
            Query(by("version", metric("build_info"), "count"), "Instances", "short"),
            width=4,
        ),
        stacked(
            "Telemetry lost",
            "Are log lines, spans or rows missing, and why?",
            "cps",
            Query(
                active_rates(metric("telemetry_dropped_total"), "signal, reason"),
                "{{signal}} {{reason}}",
            ),
            width=12,
        ),
        lines(
            "Telemetry waiting",
            "Does a queue fill up before records are lost?",
            "short",
            Query(by("signal", metric("telemetry_queue_length")), "{{signal}}"),
            width=12,
        ),
    ),
)

BOARD = Board(
    uid="headrace-reliability",
    title="Headrace: reliability",
    description="Whether calls are answered, how fast, and why they fail.",
    span="6h",
    variables=(
        Variable("deployment", "Deployment", "headrace_requests_total"),
        Variable("upstream", "Upstream", "headrace_upstream_attempts_total"),
    ),
    rows=(OVERVIEW, CALL_ROW, UPSTREAM_ROW, PROCESS_ROW),
)
