"""Labels of metrics, with their values: closed sets, or names of the policies.

No value comes from a client. Others are counted as ``other``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import attrgetter
from typing import get_args

import proxy
from proxy import dialects, errors
from proxy.call.attempts import CallOutcome, LossReason, SpendUse
from proxy.call.facts import UNKNOWN, CacheResult, SemanticResult
from proxy.errors.causes import ErrorCause
from proxy.errors.table import CODES
from proxy.money.usage import TOKEN_TYPES
from proxy.types import CACHE_STORES, Endpoint, Target
from proxy.types.guard import Verdict
from proxy.types.roster import LabelCatalog

Values = tuple[str, ...]
OTHER = "other"
NONE = "none"
ERRORS = ("cancelled", *CODES)
STATUSES = ("0xx", "1xx", "2xx", "3xx", "4xx", "5xx")
CONNECTION_ERRORS = (
    errors.UpstreamInvalid.code,
    errors.StaleConnection.code,
    errors.UpstreamUnavailable.code,
)
SINKS = (
    "metrics", "calllog", "traces", "genai_metrics", "ledger", "past", "candidate", "decisions",
)  # fmt: skip
DIFFERENCES = (
    "same", "key", "refusal", "deployment", "tags", "targets", "parameters", "routing", "limits",
    "cache", "guards",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class LabelSet:
    """Labels whose values belong together.

    ``allowed`` returns all values under a roster, ``initial`` those whose series start at zero, so
    that a rate sees their first increment.
    """

    labels: tuple[str, ...]
    allowed: Callable[[LabelCatalog], Iterable[Values]]
    initial: Callable[[LabelCatalog], Iterable[Values]]

    @property
    def other(self) -> Values:
        """Values that replace all values that are not allowed."""
        return (OTHER,) * len(self.labels)


def closed(label: str, *values: str, initial: tuple[str, ...] | None = None) -> LabelSet:
    """Return a label with the same values under every policy. By default all are initial."""
    starts = values if initial is None else initial
    return LabelSet((label,), lambda _: [(v,) for v in values], lambda _: [(v,) for v in starts])


def _nothing(roster: LabelCatalog) -> tuple[Values, ...]:
    return ()


def _deployments(roster: LabelCatalog) -> list[Values]:
    return [*((name,) for name in roster.deployments), (UNKNOWN,)]


def _targets(roster: LabelCatalog) -> Iterator[tuple[str, Target]]:
    for name, deployment in roster.deployments.items():
        for target in deployment.targets:
            yield name, target


def _served(roster: LabelCatalog, *, priced: bool = False) -> set[Values]:
    """Return deployments with provider and model. An unknown price is not a price of zero."""
    return {
        (name, target.upstream.provider or UNKNOWN, target.model)
        for name, target in _targets(roster)
        if target.prices or not priced
    }


_priced = partial(_served, priced=True)


def _models(roster: LabelCatalog) -> set[Values]:
    return {(name, target.model) for name, target in _targets(roster)}


def _upstreams(roster: LabelCatalog) -> set[Values]:
    return {(target.upstream.name, target.model) for _, target in _targets(roster)}


def _fallbacks(roster: LabelCatalog, *, to_itself: bool = True) -> set[Values]:
    return {
        (name, first_target.upstream.name, second.upstream.name)
        for name, deployment in roster.deployments.items()
        for first_target, second in product(deployment.targets, deployment.targets)
        if to_itself or first_target.upstream.name != second.upstream.name
    }


def _tagged(roster: LabelCatalog) -> set[Values]:
    return {
        (tag, value, name)
        for tag, values in roster.tags.items()
        for value in (*values, NONE, OTHER)
        for (name,) in _deployments(roster)
    }


def _tagged_initial(roster: LabelCatalog) -> set[Values]:
    """Return the tags that every call of a deployment has, and ``none`` for the other tags."""
    initial: set[Values] = set()
    for name, deployment in roster.deployments.items():
        given = {tag for tag, _ in deployment.tags}
        initial |= {(tag, v, name) for tag, v in deployment.tags if v in roster.tags.get(tag, ())}
        initial |= {(tag, NONE, name) for tag in roster.tags if tag not in given}
    return initial


def _info(roster: LabelCatalog) -> set[Values]:
    return {
        (name, tag, value)
        for name, deployment in roster.deployments.items()
        for tag, value in (deployment.tags or {(NONE, NONE)})
    }


def _keys(roster: LabelCatalog) -> list[Values]:
    return [*((name,) for name in roster.keys), (UNKNOWN,)]


def _nameless(roster: LabelCatalog) -> list[Values]:
    return [(reason, NONE) for reason in ("missing", "unknown", "not_checked")]


def _lapsed(roster: LabelCatalog) -> list[Values]:
    """Return the reasons why a key is invalid. A key known by its digest only has no name."""
    with_key = [(lapse, key) for lapse in ("expired", "revoked") for key in roster.keys]
    return [*_nameless(roster), ("revoked", NONE), *with_key]


def _results(roster: LabelCatalog) -> Iterator[Values]:
    """Yield the results of attempts, with the cause of a failed connection."""
    yield from ((result, NONE) for result in (*STATUSES, *ERRORS))
    yield from product(CONNECTION_ERRORS, get_args(ErrorCause))
    yield from product(errors.UpstreamTimeout.codes, ("timeout", "pool"))


def _rules(roster: LabelCatalog) -> list[Values]:
    return [(name, rule) for name, labels in roster.deployments.items() for rule in labels.rules]


def _candidate_rules(roster: LabelCatalog) -> set[Values]:
    return {("",), *((rule,) for _, rule in _rules(roster))}


def _guards(roster: LabelCatalog) -> set[Values]:
    parts = roster.deployments.values()
    return {(guard, stage) for labels in parts for stage, guard in labels.guards}


def _limits(roster: LabelCatalog) -> set[Values]:
    return {(limit.name,) for labels in roster.deployments.values() for limit in labels.limits}


def _scopes(roster: LabelCatalog, *, budgets_only: bool = False) -> set[Values]:
    return {
        (limit.name, scope or "all")
        for limit, scope in roster.counters
        if limit.is_budget or not budgets_only
    }


_budgets = partial(_scopes, budgets_only=True)
DEPLOYMENT = LabelSet(("deployment",), _deployments, lambda roster: _deployments(roster)[:-1])
DIALECT = closed("dialect", *dialects.DIALECTS, UNKNOWN, initial=("openai",))
ENDPOINT = closed("endpoint", *get_args(Endpoint), UNKNOWN, initial=("chat",))
OUTCOME = closed("outcome", *get_args(CallOutcome))
STREAM = closed("stream", "true", "false")
MODEL = LabelSet(("deployment", "model"), _models, _models)
SERVED = LabelSet(("deployment", "provider", "model"), _served, _served)
PRICED = LabelSet(SERVED.labels, _served, _priced)
UNPRICED = LabelSet(SERVED.labels, _served, lambda roster: _served(roster) - _priced(roster))
LACKING = closed("reason", "no_price", "no_usage", initial=("no_price",))
TOKEN_TYPE = closed("token_type", *TOKEN_TYPES, initial=("input", "output"))
COST_TYPE = closed("cost_type", "input", "output", "cached", "other", initial=("input", "output"))
ESTIMATED = closed("estimated", "true", "false", initial=("false",))
DIRECTION = closed("direction", "input", "output")
USE = closed("use", *get_args(SpendUse), initial=("useful", "retried", "abandoned", "blocked"))
LOSS = closed("cause", *get_args(LossReason))
TAGGED = LabelSet(("tag", "value", "deployment"), _tagged, _tagged_initial)
INFO = LabelSet(("deployment", "tag", "value"), _info, _info)
KEY = LabelSet(("key",), _keys, _keys)
LAPSE = LabelSet(("reason", "key"), _lapsed, _nameless)
CREDENTIAL = LabelSet(("key", "digest"), attrgetter("credentials"), attrgetter("credentials"))
UPSTREAM = LabelSet(("upstream", "model"), _upstreams, _upstreams)
FALLBACK = LabelSet(
    ("deployment", "upstream", "to_upstream"), _fallbacks, partial(_fallbacks, to_itself=False)
)
RESULT = LabelSet(("result", "cause"), _results, lambda roster: [("2xx", NONE)])
WHY = closed("why", "retry", "hedge", "guard")
SKIPPED = closed("reason", errors.CircuitOpen.code, errors.UpstreamBusy.code)
SIDE = closed("side", "client", "upstream", "proxy")
PHASE = closed("phase", "before_first", "after_first")
RULE = LabelSet(("deployment", "rule"), _rules, _rules)
CANDIDATE = closed("kind", *DIFFERENCES, initial=())
CANDIDATE_RULE = LabelSet(("rule",), _candidate_rules, _nothing)
GUARD = LabelSet(("guard", "stage"), _guards, _guards)
VERDICT = closed("verdict", *get_args(Verdict))
SHADOW = closed("shadow", "true", "false")
LIMIT = LabelSet(("limit",), _limits, _limits)
SCOPE = LabelSet(("limit", "scope"), _scopes, _scopes)
BUDGET = LabelSet(("budget", "scope"), _budgets, _budgets)
DECISION = closed("decision", "allow", "deny", "would_deny")
RELOAD = closed("result", "in_force", "restored", "unchanged", "rejected")
REVISION = LabelSet(("revision",), lambda roster: [(roster.revision,)], _nothing)
LOOKUP = closed("result", *get_args(CacheResult))
STORE = closed("store", *CACHE_STORES, initial=())
HELD = closed("store", *CACHE_STORES, "vectors", initial=())
SEMANTIC = closed("result", *get_args(SemanticResult), initial=("hit", "would_hit"))
EVICTED = closed("reason", "full", "expired", "dropped", "changed")
SAMPLING = closed("decision", "sampled", "limited", initial=())
VERSION = closed("version", proxy.__version__)
SECRET = LabelSet(("use", "fingerprint"), _nothing, _nothing)
SIGNAL = closed("signal", "logs", "traces", "ledger", "decisions", initial=("logs",))
KEEPER = closed("writer", "ledger", "decisions", "cache")
WRITER = closed("writer", "logs", "traces", "ledger", "decisions", "cache")
DROPPED = closed("signal", "logs", *SINKS, initial=("logs", "ledger"))
DROP = closed(
    "reason", "queue_full", "write_failed", "export_failed", "oversize", "shutdown", "invalid",
    "refused", "closed", "crash", "error",
    initial=("queue_full", "write_failed", "refused", "shutdown"),
)  # fmt: skip
OPEN = closed("side", "client", "upstream")
