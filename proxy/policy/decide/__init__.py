"""Decides calls. ``decide`` is pure, and the only way in which a call is decided: the server,
``explain``, ``test``, ``diff`` and the candidate all use it."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from proxy.dialects.request_headers import REFRESH_IGNORED
from proxy.errors import InvalidField, NotFound, Unauthorized
from proxy.errors.words import ascii_word
from proxy.policy.decide import pricing
from proxy.policy.decide.conditions import facts_of
from proxy.policy.decide.model_calls import effects_by, rule_model_call
from proxy.policy.decide.provenance import Basis, DecidedPlan
from proxy.policy.decide.rules import NO_EFFECTS, Effects, guards_of, limits_of, unlike
from proxy.policy.decide.selection import join_tags, listed_models, select_deployment
from proxy.policy.decide.snapshot import Credential, Deployment, KeyDeployment, Snapshot, VirtualKey
from proxy.runtime.frozen import frozen
from proxy.types import UNBILLED, UNCHANGED, Call, ModelCall, Plan, RequestHead
from proxy.types.guard import NO_GUARDS

if TYPE_CHECKING:
    from proxy.types.passthrough import PassthroughPath

MAX_PLANS = 4096
"""Maximum number of shared plans of all keys together."""


@frozen
class ActivePolicy:
    """A snapshot as the pipeline uses it."""

    snapshot: Snapshot
    revision: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "revision", self.snapshot.revision)

    def identify(self, head: RequestHead) -> KeyCaller:
        credential = identify(self.snapshot, head)
        return KeyCaller(self.snapshot, credential.key, credential.label)


@frozen
class KeyCaller:
    """A virtual key under one revision."""

    snapshot: Snapshot
    known: VirtualKey
    credential: str | None = None
    key: str = field(init=False)
    controls_sampling: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.known.name)
        object.__setattr__(self, "controls_sampling", self.known.controls_sampling)

    def decide(self, call: Call) -> Plan:
        """Return the plan that ``decide`` returns. Calls for which it is the same share it."""
        if call.state_ref is not None:
            return decide(self.snapshot, self.known, call)
        head = call.head
        request = call.requested_models, call.deployment, call.stream, head.deployment
        shared_by = self.key, *request, head.dialect, head.endpoint, head.received_at.date()
        plans = self.snapshot.plans
        is_unique = head.tags or head.bypass_cache or head.alternatives or call.background
        shared = None if is_unique else plans.get(shared_by)
        if shared is not None:
            return shared
        plan = decide(self.snapshot, self.known, call)
        if isinstance(plan, DecidedPlan) and not call.background and _can_share(plan, head):
            if len(plans) >= MAX_PLANS:
                plans.clear()
            plans[shared_by] = plan.without_basis()
        return plan


def _can_share(plan: DecidedPlan, head: RequestHead) -> bool:
    """Return True if a plan depends only on what ``KeyCaller.decide`` looks it up by.

    The policy bounds the number of such plans: the model must be one that it names.
    """
    _, key, reach, call, _, _ = plan.basis
    if (
        head.tags
        or head.bypass_cache
        or len(call.requested_models) != 1
        or call.requested_models[0] not in key.named
    ):
        return False
    if head.passthrough is not None:
        return False
    return not reach.deployment.routes.drawn and (reach.chain is None or reach.chain.steady)


def identify(snapshot: Snapshot, head: RequestHead) -> Credential:
    """Return the credential of a request. Raise ``Unauthorized``, with the same message for one
    that is missing, unknown, revoked or expired."""
    digest = head.digest
    if digest is None:
        raise Unauthorized
    credential = snapshot.credentials.get(digest)
    if credential is None or not hmac.compare_digest(credential.digest, digest):
        revoked = snapshot.revoked_credentials.get(digest)
        if revoked is not None:
            raise Unauthorized("revoked", revoked.key.name)
        raise Unauthorized("revoked" if digest.hex() in snapshot.revoked else "unknown")
    if credential.until is not None and not credential.is_in_force(head.received_at):
        raise Unauthorized("expired", credential.key.name)
    return credential


@frozen
class GuardPolicies:
    """The policies for calls that guards and caches make. ``current`` returns the snapshot."""

    current: Callable[[], Snapshot]

    def active(self) -> GuardPolicy:
        return GuardPolicy(self.current())

    async def read(self, head: RequestHead) -> GuardPolicy:
        return self.active()


@frozen
class GuardPolicy:
    """A snapshot for one call of a guard."""

    snapshot: Snapshot

    @property
    def revision(self) -> str:
        return self.snapshot.revision

    def identify(self, head: RequestHead) -> GuardCaller:
        """Return the caller. No client can send a head with an internal key."""
        if head.internal_key is None:
            raise Unauthorized
        deployment = self.snapshot.deployments.get(head.deployment or "")
        if deployment is None:
            raise NotFound("The deployment of this internal call no longer exists.")
        return GuardCaller(self.snapshot, head.internal_key, deployment)


@frozen
class GuardCaller:
    """A guard or a cache as a caller of a deployment."""

    snapshot: Snapshot
    key: str
    deployment: Deployment
    credential: None = None
    controls_sampling: bool = False  # it is sampled with the call that it inspects

    def decide(self, call: Call) -> Plan:
        """Return the plan under the rules and limits of the deployment.

        Guards do not apply, so that none calls itself. The cache does not apply either.
        """
        client_tags = frozenset(tag for tag, rule in self.snapshot.tags.items() if rule.caller)
        reach = self.deployment.for_key(self.key, self.deployment.tags, client_tags)
        plan = decide(self.snapshot, reach.only_key(self.key), call)
        return replace(plan, guards=NO_GUARDS, cache=None)


def decide(snapshot: Snapshot, key: VirtualKey, call: Call) -> Plan:
    """Return the plan for a call of a key.

    The plan is a ``DecidedPlan``, except for a list of models. A rejection by a rule is part of the
    plan. A call that uses stored state gets only the targets that have it. Raise ``Refused`` if
    the call cannot be served under any rule.
    """
    pin = call.state_ref
    if pin is not None:
        from proxy.policy.decide import pins  # noqa: PLC0415  # few calls use stored state

        call = pins.select_pinned(call, pin)
        pins.check_pin(key, call, pin)
        return pins.pinned_plan(_decide(snapshot, key, call), call, pin)
    return _decide(snapshot, key, call)


def _decide(snapshot: Snapshot, key: VirtualKey, call: Call) -> Plan:
    """Return the plan for a call, whatever state it uses."""
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
            model_list=listed_models(key, head),
            warnings=warnings,
        )
    reach, path = select_deployment(key, call)
    deployment, tags = reach.deployment, reach.tags
    dropped: tuple[str, ...] = ()
    if head.tags:
        tags, dropped = join_tags(snapshot, reach, head)
        warnings += tuple(
            f"tag {ascii_word(tag)} ignored: clients may not set this value" for tag in dropped
        )
    if len(call.requested_models) > deployment.max_models:
        raise InvalidField("model", f"must have at most {deployment.max_models} models")
    facts = facts_of(key.name, call, tags)
    models = call.requested_models or (deployment.name,)
    ruled = [rule_model_call(reach, call, facts, model) for model in models]
    basis = Basis(snapshot=snapshot, key=key, reach=reach, call=call, dropped=dropped, ruled=ruled)
    return _plan(basis, path, tags, warnings)


def _plan(
    basis: Basis, path: PassthroughPath | None, tags: Mapping[str, str], warnings: tuple[str, ...]
) -> DecidedPlan:
    """Return the plan of a call, given the effects of rules on each of its models."""
    snapshot, key, reach, call, dropped, ruled = basis
    deployment = reach.deployment
    model_calls = tuple([each.model_call for each in ruled])
    if len(ruled) == 1:  # nearly every call
        where, firsts, every = ruled[0].where, ruled[0].first, ruled[0].every
    else:
        where = _union(reach, unlike([each.where for each in ruled]))
        firsts = unlike([effects for each in ruled for effects in each.first])
        every = unlike([effects for each in ruled for effects in each.every])
    first, any_ = _union(reach, firsts), _union(reach, every)
    refusal = where.refusal
    limits = limits_of(deployment.bounds, first, firsts)
    guards = guards_of(deployment.guards, any_, every)
    cache = deployment.cache if first.cache is None else first.cache.by
    if path is not None:  # passthrough requests are sent once and unchanged
        model_calls = tuple(
            replace(each, overrides=UNCHANGED, target_overrides={}) for each in model_calls
        )
    unpriced: tuple[ModelCall, ...] = ()
    reason = pricing.required_by(deployment, limits)
    if reason is not None:
        model_calls, unpriced = pricing.priced_model_calls(model_calls, call)
        guards = pricing.priced_guards(guards, call)
        if unpriced:
            refusal = refusal or pricing.refusal(ascii_word(unpriced[0].model), reason)
    creates_state = call.background or call.head.endpoint == "conversations"
    is_uncached = path is not None or call.background or call.head.endpoint in UNBILLED
    return DecidedPlan(
        revision=snapshot.revision,
        key=key.name,
        deployment=deployment.name,
        tags=tags,
        model_calls=model_calls,
        dropped_tags=len(dropped),
        warnings=warnings,
        retry=deployment.retry,
        hedge_after=None if creates_state or path is not None else deployment.hedge_after,
        refusal=refusal,
        limits=limits,
        cache=None if is_uncached else cache,
        may_refresh=key.may_refresh,
        guards=guards,
        rule_by_effect=effects_by(where, first, any_),
        passed=path,
        basis=basis,
        unpriced=unpriced,
    )


def _union(reach: KeyDeployment, effects_list: Sequence[Effects]) -> Effects:
    return NO_EFFECTS if reach.chain is None else reach.chain.union(effects_list)
