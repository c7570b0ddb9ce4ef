"""What policies do to calls: guards, limits, rules, the cache, and which policies are in force."""

from __future__ import annotations

from dashboards.build.panels import Ask, Board, Row, Variable, bars, lines, stacked, stat
from dashboards.build.promql import Selecting, by, grown, lively, quantile, rate, ratio, some, zero

USD, SHARE, SECONDS, PER_S, BYTES = "currencyUSD", "percentunit", "s", "cps", "bytes"

of = Selecting(("deployment", "guard", "limit"))
GUARDS = of("guard_decisions_total", shadow="false")
ACTED = of("guard_decisions_total", shadow="false", verdict="!~passed|failed|not_applicable")
WOULD = of("guard_decisions_total", shadow="true", verdict="!~passed|failed|not_applicable")
LIMITS = of("limit_decisions_total")
REFUSED = of("limit_decisions_total", decision="!=allow")
CACHE = of("cache_lookups_total")
KEPT = of("cache_lookups_total", result="=~hit|hit_semantic|coalesced")

BY_DEPLOYMENT = ratio(by("deployment", grown(KEPT)), by("deployment", grown(CACHE)))

FORCE = Row(
    "At a glance",
    (
        stat(
            "Calls blocked by guards",
            "What share of the calls did a guard stop?",
            SHARE,
            ratio(
                zero(by("", grown(of("requests_total", outcome="blocked")))),
                by("", grown(of("requests_total"))),
            ),
        ),
        stat(
            "Calls over a limit",
            "What share of the calls was refused by a limit or a budget?",
            SHARE,
            ratio(
                zero(by("", grown(of("requests_total", outcome="limited")))),
                by("", grown(of("requests_total"))),
            ),
        ),
        stat(
            "Guards that failed",
            "How often could a guard not say anything? What its rule says of that was done.",
            "short",
            zero(by("", grown(of("guard_decisions_total", verdict="failed")))),
            steps=((None, "green"), (1, "red")),
        ),
        stat(
            "Answers from the cache",
            "What share of the calls that a cache rule covers had a kept or shared answer?",
            SHARE,
            ratio(zero(by("", grown(KEPT))), by("", grown(CACHE))),
        ),
        stat(
            "Saved by the cache",
            "What would the kept and shared answers of the range have cost?",
            USD,
            by("", grown(of("cache_saved_usd_total"))),
        ),
        stat(
            "Policies in force",
            "Is the folder as it was last read in force, on every instance?",
            "none",
            by("", of("policy_last_reload_success"), "min"),
            words=((0, "rejected", "red"), (1, "yes", "green")),
        ),
    ),
)

GUARD = Row(
    "Guards",
    (
        stacked(
            "What guards decide",
            "What becomes of the texts that guards look at, by stage?",
            PER_S,
            Ask(lively(GUARDS, "stage, verdict"), "{{stage}} {{verdict}}"),
            width=6,
        ),
        bars(
            "Blocks, masks and flags by guard",
            "Which guards act, in the range shown?",
            "short",
            Ask(some(by("guard, verdict", grown(ACTED)), "guard"), "{{guard}} {{verdict}}"),
            width=6,
        ),
        bars(
            "Would have, in shadow",
            "What would guards in shadow have done, had they been in force?",
            "short",
            Ask(some(by("guard, verdict", grown(WOULD)), "guard"), "{{guard}} {{verdict}}"),
            width=6,
        ),
        lines(
            "Time of guards, p95",
            "Which guard is slow?",
            SECONDS,
            Ask(
                quantile(0.95, of("guard_duration_seconds_bucket"), "guard, stage"),
                "{{guard}} {{stage}}",
            ),
            Ask(quantile(0.95, of("guard_wait_seconds_bucket")), "wait for a thread"),
            width=6,
        ),
    ),
)

LIMIT = Row(
    "Limits and budgets",
    (
        stacked(
            "What limits decide",
            "How often do limits let calls pass, and refuse?",
            PER_S,
            Ask(lively(LIMITS, "decision"), "{{decision}}"),
            width=6,
        ),
        bars(
            "Refused by limit",
            "Which limits refuse, in the range shown? Those in shadow would have.",
            "short",
            Ask(some(by("limit, decision", grown(REFUSED)), "limit"), "{{limit}} {{decision}}"),
            width=6,
        ),
        bars(
            "Share left by limit",
            "Which limits are nearly used up?",
            SHARE,
            Ask(
                f"bottomk(12, {by('limit, scope', of('limit_remaining_ratio'), 'min')})",
                "{{limit}} {{scope}}",
            ),
            most=1,
            width=6,
        ),
        bars(
            "Warnings",
            "Which limits were taken past their warn_at?",
            "short",
            Ask(some(by("limit", grown(of("limit_warnings_total"))), "limit"), "{{limit}}"),
            width=6,
        ),
    ),
)

RULE = Row(
    "Rules",
    (
        bars(
            "Rules that applied",
            "Which rules apply, and how often, in the range shown?",
            "short",
            Ask(
                some(f"topk(12, {by('rule', grown(of('policy_rules_total')))})", "rule"), "{{rule}}"
            ),
            width=6,
        ),
        bars(
            "Rules that would have applied",
            "What would the rules in shadow have done?",
            "short",
            Ask(
                some(f"topk(12, {by('rule', grown(of('policy_shadow_rules_total')))})", "rule"),
                "{{rule}}",
            ),
            width=6,
        ),
        bars(
            "What the candidate decides otherwise",
            "What would change if the candidate policies came into force, in the range shown?",
            "short",
            Ask(some(by("kind", grown(of("candidate_decisions_total"))), "kind"), "{{kind}}"),
            width=6,
        ),
        lines(
            "Tags dropped",
            "Which deployments are sent tags that the policy does not allow?",
            PER_S,
            Ask(lively(of("dropped_tags_total"), "deployment"), "{{deployment}}"),
            width=6,
        ),
    ),
)

KEPT_ANSWERS = Row(
    "Cache",
    (
        stacked(
            "Lookups by result",
            "How often is an answer kept, shared, missed, refreshed or bypassed?",
            PER_S,
            Ask(lively(CACHE, "result"), "{{result}}"),
        ),
        bars(
            "Answers from the cache by deployment",
            "Where does keeping answers pay?",
            SHARE,
            Ask(
                ratio(by("deployment", grown(KEPT)), by("deployment", grown(CACHE))),
                "{{deployment}}",
            ),
            most=1,
        ),
        stacked(
            "Tokens saved",
            "What did no upstream have to work on?",
            "short",
            Ask(by("direction", rate(of("cache_saved_tokens_total"))), "{{direction}}"),
        ),
        lines(
            "Time of a lookup, p95",
            "What does looking for a kept answer take, by store?",
            SECONDS,
            Ask(quantile(0.95, of("cache_lookup_duration_seconds_bucket"), "store"), "{{store}}"),
        ),
        lines(
            "Size by store",
            "How much is kept?",
            BYTES,
            Ask(by("store", of("cache_bytes")), "{{store}}"),
        ),
        lines(
            "Kept answers let go",
            "Is the cache too small, or its store away?",
            PER_S,
            Ask(lively(of("cache_evictions_total"), "reason"), "{{reason}}"),
            Ask(
                some(by("store", rate(of("cache_store_failures_total"))), "store"),
                "{{store}} failed",
            ),
        ),
    ),
)

RELOADS = Row(
    "Policies in force",
    (
        stacked(
            "Readings of the folder",
            "When did policies change, and was a change rejected?",
            "short",
            Ask(
                by("result", "increase(headrace_policy_reloads_total[$__rate_interval])"),
                "{{result}}",
            ),
        ),
        lines(
            "Last read",
            "How long ago did each instance last read its folder?",
            SECONDS,
            Ask("time() - headrace_policy_last_reload_timestamp_seconds", "{{instance}}"),
        ),
        lines(
            "Label overflow",
            "Is something counted as other that the policies do not know?",
            "short",
            Ask(some(by("label", grown(of("label_overflow_total"))), "label"), "{{label}}"),
        ),
    ),
)

BOARD = Board(
    uid="headrace-policy",
    title="Headrace: policy",
    description="What guards, limits, rules and the cache do to calls, and what is in force.",
    span="24h",
    variables=(
        Variable("deployment", "Deployment", "headrace_requests_total"),
        Variable("guard", "Guard", "headrace_guard_decisions_total"),
        Variable("limit", "Limit", "headrace_limit_decisions_total"),
    ),
    rows=(FORCE, GUARD, LIMIT, RULE, KEPT_ANSWERS, RELOADS),
)
