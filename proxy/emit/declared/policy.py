"""Metrics of what policy did: rules, guards, limits and budgets, the cache, and reloads."""

from __future__ import annotations

from proxy.emit.declared import axes
from proxy.emit.declared.calls import SHORT_SECONDS
from proxy.emit.declared.metric import Axis, closed, counter, gauge, histogram

_KINDS = (
    "same", "key", "refusal", "deployment", "tags", "targets", "parameters", "routing", "limits",
    "cache", "guards",
)  # fmt: skip
CANDIDATE = closed("kind", *_KINDS, usual=())
REVISION = Axis(("revision",), lambda roster: [(roster.revision,)], lambda roster: [])

METRICS = (
    counter(
        "headrace_policy_rules_total",
        "Calls to which a rule applied, as policy/rule.",
        (axes.RULE,),
    ),
    counter(
        "headrace_policy_shadow_rules_total",
        "Calls to which a rule in shadow would have applied.",
        (axes.RULE,),
    ),
    counter(
        "headrace_guard_decisions_total",
        "What guards said of calls: passed, flagged, masked, blocked, failed, not_applicable.",
        (axes.GUARD, axes.VERDICT, axes.SHADOW),
    ),
    histogram(
        "headrace_guard_duration_seconds",
        "Processor time that a guard spent on one call, or time until its service answered.",
        (axes.GUARD,),
        edges=SHORT_SECONDS,
    ),
    histogram(
        "headrace_guard_wait_seconds",
        "Time that a large text waited for a turn of the threads of guards.",
        edges=SHORT_SECONDS,
    ),
    counter(
        "headrace_limit_decisions_total",
        "What limits said to calls: allow, deny, or would_deny where one is in shadow.",
        (axes.LIMIT, axes.DECISION),
    ),
    counter(
        "headrace_limit_warnings_total", "Calls that took a limit past its warn_at.", (axes.LIMIT,)
    ),
    gauge(
        "headrace_limit_remaining_ratio",
        "The share of a limit that is left to one of its owners, as now counted.",
        (axes.SCOPE,),
        lazy=True,
    ),
    gauge(
        "headrace_budget_limit_usd",
        "What a budget allows one of its owners in each window.",
        (axes.BUDGET,),
        lazy=True,
    ),
    gauge(
        "headrace_budget_spent_usd",
        "What was spent in the window, with the estimates of calls under way.",
        (axes.BUDGET,),
        lazy=True,
    ),
    gauge(
        "headrace_budget_remaining_usd",
        "What is left in the window, never less than 0.",
        (axes.BUDGET,),
        lazy=True,
    ),
    gauge(
        "headrace_budget_reset_timestamp_seconds",
        "When the window ends, in seconds since the epoch.",
        (axes.BUDGET,),
        lazy=True,
    ),
    gauge(
        "headrace_ledger_drift_usd",
        "What the counters of a budget have more than the ledger; none where nobody can tell.",
        (axes.LIMIT,),
        lazy=True,
    ),
    counter(
        "headrace_budget_lost_total",
        "Counters of budgets that the shared store has lost in the middle of their window.",
        (axes.LIMIT,),
    ),
    gauge(
        "headrace_limit_store_degraded",
        "1 while the shared store of counters is away and limits fall back to what they say.",
    ),
    counter(
        "headrace_candidate_decisions_total",
        "What the candidate policies decide otherwise, by what differs and the rule; or the same.",
        (CANDIDATE, axes.CANDIDATE_RULE),
    ),
    counter(
        "headrace_policy_reloads_total",
        "Readings of the policy folder: in_force, rejected, unchanged, or restored: after "
        "one that was rejected, to what is in force.",
        (axes.RELOAD,),
    ),
    gauge(
        "headrace_policy_last_reload_success",
        "1 while the folder as it was last read is in force, 0 after it was rejected.",
    ),
    gauge(
        "headrace_policy_last_reload_timestamp_seconds",
        "When the policy folder was last read, in seconds since the epoch.",
    ),
    gauge(
        "headrace_policy_revocations_unread",
        "Places in the policy folder that may contain revocations and cannot be read.",
    ),
    gauge(
        "headrace_policy_info",
        "Always 1; says which revision of the policies is in force.",
        (REVISION,),
        lazy=True,
    ),
    gauge(
        "headrace_deployment_info",
        "Always 1; says the tags of a deployment and of the keys that reach it.",
        (axes.INFO,),
        lazy=True,
    ),
    counter(
        "headrace_cache_lookups_total",
        "Calls that a cache rule covers: hit, hit_semantic, miss, refresh, coalesced or bypass.",
        (axes.DEPLOYMENT, axes.LOOKUP),
    ),
    counter(
        "headrace_cache_semantic_total",
        "Prompts compared with cached ones. would_hit is in shadow mode. ineligible, timeout, "
        "failed, invalid (no usable vector) and busy: not compared.",
        (axes.SEMANTIC,),
    ),
    histogram(
        "headrace_cache_lookup_duration_seconds",
        "Time to look for a kept answer.",
        (axes.STORE,),
        edges=SHORT_SECONDS,
    ),
    counter(
        "headrace_cache_saved_usd_total",
        "What kept and shared answers would have cost, where the price is known.",
        (axes.DEPLOYMENT,),
    ),
    counter(
        "headrace_cache_saved_tokens_total",
        "Tokens of kept and shared answers that no upstream had to work on.",
        (axes.DEPLOYMENT, axes.DIRECTION),
    ),
    gauge(
        "headrace_cache_bytes",
        "What the kept answers take; vectors: the embeddings of prompts.",
        (axes.HELD,),
        lazy=True,
    ),
    gauge("headrace_cache_entries", "Kept answers.", (axes.HELD,), lazy=True),
    counter(
        "headrace_cache_evictions_total",
        "Kept answers let go: full, expired, dropped as the store could not take them, or changed.",
        (axes.EVICTED,),
    ),
    counter(
        "headrace_cache_store_failures_total",
        "Times that a store could not be used; the calls were served without it.",
        (axes.STORE,),
    ),
)
