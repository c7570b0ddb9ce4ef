"""Decides calls: routes, limits, guards and cache, or a refusal.

``decide`` is pure. The server, ``explain``, ``test``, ``diff`` and the candidate all use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, NamedTuple

from proxy.dialects.request_headers import REFRESH_IGNORED
from proxy.errors import InvalidField, NotFound
from proxy.errors.words import shorten_to_ascii
from proxy.policy.decide import model_calls as pricing
from proxy.policy.decide import selection
from proxy.policy.decide.conditions import Facts
from proxy.policy.decide.model_calls import RuledModelCall, apply_rules, find_rule_by_effect
from proxy.policy.decide.rules import NO_EFFECTS, combine_guards, combine_limits, list_unique
from proxy.policy.decide.snapshot import Deployment, KeyDeployment, Snapshot, VirtualKey
from proxy.runtime.frozen import frozen
from proxy.types import NO_OVERRIDES, UNBILLED_ENDPOINTS, Call, ModelCall, Plan, RequestHead
from proxy.types.guard import NO_GUARDS

if TYPE_CHECKING:
    from proxy.types.passthrough import PassthroughPath

MAX_PLANS = 4096
"""Maximum number of shared plans of all keys together."""
PLAN_FIELDS = tuple(f.name for f in fields(Plan) if f.init)


class DecisionBasis(NamedTuple):
    """The objects that decided a call. ``dropped_tags`` are tags that its client may not set."""

    snapshot: Snapshot
    key: VirtualKey
    key_deployment: KeyDeployment
    call: Call
    dropped_tags: tuple[str, ...]
    ruled_calls: list[RuledModelCall]


@frozen
class DecidedPlan(Plan):
    """The plan of a call that a deployment serves, with the objects that decided it.

    ``unpriced`` are the model calls that need a known price and have no target with one.
    """

    basis: DecisionBasis = field(kw_only=True, repr=False, compare=False)
    unpriced: tuple[ModelCall, ...] = field(kw_only=True, repr=False, compare=False)

    def drop_basis(self) -> Plan:
        """Return a plan without references to the call and its texts."""
        return Plan(**{name: getattr(self, name) for name in PLAN_FIELDS})


@frozen
class ActivePolicy:
    """The snapshot that decides a call."""

    snapshot: Snapshot
    revision: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "revision", self.snapshot.revision)

    def identify(self, head: RequestHead) -> KeyCaller | InternalCaller:
        """Return the caller. No client can send a head with an internal key."""
        if head.internal_key is not None:
            deployment = self.snapshot.deployments.get(head.deployment or "")
            if deployment is None:
                raise NotFound("The deployment of this internal call no longer exists.")
            return InternalCaller(self.snapshot, head.internal_key, deployment)
        credential = self.snapshot.identify(head)
        return KeyCaller(self.snapshot, credential.key, credential.label)


@frozen
class KeyCaller:
    """A virtual key under one revision."""

    snapshot: Snapshot
    virtual_key: VirtualKey
    credential: str | None = None
    key: str = field(init=False)
    controls_sampling: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.virtual_key.name)
        object.__setattr__(self, "controls_sampling", self.virtual_key.controls_sampling)

    def decide(self, call: Call) -> Plan:
        """Return the plan of a call. Calls with the same plan share it."""
        if call.state_ref is not None:
            return decide(self.snapshot, self.virtual_key, call)
        head = call.head
        request = call.requested_models, call.deployment, call.stream, head.deployment
        cache_key = self.key, *request, head.dialect, head.endpoint, head.received_at.date()
        plans = self.snapshot.plans
        is_unique = head.tags or head.bypass_cache or head.alternatives or call.background
        cached_plan = None if is_unique else plans.get(cache_key)
        if cached_plan is not None:
            return cached_plan
        plan = decide(self.snapshot, self.virtual_key, call)
        if not is_unique and isinstance(plan, DecidedPlan) and _can_cache_plan(plan):
            if len(plans) >= MAX_PLANS:
                plans.clear()
            plans[cache_key] = plan.drop_basis()
        return plan


def _can_cache_plan(plan: DecidedPlan) -> bool:
    """Return True if a plan depends only on the cache key of ``KeyCaller.decide``.

    The model must be in the policy, which bounds the number of shared plans.
    """
    _, key, key_deployment, call, _, _ = plan.basis
    models, chain = call.requested_models, key_deployment.chain
    if call.head.passthrough is not None or len(models) != 1 or models[0] not in key.by_model:
        return False
    return not key_deployment.deployment.routes.has_random_draw and (
        chain is None or chain.is_plan_cacheable
    )


@frozen
class InternalCaller:
    """A guard or a cache as a caller of a deployment."""

    snapshot: Snapshot
    key: str
    deployment: Deployment
    credential: None = None
    controls_sampling: bool = False  # True if it decides whether the trace is sampled

    def decide(self, call: Call) -> Plan:
        """Return the plan for a call by the rules and limits of its deployment.

        The plan has no cache and no guards, so that a guard cannot call itself.
        """
        tags = self.snapshot.tags.items()
        client_tags = frozenset(tag for tag, rule in tags if rule.set_by_clients)
        key_deployment = self.deployment.bind_to_key(self.key, self.deployment.tags, client_tags)
        plan = decide(self.snapshot, key_deployment.make_internal_key(self.key), call)
        return replace(plan, guards=NO_GUARDS, cache=None)


def decide(snapshot: Snapshot, key: VirtualKey, call: Call) -> Plan:
    """Return the plan for a call of a key.

    The plan is a ``DecidedPlan``, except for a list of models. A rejection by a rule is part of the
    plan. A call that uses stored state gets only the targets that have it. Raise ``RequestError``
    if the call cannot be served under any rule.
    """
    state_ref = call.state_ref
    if state_ref is None:
        return _decide_ignoring_stored_state(snapshot, key, call)
    call = selection.prefer_state_deployment_in_draw(call, state_ref)
    selection.check_state_deployment_access(key, call, state_ref)
    plan = _decide_ignoring_stored_state(snapshot, key, call)
    return selection.keep_state_targets(plan, call, state_ref)


def _decide_ignoring_stored_state(snapshot: Snapshot, key: VirtualKey, call: Call) -> Plan:
    head = call.head
    warnings: tuple[str, ...] = ()
    if head.bypass_cache and not key.may_refresh:
        warnings = (REFRESH_IGNORED,)
    if head.endpoint == "models":
        return Plan(
            revision=snapshot.revision,
            key=key.name,
            deployment=None,
            tags=key.tags,
            model_calls=(),
            model_list=selection.select_models_by_url(key, head),
            warnings=warnings,
        )
    key_deployment, path = selection.select_deployment(key, call)
    deployment, tags = key_deployment.deployment, key_deployment.tags
    dropped: tuple[str, ...] = ()
    if head.tags:
        tags, dropped = selection.merge_tags(snapshot, key_deployment, head)
        names = map(shorten_to_ascii, dropped)
        warnings += tuple(
            f"tag {tag} ignored: clients may not set it, or not to this value" for tag in names
        )
    if len(call.requested_models) > deployment.max_models:
        raise InvalidField("model", f"must have at most {deployment.max_models} models")
    facts = Facts.from_call(key.name, call, tags)
    models = call.requested_models or (deployment.name,)
    ruled_calls = [apply_rules(key_deployment, call, facts, model) for model in models]
    basis = DecisionBasis(
        snapshot=snapshot,
        key=key,
        key_deployment=key_deployment,
        call=call,
        dropped_tags=dropped,
        ruled_calls=ruled_calls,
    )
    return _build_plan(basis, path, tags, warnings)


def _build_plan(
    basis: DecisionBasis,
    path: PassthroughPath | None,
    tags: Mapping[str, str],
    warnings: tuple[str, ...],
) -> DecidedPlan:
    snapshot, key, key_deployment, call, dropped_tags, ruled_calls = basis
    deployment, chain = key_deployment.deployment, key_deployment.chain
    model_calls = tuple([part.model_call for part in ruled_calls])
    first_effects = list_unique([effects for part in ruled_calls for effects in part.first_effects])
    all_effects = list_unique([effects for part in ruled_calls for effects in part.all_effects])
    route = first_union = every = NO_EFFECTS
    if chain is not None:
        route = chain.combine_all(list_unique([part.route_effects for part in ruled_calls]))
        first_union, every = chain.combine_all(first_effects), chain.combine_all(all_effects)
    refusal = route.refusal
    limits = combine_limits(deployment.limits, first_union, first_effects)
    guards = combine_guards(deployment.guards, every, all_effects)
    cache = first_union.cache or deployment.cache
    if path is not None:  # passthrough requests are sent once and unchanged
        model_calls = tuple(
            replace(part, overrides=NO_OVERRIDES, target_overrides={}) for part in model_calls
        )
    unpriced: tuple[ModelCall, ...] = ()
    reason = pricing.explain_price_requirement(deployment, limits)
    if reason is not None:
        model_calls, unpriced = pricing.drop_unpriced_targets_unless_all(model_calls, call)
        guards = pricing.drop_unpriced_route_targets(guards, call)
        if unpriced:
            refusal = refusal or pricing.make_unpriced_refusal(
                shorten_to_ascii(unpriced[0].model), reason
            )
    creates_state = call.background or call.head.endpoint == "conversations"
    is_uncached = path is not None or call.background or call.head.endpoint in UNBILLED_ENDPOINTS
    return DecidedPlan(
        revision=snapshot.revision,
        key=key.name,
        deployment=deployment.name,
        tags=tags,
        model_calls=model_calls,
        dropped_tags=len(dropped_tags),
        warnings=warnings,
        retry=deployment.retry,
        hedge_after=None if creates_state or path is not None else deployment.hedge_after,
        refusal=refusal,
        limits=limits,
        cache=None if is_uncached or cache == "off" else cache,
        may_refresh=key.may_refresh,
        guards=guards,
        rule_by_effect=find_rule_by_effect(route, first_union, every),
        passthrough=path,
        basis=basis,
        unpriced=unpriced,
    )
