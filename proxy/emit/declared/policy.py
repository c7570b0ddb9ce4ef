"""Metrics of what policy did: rules, guards, limits and budgets, the cache, and reloads."""

from __future__ import annotations

from proxy.emit.declared import axes
from proxy.emit.declared.calls import SHORT_SECONDS
from proxy.emit.declared.metric import Axis, Declared, closed

_KINDS = (
    "same", "key", "refusal", "deployment", "tags", "targets", "parameters", "routing", "limits",
    "cache", "guards",
)  # fmt: skip
CANDIDATE = closed("kind", *_KINDS, usual=())
REVISION = Axis(("revision",), lambda roster: [(roster.revision,)], lambda roster: [])

METRICS = (
    Declared(
        "headrace_policy_rules_total",
        "counter",
        (axes.RULE,),
        "Calls to which a rule applied, as policy/rule.",
    ),
    Declared(
        "headrace_policy_would_total",
        "counter",
        (axes.RULE,),
        "Calls to which a rule in shadow would have applied.",
    ),
    Declared(
        "headrace_guard_decisions_total",
        "counter",
        (axes.GUARD, axes.VERDICT, axes.SHADOW),
        "What guards said of calls: passed, flagged, masked, blocked, failed, or unseen.",
    ),
    Declared(
        "headrace_guard_duration_seconds",
        "histogram",
        (axes.GUARD,),
        "Time that a guard spent on one call.",
        SHORT_SECONDS,
    ),
    Declared(
        "headrace_limit_decisions_total",
        "counter",
        (axes.LIMIT, axes.DECISION),
        "What limits said to calls: allow, deny, or would_deny where one is in shadow.",
    ),
    Declared(
        "headrace_limit_warnings_total",
        "counter",
        (axes.LIMIT,),
        "Calls that took a limit past its warn_at.",
    ),
    Declared(
        "headrace_limit_remaining_ratio",
        "gauge",
        (axes.SCOPE,),
        "The share of a limit that is left to one of its owners, as now counted.",
        lazy=True,
    ),
    Declared(
        "headrace_budget_limit_usd",
        "gauge",
        (axes.BUDGET,),
        "What a budget allows one of its owners in each window.",
        lazy=True,
    ),
    Declared(
        "headrace_budget_spent_usd",
        "gauge",
        (axes.BUDGET,),
        "What was spent in the window, with the estimates of calls under way.",
        lazy=True,
    ),
    Declared(
        "headrace_budget_remaining_usd",
        "gauge",
        (axes.BUDGET,),
        "What is left in the window, never less than 0.",
        lazy=True,
    ),
    Declared(
        "headrace_budget_reset_timestamp_seconds",
        "gauge",
        (axes.BUDGET,),
        "When the window ends, in seconds since the epoch.",
        lazy=True,
    ),
    Declared(
        "headrace_ledger_drift_usd",
        "gauge",
        (axes.LIMIT,),
        "What the counters of a budget have more than the ledger; none where nobody can tell.",
        lazy=True,
    ),
    Declared(
        "headrace_budget_lost_total",
        "counter",
        (axes.LIMIT,),
        "Counters of budgets that the shared store has lost in the middle of their window.",
    ),
    Declared(
        "headrace_limit_store_degraded",
        "gauge",
        (),
        "1 while the shared store of counters is away and limits fall back to what they say.",
    ),
    Declared(
        "headrace_candidate_decisions_total",
        "counter",
        (CANDIDATE, axes.CANDIDATE_RULE),
        "What the candidate policies decide otherwise, by what differs and the rule; or the same.",
    ),
    Declared(
        "headrace_policy_reloads_total",
        "counter",
        (axes.RELOAD,),
        "Readings of the policy folder: in_force, rejected, unchanged, or restored: after one that "
        "was rejected, to what is in force.",
    ),
    Declared(
        "headrace_policy_last_reload_success",
        "gauge",
        (),
        "1 while the folder as it was last read is in force, 0 after it was rejected.",
    ),
    Declared(
        "headrace_policy_last_reload_timestamp_seconds",
        "gauge",
        (),
        "When the policy folder was last read, in seconds since the epoch.",
    ),
    Declared(
        "headrace_policy_info",
        "gauge",
        (REVISION,),
        "Always 1; says which revision of the policies is in force.",
        lazy=True,
    ),
    Declared(
        "headrace_deployment_info",
        "gauge",
        (axes.INFO,),
        "Always 1; says the tags of a deployment and of the keys that reach it.",
        lazy=True,
    ),
    Declared(
        "headrace_cache_lookups_total",
        "counter",
        (axes.DEPLOYMENT, axes.LOOKUP),
        "Calls that a cache rule covers: hit, hit_semantic, miss, refresh, coalesced or bypass.",
    ),
    Declared(
        "headrace_cache_semantic_total",
        "counter",
        (axes.ALIKE,),
        "Questions looked for in other words, and what came of it; would_hit is in shadow.",
    ),
    Declared(
        "headrace_embedded_texts_total",
        "counter",
        (axes.EMBEDDED,),
        "Texts to make vectors of: done, too long, come while too many waited, or failed.",
    ),
    Declared(
        "headrace_cache_lookup_duration_seconds",
        "histogram",
        (axes.STORE,),
        "Time to look for a kept answer.",
        SHORT_SECONDS,
    ),
    Declared(
        "headrace_cache_saved_usd_total",
        "counter",
        (axes.DEPLOYMENT,),
        "What kept and shared answers would have cost, where the price is known.",
    ),
    Declared(
        "headrace_cache_saved_tokens_total",
        "counter",
        (axes.DEPLOYMENT, axes.DIRECTION),
        "Tokens of kept and shared answers that no upstream had to work on.",
    ),
    Declared(
        "headrace_cache_bytes", "gauge", (axes.HELD,), "What the kept answers take.", lazy=True
    ),
    Declared("headrace_cache_entries", "gauge", (axes.HELD,), "Kept answers.", lazy=True),
    Declared(
        "headrace_cache_evictions_total",
        "counter",
        (axes.EVICTED,),
        "Kept answers let go: full, expired, dropped as the store could not take them, or changed.",
    ),
    Declared(
        "headrace_cache_store_failures_total",
        "counter",
        (axes.STORE,),
        "Times that a store could not be used; the calls were served without it.",
    ),
)
