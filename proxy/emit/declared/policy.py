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
        name="headrace_policy_rules_total",
        kind="counter",
        axes=(axes.RULE,),
        help="Calls to which a rule applied, as policy/rule.",
    ),
    Declared(
        name="headrace_policy_shadow_rules_total",
        kind="counter",
        axes=(axes.RULE,),
        help="Calls to which a rule in shadow would have applied.",
    ),
    Declared(
        name="headrace_guard_decisions_total",
        kind="counter",
        axes=(axes.GUARD, axes.VERDICT, axes.SHADOW),
        help="What guards said of calls: passed, flagged, masked, blocked, failed, not_applicable.",
    ),
    Declared(
        name="headrace_guard_duration_seconds",
        kind="histogram",
        axes=(axes.GUARD,),
        help="Processor time that a guard spent on one call, or time until its service answered.",
        edges=SHORT_SECONDS,
    ),
    Declared(
        name="headrace_guard_wait_seconds",
        kind="histogram",
        axes=(),
        help="Time that a large text waited for a turn of the threads of guards.",
        edges=SHORT_SECONDS,
    ),
    Declared(
        name="headrace_limit_decisions_total",
        kind="counter",
        axes=(axes.LIMIT, axes.DECISION),
        help="What limits said to calls: allow, deny, or would_deny where one is in shadow.",
    ),
    Declared(
        name="headrace_limit_warnings_total",
        kind="counter",
        axes=(axes.LIMIT,),
        help="Calls that took a limit past its warn_at.",
    ),
    Declared(
        name="headrace_limit_remaining_ratio",
        kind="gauge",
        axes=(axes.SCOPE,),
        help="The share of a limit that is left to one of its owners, as now counted.",
        lazy=True,
    ),
    Declared(
        name="headrace_budget_limit_usd",
        kind="gauge",
        axes=(axes.BUDGET,),
        help="What a budget allows one of its owners in each window.",
        lazy=True,
    ),
    Declared(
        name="headrace_budget_spent_usd",
        kind="gauge",
        axes=(axes.BUDGET,),
        help="What was spent in the window, with the estimates of calls under way.",
        lazy=True,
    ),
    Declared(
        name="headrace_budget_remaining_usd",
        kind="gauge",
        axes=(axes.BUDGET,),
        help="What is left in the window, never less than 0.",
        lazy=True,
    ),
    Declared(
        name="headrace_budget_reset_timestamp_seconds",
        kind="gauge",
        axes=(axes.BUDGET,),
        help="When the window ends, in seconds since the epoch.",
        lazy=True,
    ),
    Declared(
        name="headrace_ledger_drift_usd",
        kind="gauge",
        axes=(axes.LIMIT,),
        help="What the counters of a budget have more than the ledger; none where nobody can tell.",
        lazy=True,
    ),
    Declared(
        name="headrace_budget_lost_total",
        kind="counter",
        axes=(axes.LIMIT,),
        help="Counters of budgets that the shared store has lost in the middle of their window.",
    ),
    Declared(
        name="headrace_limit_store_degraded",
        kind="gauge",
        axes=(),
        help="1 while the shared store of counters is away and limits fall back to what they say.",
    ),
    Declared(
        name="headrace_candidate_decisions_total",
        kind="counter",
        axes=(CANDIDATE, axes.CANDIDATE_RULE),
        help="What the candidate policies decide otherwise, by what differs and the rule; or the "
        "same.",
    ),
    Declared(
        name="headrace_policy_reloads_total",
        kind="counter",
        axes=(axes.RELOAD,),
        help="Readings of the policy folder: in_force, rejected, unchanged, or restored: after "
        "one that was rejected, to what is in force.",
    ),
    Declared(
        name="headrace_policy_last_reload_success",
        kind="gauge",
        axes=(),
        help="1 while the folder as it was last read is in force, 0 after it was rejected.",
    ),
    Declared(
        name="headrace_policy_last_reload_timestamp_seconds",
        kind="gauge",
        axes=(),
        help="When the policy folder was last read, in seconds since the epoch.",
    ),
    Declared(
        name="headrace_policy_revocations_unread",
        kind="gauge",
        axes=(),
        help="Places in the policy folder that may contain revocations and cannot be read.",
    ),
    Declared(
        name="headrace_policy_info",
        kind="gauge",
        axes=(REVISION,),
        help="Always 1; says which revision of the policies is in force.",
        lazy=True,
    ),
    Declared(
        name="headrace_deployment_info",
        kind="gauge",
        axes=(axes.INFO,),
        help="Always 1; says the tags of a deployment and of the keys that reach it.",
        lazy=True,
    ),
    Declared(
        name="headrace_cache_lookups_total",
        kind="counter",
        axes=(axes.DEPLOYMENT, axes.LOOKUP),
        help="Calls that a cache rule covers: hit, hit_semantic, miss, refresh, coalesced or "
        "bypass.",
    ),
    Declared(
        name="headrace_cache_semantic_total",
        kind="counter",
        axes=(axes.ALIKE,),
        help="Questions looked for in other words, and what came of it; would_hit is in shadow.",
    ),
    Declared(
        name="headrace_cache_lookup_duration_seconds",
        kind="histogram",
        axes=(axes.STORE,),
        help="Time to look for a kept answer.",
        edges=SHORT_SECONDS,
    ),
    Declared(
        name="headrace_cache_saved_usd_total",
        kind="counter",
        axes=(axes.DEPLOYMENT,),
        help="What kept and shared answers would have cost, where the price is known.",
    ),
    Declared(
        name="headrace_cache_saved_tokens_total",
        kind="counter",
        axes=(axes.DEPLOYMENT, axes.DIRECTION),
        help="Tokens of kept and shared answers that no upstream had to work on.",
    ),
    Declared(
        name="headrace_cache_bytes",
        kind="gauge",
        axes=(axes.HELD,),
        help="What the kept answers take; other_words: what finds them in other words.",
        lazy=True,
    ),
    Declared(
        name="headrace_cache_entries",
        kind="gauge",
        axes=(axes.HELD,),
        help="Kept answers.",
        lazy=True,
    ),
    Declared(
        name="headrace_cache_evictions_total",
        kind="counter",
        axes=(axes.EVICTED,),
        help="Kept answers let go: full, expired, dropped as the store could not take them, or "
        "changed.",
    ),
    Declared(
        name="headrace_cache_store_failures_total",
        kind="counter",
        axes=(axes.STORE,),
        help="Times that a store could not be used; the calls were served without it.",
    ),
)
