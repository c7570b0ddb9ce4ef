"""The labels of metrics, each with where its values come from: the policies, or a closed set."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from operator import attrgetter
from typing import get_args

from proxy import dialects
from proxy.attempts import Loss, Money, Outcome
from proxy.call_facts import UNKNOWN, CacheResult, SemanticResult
from proxy.causes import ErrorCause
from proxy.emit.declared.metric import OTHER, Axis, Values, closed
from proxy.error_table import CODES
from proxy.errors import (
    CircuitOpen,
    UpstreamBusy,
    UpstreamInvalid,
    UpstreamStale,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.types import CACHE_STORES, Endpoint, Target
from proxy.types.guard import Verdict
from proxy.types.roster import Roster
from proxy.usage import TOKEN_TYPES

NONE = "none"


ERRORS = ("cancelled", *CODES)
STATUSES = ("0xx", "1xx", "2xx", "3xx", "4xx", "5xx")
CONNECTION_ERRORS = (UpstreamInvalid.code, UpstreamStale.code, UpstreamUnavailable.code)
DIALECTS = (*dialects.DIALECTS, UNKNOWN)
ENDPOINTS = (*get_args(Endpoint), UNKNOWN)
SINKS = (
    "metrics", "calllog", "traces", "genai_metrics", "ledger", "past", "candidate", "decisions"
)  # fmt: skip


def provider(target: Target) -> str:
    return target.upstream.provider or UNKNOWN


def _deployments(roster: Roster) -> list[Values]:
    return [*((name,) for name in roster.deployments), (UNKNOWN,)]


def _targets(roster: Roster) -> Iterator[tuple[str, Target]]:
    for name, listed in roster.deployments.items():
        for target in listed.targets:
            yield name, target


def _served(roster: Roster) -> set[Values]:
    return {(name, provider(target), target.model) for name, target in _targets(roster)}


def _priced(roster: Roster) -> set[Values]:
    """An unknown price is no price of zero, so such a target begins with no cost at all."""
    priced = ((name, target) for name, target in _targets(roster) if target.prices)
    return {(name, provider(target), target.model) for name, target in priced}


def _models(roster: Roster) -> set[Values]:
    return {(name, target.model) for name, target in _targets(roster)}


def _asked(roster: Roster) -> set[Values]:
    return {(target.upstream.name, target.model) for _, target in _targets(roster)}


def _falls(roster: Roster) -> set[Values]:
    pairs: set[Values] = set()
    for name, listed in roster.deployments.items():
        names = {target.upstream.name for target in listed.targets}
        pairs |= {(name, one, other) for one in names for other in names}
    return pairs


def _tagged(roster: Roster) -> set[Values]:
    return {
        (tag, value, name)
        for tag, values in roster.tags.items()
        for value in (*values, NONE, OTHER)
        for (name,) in _deployments(roster)
    }


def _tagged_usual(roster: Roster) -> set[Values]:
    """The tags that a deployment's calls have anyhow; one that they need not have is ``none``."""
    usual: set[Values] = set()
    for name, listed in roster.deployments.items():
        given = {tag for tag, _ in listed.tags}
        usual |= {(tag, v, name) for tag, v in listed.tags if v in roster.tags.get(tag, ())}
        usual |= {(tag, NONE, name) for tag in roster.tags if tag not in given}
    return usual


def _info(roster: Roster) -> set[Values]:
    return {
        (name, tag, value)
        for name, listed in roster.deployments.items()
        for tag, value in (listed.tags or {(NONE, NONE)})
    }


def _keys(roster: Roster) -> list[Values]:
    return [*((name,) for name in roster.keys), (UNKNOWN,)]


def _lapsed(roster: Roster) -> list[Values]:
    """Each key may have lapsed; one that is known by its digest alone has no name."""
    named = [(lapse, key) for lapse in ("expired", "revoked") for key in roster.keys]
    return [*_nameless(roster), ("revoked", NONE), *named]


def _nameless(roster: Roster) -> list[Values]:
    return [(why, NONE) for why in ("missing", "unknown", "not_checked")]


def _results(roster: Roster) -> Iterator[Values]:
    """Yield how an attempt may end, with the reason if its connection failed."""
    yield from ((result, NONE) for result in (*STATUSES, *ERRORS))
    yield from product(CONNECTION_ERRORS, get_args(ErrorCause))
    yield from product(UpstreamTimeout.codes, ("timeout", "pool"))


def _rules(roster: Roster) -> list[Values]:
    return [(name, rule) for name, listed in roster.deployments.items() for rule in listed.rules]


def _each_rule(roster: Roster) -> set[Values]:
    return {("",), *((rule,) for listed in roster.deployments.values() for rule in listed.rules)}


def _guards(roster: Roster) -> set[Values]:
    return {
        (guard, stage) for listed in roster.deployments.values() for stage, guard in listed.guards
    }


def _limits(roster: Roster) -> set[Values]:
    return {(limit.name,) for listed in roster.deployments.values() for limit in listed.limits}


def _scopes(roster: Roster, *, budgets_only: bool = False) -> set[Values]:
    return {
        (limit.name, scope or "all")
        for limit, scope in roster.counters
        if limit.is_budget or not budgets_only
    }


_budgets = partial(_scopes, budgets_only=True)
DEPLOYMENT = Axis(
    ("deployment",), _deployments, lambda roster: [(name,) for name in roster.deployments]
)
DIALECT = closed("dialect", *DIALECTS, usual=("openai",))
ENDPOINT = closed("endpoint", *ENDPOINTS, usual=("chat",))
OUTCOME = closed("outcome", *get_args(Outcome))
STREAM = closed("stream", "true", "false")
MODEL = Axis(("deployment", "model"), _models, _models)
SERVED = Axis(("deployment", "provider", "model"), _served, _served)
PRICED = Axis(("deployment", "provider", "model"), _served, _priced)
UNPRICED = Axis(
    ("deployment", "provider", "model"), _served, lambda roster: _served(roster) - _priced(roster)
)
LACKING = closed("reason", "no_price", "no_usage", usual=("no_price",))
TOKEN_TYPE = closed("token_type", *TOKEN_TYPES, usual=("input", "output"))
COST_TYPE = closed("cost_type", "input", "output", "cached", "other", usual=("input", "output"))
ESTIMATED = closed("estimated", "true", "false", usual=("false",))
DIRECTION = closed("direction", "input", "output")
USE = closed("use", *get_args(Money), usual=("useful", "retried", "abandoned", "blocked"))
LOSS = closed("cause", *get_args(Loss))
TAGGED = Axis(("tag", "value", "deployment"), _tagged, _tagged_usual)
INFO = Axis(("deployment", "tag", "value"), _info, _info)
KEY = Axis(("key",), _keys, _keys)
LAPSE = Axis(("reason", "key"), _lapsed, _nameless)
CREDENTIAL = Axis(("key", "digest"), attrgetter("credentials"), attrgetter("credentials"))
UPSTREAM = Axis(("upstream", "model"), _asked, _asked)
FALLBACK = Axis(
    ("deployment", "upstream", "to_upstream"),
    _falls,
    lambda roster: [each for each in _falls(roster) if each[1] != each[2]],
)
RESULT = Axis(("result", "cause"), _results, lambda roster: [("2xx", NONE)])
WHY = closed("why", "retry", "hedge", "guard")
SKIPPED = closed("reason", CircuitOpen.code, UpstreamBusy.code)
SIDE = closed("side", "client", "upstream", "proxy")
PHASE = closed("phase", "before_first", "after_first")
RULE = Axis(("deployment", "rule"), _rules, _rules)
CANDIDATE_RULE = Axis(("rule",), _each_rule, lambda roster: ())
GUARD = Axis(("guard", "stage"), _guards, _guards)
VERDICT = closed("verdict", *get_args(Verdict))
SHADOW = closed("shadow", "true", "false")
LIMIT = Axis(("limit",), _limits, _limits)
SCOPE = Axis(("limit", "scope"), _scopes, _scopes)
BUDGET = Axis(("budget", "scope"), _budgets, _budgets)
DECISION = closed("decision", "allow", "deny", "would_deny")
RELOAD = closed("result", "in_force", "restored", "unchanged", "rejected")
LOOKUP = closed("result", *get_args(CacheResult))
STORE = closed("store", *CACHE_STORES, usual=())
HELD = closed("store", *CACHE_STORES, "vectors", usual=())
SEMANTIC = closed("result", *get_args(SemanticResult), usual=("hit", "would_hit"))
EVICTED = closed("reason", "full", "expired", "dropped", "changed")
SIGNAL = closed("signal", "logs", "traces", "ledger", "decisions", usual=("logs",))
KEEPER = closed("writer", "ledger", "decisions", "cache")
WRITER = closed("writer", "logs", "traces", "ledger", "decisions", "cache")
DROPPED = closed("signal", "logs", *SINKS, usual=("logs", "ledger"))
DROP = closed(
    "reason",
    "queue_full",
    "write_failed",
    "export_failed",
    "oversize",
    "shutdown",
    "invalid",
    "refused",
    "closed",
    "crash",
    "error",
    usual=("queue_full", "write_failed", "refused", "shutdown"),
)
OPEN = closed("side", "client", "upstream")
