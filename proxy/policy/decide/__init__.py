"""What policy says about a call. ``decide`` is pure: what serves calls is what explains them."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from proxy.dialects.request_headers import REFRESH_IGNORED
from proxy.errors import BadField, BadRequest, ModelNotFound, NotFound, Unauthorized
from proxy.field_problems import ambiguous, no_deployment, no_model
from proxy.frozen import frozen
from proxy.policy.decide import pricing
from proxy.policy.decide.conditions import facts_of
from proxy.policy.decide.model_calls import effects_by, rule_model_call
from proxy.policy.decide.parts import bounds_of, guards_of
from proxy.policy.decide.provenance import Basis, DecidedPlan
from proxy.policy.decide.rules import NO_EFFECTS, Effects, unlike
from proxy.policy.decide.snapshot import Credential, Reach, Snapshot, VirtualKey
from proxy.types import UNBILLED, UNCHANGED, Call, ModelCall, Plan, RequestHead
from proxy.types.target import ListedModel
from proxy.words import ascii_word, listed

HEADER = "x-headrace-deployment"

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedPath

PLANS_KEPT = 4096  # of all keys together


@frozen
class InForce:
    """A snapshot as the pipeline sees it."""

    snapshot: Snapshot
    revision: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "revision", self.snapshot.revision)

    def identify(self, head: RequestHead) -> KeyCaller:
        found = identify(self.snapshot, head)
        return KeyCaller(self.snapshot, found.key, found.label)


@frozen
class KeyCaller:
    """A virtual key under one revision."""

    snapshot: Snapshot
    known: VirtualKey
    credential: str | None = None
    key: str = field(init=False)
    may_trace: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.known.name)
        object.__setattr__(self, "may_trace", self.known.may_trace)

    def decide(self, call: Call) -> Plan:
        """Return the plan for a call, as ``decide`` does: the very one of an earlier call that came
        the same way, where nothing else in a call counts for it."""
        if call.pin is not None:
            return decide(self.snapshot, self.known, call)
        head = call.head
        asked = call.models, call.deployment, call.stream, head.deployment
        way = self.key, *asked, head.dialect, head.endpoint, head.at.date()
        plans = self.snapshot.plans
        anew = head.tags or head.refresh or head.alternatives or call.background
        kept = None if anew else plans.get(way)
        if kept is not None:
            return kept
        plan = decide(self.snapshot, self.known, call)
        if isinstance(plan, DecidedPlan) and not call.background and _is_kept(plan, head):
            if len(plans) >= PLANS_KEPT:
                plans.clear()
            plans[way] = plan.without_basis()
        return plan


def _is_kept(plan: DecidedPlan, head: RequestHead) -> bool:
    """True if a plan holds for all calls that come the same way, of which the policy says how many
    there may be: no header, draw or moment has decided, and no word of the client's own."""
    _, key, reach, call, _, _ = plan.basis
    if head.tags or head.refresh or len(call.models) != 1 or call.models[0] not in key.named:
        return False
    if head.passed is not None:
        return False
    return not reach.deployment.routes.drawn and (reach.chain is None or reach.chain.steady)


def identify(snapshot: Snapshot, head: RequestHead) -> Credential:
    """Find the virtual key. Raises ``Unauthorized`` in the same words for none, a wrong one and one
    that counts no more."""
    digest = head.digest
    if digest is None:
        raise Unauthorized
    found = snapshot.credentials.get(digest)
    if found is None or not hmac.compare_digest(found.digest, digest):
        raise _unauthorized(snapshot, digest)
    if found.until is not None and not found.is_in_force(head.at):
        raise Unauthorized("expired", found.key.name)
    return found


def _unauthorized(snapshot: Snapshot, digest: bytes) -> Unauthorized:
    """Return the refusal of a text that is none of a key in force."""
    revoked = snapshot.revoked_credentials.get(digest)
    if revoked is not None:
        return Unauthorized("revoked", revoked.key.name)
    return Unauthorized("revoked" if digest.hex() in snapshot.revoked else "unknown")


def decide(snapshot: Snapshot, key: VirtualKey, call: Call) -> Plan:
    """Return the plan for a call of a key: its deployment, tags and targets; a ``DecidedPlan``, but
    for a list of models. One that leans on what a target keeps has such targets alone. Raise
    ``Refused`` where it cannot be served under any rule; what a rule itself refuses is part of the
    plan."""
    pin = call.pin
    if pin is not None:
        from proxy.policy.decide import pins  # noqa: PLC0415  # few calls lean

        call = pins.redrawn(call, pin)
        pins.check_pin(key, call, pin)
    head = call.head
    warnings: tuple[str, ...] = ()
    if head.refresh and not key.may_refresh:
        warnings = (REFRESH_IGNORED,)
    if head.endpoint == "models":
        return Plan(
            revision=snapshot.revision,
            key=key.name,
            deployment=None,
            tags=key.tags,
            model_calls=(),
            listing=_listed(key, head),
            warnings=warnings,
        )
    path = None
    if head.deployment is not None and head.alternatives:
        _check_drawn(key, head.deployment, *head.alternatives)
    if head.passed is None:
        reach = _find(key, call)
    else:
        from proxy.policy.decide.passed import find_passage  # noqa: PLC0415  # few calls are such

        reach, path = find_passage(key, call, head.passed)
    tags = reach.tags
    dropped: tuple[str, ...] = ()
    if head.tags:
        tags, dropped = _join_tags(snapshot, reach, head)
        warnings += tuple(
            f"tag {ascii_word(tag)} ignored: clients may not set this value" for tag in dropped
        )
    _check_number(call.models, reach.deployment.max_models)
    facts = facts_of(key.name, call, tags)
    models = call.models or (reach.deployment.name,)
    ruled = [rule_model_call(reach, call, facts, model) for model in models]
    basis = Basis(snapshot=snapshot, key=key, reach=reach, call=call, dropped=dropped, ruled=ruled)
    return _leaning(_passed_on(_plan(basis, tags, warnings), path), call)


def _leaning(plan: DecidedPlan, call: Call) -> Plan:
    """Return the plan of a call that leans on what a target keeps, with such targets alone. Any
    other as it is."""
    if call.pin is None:
        return plan
    from proxy.policy.decide import pins  # noqa: PLC0415  # as above

    return pins.pinned_plan(plan, call, call.pin)


def _passed_on(plan: DecidedPlan, path: PassedPath | None) -> DecidedPlan:
    """Return the plan of a call that is passed on: each is asked once, and nothing is kept. Any
    other, for which there is no ``path``, as it is."""
    if path is None:
        return plan
    model_calls = tuple(replace(each, changes=UNCHANGED, others={}) for each in plan.model_calls)
    return replace(plan, model_calls=model_calls, passed=path, hedge_after=None, cache=None)


def _listed(key: VirtualKey, head: RequestHead) -> tuple[ListedModel, ...]:
    """Return the models that a key may use, each by one name unless all names are asked for; or the
    one that is asked for by any of its names. Raises ``ModelNotFound``."""
    model, names = head.parameter("model"), head.parameter("names")
    if model is not None:
        if model not in key.listing:
            raise ModelNotFound(no_model([model]), param="model")
        return (key.listing[model],)
    if names not in (None, "all"):
        raise BadField("names", "must be all")
    return tuple(each for each in key.listing.values() if each.is_main or names == "all")


def _plan(basis: Basis, tags: Mapping[str, str], warnings: tuple[str, ...]) -> DecidedPlan:
    """Return the plan that follows from what the rules leave of each model of a call."""
    snapshot, key, reach, call, dropped, ruled = basis
    deployment = reach.deployment
    model_calls = tuple([each.model_call for each in ruled])
    if len(ruled) == 1:  # nearly every call
        where, firsts, every = ruled[0].where, ruled[0].first, ruled[0].every
    else:
        where = _together(reach, unlike([each.where for each in ruled]))
        firsts = unlike([effects for each in ruled for effects in each.first])
        every = unlike([effects for each in ruled for effects in each.every])
    first, any_ = _together(reach, firsts), _together(reach, every)
    refusal = where.refusal
    bounds = bounds_of(deployment.bounds, first, firsts)
    guards = guards_of(deployment.guards, any_, every)
    cache = deployment.cache if first.cache is None else first.cache.by
    unpriced: tuple[ModelCall, ...] = ()
    why = pricing.unpriced_by(deployment, bounds)
    if why is not None:
        model_calls, unpriced = pricing.payable_model_calls(model_calls, call)
        guards = pricing.payable_guards(guards, call)
        if unpriced:
            refusal = refusal or pricing.refusal(ascii_word(unpriced[0].model), why)
    apart = call.background or call.head.endpoint == "conversations"  # what it made stays there
    return DecidedPlan(
        revision=snapshot.revision,
        key=key.name,
        deployment=deployment.name,
        tags=tags,
        model_calls=model_calls,
        dropped_tags=len(dropped),
        warnings=warnings,
        retry=deployment.retry,
        hedge_after=None if apart else deployment.hedge_after,
        refusal=refusal,
        bounds=bounds,
        cache=None if call.background or call.head.endpoint in UNBILLED else cache,
        may_refresh=key.may_refresh,
        guards=guards,
        by=effects_by(where, first, any_),
        basis=basis,
        unpriced=unpriced,
    )


def _check_number(models: Sequence[str], most: int) -> None:
    """Raise ``BadField`` for a list of more models than the policy lets a call have."""
    if len(models) > most:
        raise BadField("model", f"must have at most {most} models")


def _together(reach: Reach, effects_list: Sequence[Effects]) -> Effects:
    """Return what the rules say of a call as a whole."""
    return NO_EFFECTS if reach.chain is None else reach.chain.union(effects_list)


def _find(key: VirtualKey, call: Call) -> Reach:
    """Return the deployment that the call names, else the only one, or the only default one, of
    those of the key that serve all its models."""
    asked = call.head.deployment or call.deployment
    if asked is not None:
        found = key.by_name.get(asked)
        if found is None:
            raise NotFound(no_deployment(asked), param=_place_of_deployment(call.head))
        if found.deployment.only_passthrough:
            message = f'Deployment "{ascii_word(asked)}" serves only its passthrough paths.'
            raise NotFound(message, param=_place_of_deployment(call.head))
        return found
    if not call.models:
        from proxy.policy.decide.pins import find_keeper  # noqa: PLC0415  # few calls are such

        return find_keeper(key)
    candidates = key.serving(call.models)
    reach = key.default_of(candidates)
    if reach is not None:
        return reach
    if not candidates:
        raise ModelNotFound(no_model(call.models), param="model")
    names = [each.deployment.name for each in candidates]
    raise BadField("model", ambiguous(listed(call.models), names))


def _place_of_deployment(head: RequestHead) -> str:
    """Return where a call names its deployment: its dialect may have a place of its own for it."""
    return HEADER if HEADER in head.headers else "deployment"


def _check_drawn(key: VirtualKey, *names: str) -> None:
    """Raise ``BadRequest`` where a key may not use all deployments among which one was drawn: else
    only some of its calls were refused."""
    for name in names:
        if name not in key.by_name:
            raise BadRequest(no_deployment(name), param="deployment")


def _join_tags(
    snapshot: Snapshot, reach: Reach, head: RequestHead
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Add what a caller may add to the tags of the key and the deployment.

    Return the set and the names of the caller's tags that had to be dropped.
    """
    tags = dict(reach.tags)
    dropped: list[str] = []
    for name, given in head.tags:
        value = "true" if given is None else given
        rule = snapshot.tags.get(name)
        allowed = rule is not None and rule.caller and rule.allows(value)
        if allowed and tags.get(name, value) == value:
            tags[name] = value
        elif snapshot.refuse_caller_tags:
            raise BadField("tags", f'clients may not set tag "{ascii_word(name)}" to this value')
        else:
            dropped.append(name)
    return MappingProxyType(dict(sorted(tags.items()))), tuple(dropped)
