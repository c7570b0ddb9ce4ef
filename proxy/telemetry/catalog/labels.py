"""Labels of metrics, with their values: closed sets, or names of the policies.

No value comes from a client. Values outside these sets are counted as ``other``.
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
from proxy.errors.table import ERROR_CODES
from proxy.money.usage import TOKEN_TYPES
from proxy.types import CACHE_STORES, Endpoint, Target
from proxy.types.guard import Verdict
from proxy.types.label_catalog import LabelCatalog

Values = tuple[str, ...]
OTHER_VALUE = "other"
NO_VALUE = "none"
ERROR_VALUES = ("cancelled", *ERROR_CODES)
STATUSES = ("0xx", "1xx", "2xx", "3xx", "4xx", "5xx")
CONNECTION_ERRORS = (
    errors.UpstreamInvalid.code,
    errors.StaleConnection.code,
    errors.UpstreamUnavailable.code,
)
SINKS = (
    "metrics", "calllog", "traces", "genai_metrics", "ledger", "past", "candidate", "decisions",
)  # fmt: skip
DIFFERENCE_KINDS = (
    "same", "key", "refusal", "deployment", "tags", "targets", "parameters", "routing", "limits",
    "cache", "guards",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class LabelSet:
    """Labels whose values belong together.

    ``allowed`` returns all values under a catalog, ``initial`` those whose series start at zero, so
    that a rate sees their first increment. Without ``initial`` all do.
    """

    labels: tuple[str, ...]
    allowed: Callable[[LabelCatalog], Iterable[Values]]
    initial: Callable[[LabelCatalog], Iterable[Values]] | None = None

    @property
    def overflow_values(self) -> Values:
        """The values (``other``) of a call whose own values are not allowed."""
        return (OTHER_VALUE,) * len(self.labels)


def make_fixed_label(label: str, *values: str, initial: tuple[str, ...] | None = None) -> LabelSet:
    """Return a label with the same values under every policy. ``initial`` defaults to all."""
    starts = values if initial is None else initial
    return LabelSet((label,), lambda _: [(v,) for v in values], lambda _: [(v,) for v in starts])


def _list_no_values(catalog: LabelCatalog) -> tuple[Values, ...]:
    return ()


def _list_deployments(catalog: LabelCatalog) -> list[Values]:
    return [*((name,) for name in catalog.deployments), (UNKNOWN,)]


def _list_targets(catalog: LabelCatalog) -> Iterator[tuple[str, Target]]:
    for name, deployment in catalog.deployments.items():
        for target in deployment.targets:
            yield name, target


def _list_deployment_provider_models(
    catalog: LabelCatalog, *, priced_only: bool = False
) -> set[Values]:
    """Return the deployment, provider and model of targets, or only of those with a price."""
    return {
        (name, target.upstream.provider or UNKNOWN, target.model)
        for name, target in _list_targets(catalog)
        if target.prices or not priced_only
    }


_priced = partial(_list_deployment_provider_models, priced_only=True)


def _list_deployment_models(catalog: LabelCatalog) -> set[Values]:
    return {(name, target.model) for name, target in _list_targets(catalog)}


def _list_upstream_models(catalog: LabelCatalog) -> set[Values]:
    return {(target.upstream.name, target.model) for _, target in _list_targets(catalog)}


def _list_fallbacks(catalog: LabelCatalog, *, include_same_upstream: bool = True) -> set[Values]:
    return {
        (name, first_target.upstream.name, second.upstream.name)
        for name, deployment in catalog.deployments.items()
        for first_target, second in product(deployment.targets, deployment.targets)
        if include_same_upstream or first_target.upstream.name != second.upstream.name
    }


def _list_tag_value_deployments(catalog: LabelCatalog) -> set[Values]:
    return {
        (tag, value, name)
        for tag, values in catalog.tags.items()
        for value in (*values, NO_VALUE, OTHER_VALUE)
        for (name,) in _list_deployments(catalog)
    }


def _list_initial_tag_value_deployments(catalog: LabelCatalog) -> set[Values]:
    """Return the default tags of each deployment, and the value ``none`` of all other tags."""
    initial: set[Values] = set()
    for name, deployment in catalog.deployments.items():
        given = {tag for tag, _ in deployment.tags}
        initial |= {(tag, v, name) for tag, v in deployment.tags if v in catalog.tags.get(tag, ())}
        initial |= {(tag, NO_VALUE, name) for tag in catalog.tags if tag not in given}
    return initial


def _list_deployment_tags(catalog: LabelCatalog) -> set[Values]:
    return {
        (name, tag, value)
        for name, deployment in catalog.deployments.items()
        for tag, value in (deployment.tags or {(NO_VALUE, NO_VALUE)})
    }


def _list_keys(catalog: LabelCatalog) -> list[Values]:
    return [*((name,) for name in catalog.keys), (UNKNOWN,)]


def _list_keyless_rejection_reasons(catalog: LabelCatalog) -> list[Values]:
    return [(reason, NO_VALUE) for reason in ("missing", "unknown", "not_checked")]


def _list_key_rejections(catalog: LabelCatalog) -> list[Values]:
    """Return the reason and the key name of each rejected key. A revoked digest has no name."""
    with_key = [
        (key_problem, key) for key_problem in ("expired", "revoked") for key in catalog.keys
    ]
    return [*_list_keyless_rejection_reasons(catalog), ("revoked", NO_VALUE), *with_key]


def _list_results_and_causes(catalog: LabelCatalog) -> Iterator[Values]:
    """Yield the results of attempts, with causes of failed connections and timeouts."""
    yield from ((result, NO_VALUE) for result in (*STATUSES, *ERROR_VALUES))
    yield from product(CONNECTION_ERRORS, get_args(ErrorCause))
    yield from product(errors.UpstreamTimeout.codes, ("timeout", "pool"))


def _list_deployment_rules(catalog: LabelCatalog) -> list[Values]:
    return [(name, rule) for name, labels in catalog.deployments.items() for rule in labels.rules]


def _list_rule_names(catalog: LabelCatalog) -> set[Values]:
    return {("",), *((rule,) for _, rule in _list_deployment_rules(catalog))}


def _list_guard_stages(catalog: LabelCatalog) -> set[Values]:
    parts = catalog.deployments.values()
    return {(guard, stage) for labels in parts for stage, guard in labels.guards}


def _list_limit_names(catalog: LabelCatalog) -> set[Values]:
    return {(limit.name,) for labels in catalog.deployments.values() for limit in labels.limits}


def _list_limit_scopes(catalog: LabelCatalog, *, budgets_only: bool = False) -> set[Values]:
    return {
        (limit.name, scope or "all")
        for limit, scope in catalog.counters
        if limit.is_budget or not budgets_only
    }


_budgets = partial(_list_limit_scopes, budgets_only=True)
DEPLOYMENT = LabelSet(
    ("deployment",), _list_deployments, lambda catalog: _list_deployments(catalog)[:-1]
)
DIALECT = make_fixed_label("dialect", *dialects.DIALECTS, UNKNOWN, initial=("openai",))
ENDPOINT = make_fixed_label("endpoint", *get_args(Endpoint), UNKNOWN, initial=("chat",))
OUTCOME = make_fixed_label("outcome", *get_args(CallOutcome))
STREAM = make_fixed_label("stream", "true", "false")
MODEL = LabelSet(("deployment", "model"), _list_deployment_models)
SERVED_MODEL = LabelSet(("deployment", "provider", "model"), _list_deployment_provider_models)
PRICED_MODEL = LabelSet(SERVED_MODEL.labels, _list_deployment_provider_models, _priced)
UNPRICED_MODEL = LabelSet(
    SERVED_MODEL.labels,
    _list_deployment_provider_models,
    lambda catalog: _list_deployment_provider_models(catalog) - _priced(catalog),
)
UNPRICED_REASON = make_fixed_label("reason", "no_price", "no_usage", initial=("no_price",))
TOKEN_TYPE = make_fixed_label("token_type", *TOKEN_TYPES, initial=("input", "output"))
COST_TYPE = make_fixed_label(
    "cost_type", "input", "output", "cached", "other", initial=("input", "output")
)
ESTIMATED = make_fixed_label("estimated", "true", "false", initial=("false",))
DIRECTION = make_fixed_label("direction", "input", "output")
SPEND_USE = make_fixed_label(
    "use", *get_args(SpendUse), initial=("useful", "retried", "abandoned", "blocked")
)
LOSS_CAUSE = make_fixed_label("cause", *get_args(LossReason))
TAG_VALUE = LabelSet(
    ("tag", "value", "deployment"), _list_tag_value_deployments, _list_initial_tag_value_deployments
)
DEPLOYMENT_TAG = LabelSet(("deployment", "tag", "value"), _list_deployment_tags)
KEY = LabelSet(("key",), _list_keys)
KEY_REJECTION = LabelSet(("reason", "key"), _list_key_rejections, _list_keyless_rejection_reasons)
CREDENTIAL = LabelSet(("key", "digest"), attrgetter("credentials"))
UPSTREAM = LabelSet(("upstream", "model"), _list_upstream_models)
FALLBACK = LabelSet(
    ("deployment", "upstream", "to_upstream"),
    _list_fallbacks,
    partial(_list_fallbacks, include_same_upstream=False),
)
ATTEMPT_RESULT = LabelSet(
    ("result", "cause"), _list_results_and_causes, lambda catalog: [("2xx", NO_VALUE)]
)
REPEAT_REASON = make_fixed_label("why", "retry", "hedge", "guard")
SKIP_REASON = make_fixed_label("reason", errors.CircuitOpen.code, errors.UpstreamBusy.code)
ABORT_SIDE = make_fixed_label("side", "client", "upstream", "proxy")
ABORT_PHASE = make_fixed_label("phase", "before_first", "after_first")
RULE = LabelSet(("deployment", "rule"), _list_deployment_rules)
DIFFERENCE = make_fixed_label("kind", *DIFFERENCE_KINDS, initial=())
CANDIDATE_RULE = LabelSet(("rule",), _list_rule_names, _list_no_values)
GUARD = LabelSet(("guard", "stage"), _list_guard_stages)
VERDICT = make_fixed_label("verdict", *get_args(Verdict))
SHADOW = make_fixed_label("shadow", "true", "false")
LIMIT = LabelSet(("limit",), _list_limit_names)
SCOPE = LabelSet(("limit", "scope"), _list_limit_scopes)
BUDGET = LabelSet(("budget", "scope"), _budgets)
LIMIT_DECISION = make_fixed_label("decision", "allow", "deny", "would_deny")
RELOAD_RESULT = make_fixed_label("result", "in_force", "restored", "unchanged", "rejected")
REVISION = LabelSet(("revision",), lambda catalog: [(catalog.revision,)], _list_no_values)
CACHE_RESULT = make_fixed_label("result", *get_args(CacheResult))
CACHE_STORE = make_fixed_label("store", *CACHE_STORES, initial=())
CACHE_CONTENT = make_fixed_label("store", *CACHE_STORES, "vectors", initial=())
SEMANTIC_RESULT = make_fixed_label(
    "result", *get_args(SemanticResult), initial=("hit", "would_hit")
)
EVICTION_REASON = make_fixed_label("reason", "full", "expired", "dropped", "changed")
SAMPLING_DECISION = make_fixed_label("decision", "sampled", "limited", initial=())
VERSION = make_fixed_label("version", proxy.__version__)
SECRET_FINGERPRINT = LabelSet(("use", "fingerprint"), _list_no_values)
QUEUE = make_fixed_label("signal", "logs", "traces", "ledger", "decisions", initial=("logs",))
FILE_WRITER = make_fixed_label("writer", "ledger", "decisions", "cache")
WRITER = make_fixed_label("writer", "logs", "traces", "ledger", "decisions", "cache")
DROPPED_SIGNAL = make_fixed_label("signal", "logs", *SINKS, initial=("logs", "ledger"))
DROP_REASON = make_fixed_label(
    "reason", "queue_full", "write_failed", "export_failed", "oversize", "shutdown", "invalid",
    "refused", "closed", "crash", "error",
    initial=("queue_full", "write_failed", "refused", "shutdown"),
)  # fmt: skip
CONNECTION_PEER = make_fixed_label("side", "client", "upstream")
