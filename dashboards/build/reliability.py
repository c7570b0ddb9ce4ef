"""Whether calls are answered, how fast, by whom, and what the proxy itself does to them."""

from __future__ import annotations

from dashboards.build.panels import Ask, Board, Row, Variable, bars, lines, stacked, stat, table
from dashboards.build.promql import Selecting, by, lively, quantile, rate, ratio

SHARE, SECONDS, PER_S = "percentunit", "s", "reqps"
ALLOWED = 0.005  # the share of calls that may fail: the objective of dashboards/alerts.yaml
BAD = "=~upstream_error|timeout|proxy_error"
JUDGED = "=~success|upstream_error|timeout|proxy_error"

of = Selecting(("deployment", "upstream"))
REQUESTS = of("requests_total")
DURATIONS = of("request_duration_seconds_bucket")
FIRST_TOKENS = of("time_to_first_token_seconds_bucket")
OVERHEADS = of("overhead_seconds_bucket")
ATTEMPTS = of("upstream_attempts_total")
FAILED_CONNECTIONS = of("upstream_attempts_total", cause="!=none")


def failed(window: str, labels: str = "") -> str:
    """Give the share of calls that failed, of those that no caller had spoilt or left."""
    judged = by(labels, f"rate({of('requests_total', outcome=JUDGED)}[{window}])")
    bad = by(labels, f"rate({of('requests_total', outcome=BAD)}[{window}])")
    return ratio(f"({bad} or {judged} * 0)", judged)


WORKING = Row(
    "Is it working",
    (
        stat(
            "Availability",
            "What share of the calls was answered, of those that no caller spoilt or left?",
            SHARE,
            f"1 - {failed('$__range')}",
            steps=((None, "red"), (0.99, "orange"), (0.995, "green")),
            decimals=2,
        ),
        stat(
            "Error budget left",
            "How much of the failures that 30 days allow (0.5 %) is left?",
            SHARE,
            f"1 - {failed('30d')} / {ALLOWED}",
            steps=((None, "red"), (0.0, "orange"), (0.25, "green")),
        ),
        stat(
            "Burn rate",
            "How fast does the last hour use that up? 1 lasts for the 30 days, 14 for two.",
            "none",
            f"{failed('1h')} / {ALLOWED}",
            steps=((None, "green"), (1, "orange"), (14.4, "red")),
            decimals=1,
        ),
        stat(
            "Calls per second",
            "How many calls end in a second, now?",
            PER_S,
            by("", rate(REQUESTS)),
        ),
        stat(
            "First text, p95",
            "How long do 95 of 100 callers wait for the first text, at most?",
            SECONDS,
            quantile(0.95, FIRST_TOKENS),
        ),
        stat(
            "Overhead, p99",
            "What does the proxy itself add to 99 of 100 calls, at most?",
            SECONDS,
            quantile(0.99, OVERHEADS),
        ),
    ),
)

CALLS = Row(
    "Calls",
    (
        stacked(
            "Calls by outcome",
            "How do calls end?",
            PER_S,
            Ask(lively(REQUESTS, "outcome"), "{{outcome}}"),
        ),
        lines(
            "Failures by deployment",
            "Whose calls fail?",
            SHARE,
            Ask(failed("$__rate_interval", "deployment"), "{{deployment}}"),
        ),
        lines(
            "Burn rate over time",
            "Is the error budget burning now (5 minutes), or has it for hours?",
            "none",
            *(Ask(f"{failed(each)} / {ALLOWED}", each) for each in ("5m", "1h", "6h")),
        ),
        lines(
            "Duration",
            "How long do calls take, from the request's head to the last byte of the answer?",
            SECONDS,
            *(Ask(quantile(q, DURATIONS), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
            traced=True,
        ),
        lines(
            "Time to first text",
            "How long until the answer begins?",
            SECONDS,
            *(Ask(quantile(q, FIRST_TOKENS), f"p{q * 100:g}") for q in (0.5, 0.95)),
            traced=True,
        ),
        lines(
            "Time between tokens, p95",
            "Do answers flow, by model?",
            SECONDS,
            Ask(quantile(0.95, of("inter_token_latency_seconds_bucket"), "model"), "{{model}}"),
            traced=True,
        ),
        lines(
            "Tokens per second of an answer, median",
            "How fast are answers written, by model?",
            "short",
            Ask(quantile(0.5, of("output_tokens_per_second_bucket"), "model"), "{{model}}"),
            width=12,
        ),
        bars(
            "Duration by deployment, p95",
            "Which deployments are slow?",
            SECONDS,
            Ask(quantile(0.95, DURATIONS, "deployment"), "{{deployment}}"),
            width=12,
        ),
    ),
)

UPSTREAMS = Row(
    "Upstreams",
    (
        stacked(
            "Attempts by result",
            "What do upstreams answer?",
            PER_S,
            Ask(lively(ATTEMPTS, "upstream, result"), "{{upstream}} {{result}}"),
        ),
        stacked(
            "Failed connections by cause",
            "Why do connections to upstreams fail?",
            PER_S,
            Ask(lively(FAILED_CONNECTIONS, "upstream, cause"), "{{upstream}} {{cause}}"),
        ),
        lines(
            "Duration by upstream, p95",
            "Which upstream is slow?",
            SECONDS,
            Ask(
                quantile(0.95, of("upstream_request_duration_seconds_bucket"), "upstream"),
                "{{upstream}}",
            ),
            traced=True,
        ),
        stacked(
            "Retries, hedges, fallbacks and skips",
            "How often did an upstream have to be asked again, or another one instead?",
            PER_S,
            Ask(lively(of("upstream_repeats_total"), "why"), "{{why}}"),
            Ask(
                f"{by('upstream, to_upstream', rate(of('fallbacks_total')))} > 0",
                "{{upstream}} to {{to_upstream}}",
            ),
            Ask(f"{by('reason', rate(of('upstream_skipped_total')))} > 0", "{{reason}}"),
        ),
        stat(
            "Circuits",
            "Which targets are left alone because they failed too often?",
            "none",
            by("upstream, model", of("circuit_state"), "max"),
            words=(
                (0, "closed", "green"),
                (1, "half open, or open for some", "orange"),
                (2, "open", "red"),
            ),
            width=8,
            height=8,
        ),
        table(
            "Headroom at upstreams",
            "How much do providers still allow, as their last answers said?",
            ("upstream", "model"),
            Ask(
                by("upstream, model", of("upstream_ratelimit_remaining_requests"), "min"),
                "Requests left",
                "short",
            ),
            Ask(
                by("upstream, model", of("upstream_ratelimit_remaining_tokens"), "min"),
                "Tokens left",
                "short",
            ),
            width=8,
        ),
        stacked(
            "Streams cut short",
            "Who ends streams before their end, and before or after the first text?",
            PER_S,
            Ask(lively(of("stream_aborts_total"), "side, phase"), "{{side}} {{phase}}"),
        ),
    ),
)

PROCESS = Row(
    "The proxy itself",
    (
        lines(
            "Overhead",
            "What does the proxy add to a call, beside the time of its upstreams?",
            SECONDS,
            *(Ask(quantile(q, OVERHEADS), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)),
            traced=True,
        ),
        lines(
            "Calls under way",
            "How much is there to do at once, by instance?",
            "short",
            Ask(by("instance", of("inflight_requests")), "under way {{instance}}"),
            Ask(by("instance", of("queued_requests")), "waiting {{instance}}"),
        ),
        lines(
            "Event loop lag, p99",
            "Does anything hold up the loop that serves all calls?",
            SECONDS,
            Ask(quantile(0.99, of("event_loop_lag_seconds_bucket"), "instance"), "{{instance}}"),
        ),
        lines(
            "Memory",
            "Does an instance grow?",
            "bytes",
            Ask('process_resident_memory_bytes{job="headrace"}', "{{instance}}"),
        ),
        lines(
            "Connections",
            "How many connections are open, to clients and to upstreams?",
            "short",
            Ask(by("side", of("open_connections")), "{{side}}"),
        ),
        table(
            "Revisions in force",
            "Do all instances serve the same policies, with the same version?",
            ("revision",),
            Ask(by("revision", of("policy_info"), "count"), "Instances", "short"),
            width=4,
        ),
        table(
            "Versions",
            "Which versions of the proxy run?",
            ("version",),
            Ask(by("version", of("build_info"), "count"), "Instances", "short"),
            width=4,
        ),
        stacked(
            "Telemetry lost",
            "Are log lines, spans or rows missing, and why?",
            "cps",
            Ask(lively(of("telemetry_dropped_total"), "signal, reason"), "{{signal}} {{reason}}"),
            width=12,
        ),
        lines(
            "Telemetry waiting",
            "Does something pile up before it is lost?",
            "short",
            Ask(by("signal", of("telemetry_queue_length")), "{{signal}}"),
            width=12,
        ),
    ),
)

BOARD = Board(
    uid="headrace-reliability",
    title="Headrace: reliability",
    description="Whether calls are answered, how fast, and where a bad minute comes from.",
    span="6h",
    variables=(
        Variable("deployment", "Deployment", "headrace_requests_total"),
        Variable("upstream", "Upstream", "headrace_upstream_attempts_total"),
    ),
    rows=(WORKING, CALLS, UPSTREAMS, PROCESS),
)
