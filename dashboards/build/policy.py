"""Policy dashboard: guards, limits, rules, the cache, and the active policies."""

from __future__ import annotations

from dashboards.build.panels import Board, Query, Row, Variable, bars, lines, stacked, stat
from dashboards.build.promql import (
    Selector,
    active_rates,
    by,
    increase,
    or_zero,
    positive,
    quantile,
    rate,
    ratio,
)

USD, SHARE, SECONDS, PER_S, BYTES = "currencyUSD", "percentunit", "s", "cps", "bytes"

metric = Selector(("deployment", "guard", "limit"))
GUARDS = metric("guard_decisions_total", shadow="false")
GUARD_ACTIONS = metric(
    "guard_decisions_total", shadow="false", verdict="!~passed|failed|not_applicable"
)
SHADOW_ACTIONS = metric(
    "guard_decisions_total", shadow="true", verdict="!~passed|failed|not_applicable"
)
LIMITS = metric("limit_decisions_total")
REFUSED = metric("limit_decisions_total", decision="!=allow")
CACHE = metric("cache_lookups_total")
CACHE_HITS = metric("cache_lookups_total", result="=~hit|hit_semantic|coalesced")

OVERVIEW = Row(
    "Overview",
    (
        stat(
            "Calls blocked by guards",
            "What share of the calls did a guard stop?",
            SHARE,
            ratio(
                or_zero(by("", increase(metric("requests_total", outcome="blocked")))),
                by("", increase(metric("requests_total"))),
            ),
        ),
        stat(
            "Calls over a limit",
            "What share of the calls was refused by a limit or a budget?",
            SHARE,
            ratio(
                or_zero(by("", increase(metric("requests_total", outcome="limited")))),
                by("", increase(metric("requests_total"))),
            ),
        ),
        stat(
            "Guards that failed",
            "How often did a guard fail? Its rule decides whether the call continues.",
            "short",
            or_zero(by("", increase(metric("guard_decisions_total", verdict="failed")))),
            steps=((None, "green"), (1, "red")),
        ),
        stat(
            "Cache hits",
            "What share of the calls with a cache rule had a cached or shared response?",
            SHARE,
            ratio(or_zero(by("", increase(CACHE_HITS))), by("", increase(CACHE))),
        ),
        stat(
            "Saved by the cache",
            "What would the cached and shared responses have cost?",
            USD,
            by("", increase(metric("cache_saved_usd_total"))),
        ),
        stat(
            "Active policies",
            "Is the last version of the folder active on every instance?",
            "none",
            by("", metric("policy_last_reload_success"), "min"),
            value_texts=((0, "rejected", "red"), (1, "yes", "green")),
        ),
    ),
)

GUARD_ROW = Row(
    "Guards",
    (
        stacked(
            "Guard decisions",
            "What do guards decide, by stage?",
            PER_S,
            Query(active_rates(GUARDS, "stage, verdict"), "{{stage}} {{verdict}}"),
            width=6,
        ),
        bars(
            "Blocks, masks and flags by guard",
            "Which guards act?",
            "short",
            Query(
                positive(by("guard, verdict", increase(GUARD_ACTIONS)), "guard"),
                "{{guard}} {{verdict}}",
            ),
            width=6,
        ),
        bars(
            "Guard actions in shadow mode",
            "What would guards in shadow mode have done?",
            "short",
            Query(
                positive(by("guard, verdict", increase(SHADOW_ACTIONS)), "guard"),
                "{{guard}} {{verdict}}",
            ),
            width=6,
        ),
        lines(
            "Guard duration, p95",
            "Which guard is slow?",
            SECONDS,
            Query(
                quantile(0.95, metric("guard_duration_seconds_bucket"), "guard, stage"),
                "{{guard}} {{stage}}",
            ),
            Query(quantile(0.95, metric("guard_wait_seconds_bucket")), "wait for a thread"),
            width=6,
        ),
    ),
)

LIMIT_ROW = Row(
    "Limits and budgets",
    (
        stacked(
            "Limit decisions",
            "How often do limits allow and refuse calls?",
            PER_S,
            Query(active_rates(LIMITS, "decision"), "{{decision}}"),
            width=6,
        ),
        bars(
            "Refused by limit",
            "Which limits refuse calls, or would refuse them in shadow mode?",
            "short",
            Query(
                positive(by("limit, decision", increase(REFUSED)), "limit"),
                "{{limit}} {{decision}}",
            ),
            width=6,
        ),
        bars(
            "Share left by limit",
            "Which limits are nearly used up?",
            SHARE,
            Query(
                f"bottomk(12, {by('limit, scope', metric('limit_remaining_ratio'), 'min')})",
                "{{limit}} {{scope}}",
            ),
            maximum=1,
            width=6,
        ),
        bars(
            "Warnings",
            "Which limits exceeded their warn_at?",
            "short",
            Query(
                positive(by("limit", increase(metric("limit_warnings_total"))), "limit"),
                "{{limit}}",
            ),
            width=6,
        ),
    ),
)

RULE_ROW = Row(
    "Rules",
    (
        bars(
            "Rules that applied",
            "Which rules apply, and how often?",
            "short",
            Query(
                positive(f"topk(12, {by('rule', increase(metric('policy_rules_total')))})", "rule"),
                "{{rule}}",
            ),
            width=6,
        ),
        bars(
            "Rules that would have applied",
            "Which rules in shadow mode would have applied?",
            "short",
            Query(
                positive(
                    f"topk(12, {by('rule', increase(metric('policy_shadow_rules_total')))})", "rule"
                ),
                "{{rule}}",
            ),
            width=6,
        ),
        bars(
            "Decisions that the candidate changes",
            "Which decisions would the candidate policies change?",
            "short",
            Query(
                positive(by("kind", increase(metric("candidate_decisions_total"))), "kind"),
                "{{kind}}",
            ),
            width=6,
        ),
        lines(
            "Tags dropped",
            "Which deployments receive tags that the policy does not allow?",
            PER_S,
            Query(active_rates(metric("dropped_tags_total"), "deployment"), "{{deployment}}"),
            width=6,
        ),
    ),
)

CACHE_ROW = Row(
    "Cache",
    (
        stacked(
            "Lookups by result",
            "How often is a response cached, shared, missed, refreshed or bypassed?",
            PER_S,
            Query(active_rates(CACHE, "result"), "{{result}}"),
        ),
        bars(
            "Cache hits by deployment",
            "Which deployments benefit from the cache?",
            SHARE,
            Query(
                ratio(by("deployment", increase(CACHE_HITS)), by("deployment", increase(CACHE))),
                "{{deployment}}",
            ),
            maximum=1,
        ),
        stacked(
            "Tokens saved",
            "How many tokens did no upstream process?",
            "short",
            Query(by("direction", rate(metric("cache_saved_tokens_total"))), "{{direction}}"),
        ),
        lines(
            "Cache lookup duration, p95",
            "How long does a lookup take, by store?",
            SECONDS,
            Query(
                quantile(0.95, metric("cache_lookup_duration_seconds_bucket"), "store"), "{{store}}"
            ),
        ),
        lines(
            "Size by store",
            "How large is the cache?",
            BYTES,
            Query(by("store", metric("cache_bytes")), "{{store}}"),
        ),
        lines(
            "Cache evictions",
            "Is the cache too small, or its store away?",
            PER_S,
            Query(active_rates(metric("cache_evictions_total"), "reason"), "{{reason}}"),
            Query(
                positive(by("store", rate(metric("cache_store_failures_total"))), "store"),
                "{{store}} failed",
            ),
        ),
    ),
)

RELOAD_ROW = Row(
    "Active policies",
    (
        stacked(
            "Policy reloads",
            "When did policies change, and was a change rejected?",
            "short",
            Query(
                by("result", "increase(headrace_policy_reloads_total[$__rate_interval])"),
                "{{result}}",
            ),
        ),
        lines(
            "Last read",
            "How long ago did each instance last read its folder?",
            SECONDS,
            Query("time() - headrace_policy_last_reload_timestamp_seconds", "{{instance}}"),
        ),
        lines(
            "Label overflow",
            "Are label values counted as other because policies do not declare them?",
            "short",
            Query(
                positive(by("label", increase(metric("label_overflow_total"))), "label"),
                "{{label}}",
            ),
        ),
    ),
)

BOARD = Board(
    uid="headrace-policy",
    title="Headrace: policy",
    description="Effects of guards, limits, rules and the cache on calls, and the active policies.",
    span="24h",
    variables=(
        Variable("deployment", "Deployment", "headrace_requests_total"),
        Variable("guard", "Guard", "headrace_guard_decisions_total"),
        Variable("limit", "Limit", "headrace_limit_decisions_total"),
    ),
    rows=(OVERVIEW, GUARD_ROW, LIMIT_ROW, RULE_ROW, CACHE_ROW, RELOAD_ROW),
)
