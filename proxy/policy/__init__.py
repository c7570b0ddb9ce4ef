"""What policy says about a call. ``decide`` is pure: what serves calls is what explains them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from proxy.errors import BadField, NotFound, Unauthorized
from proxy.policy import pricing
from proxy.policy.conditions import Facts
from proxy.policy.routes import draw
from proxy.policy.rules import SILENT, Ruling, follow
from proxy.policy.snapshot import Deployment, Key, Reach, Snapshot
from proxy.types import Bound, Call, Door, Leg, Plan, Refusal, Target
from proxy.types.guard import Guarding


@dataclass(frozen=True, slots=True)
class InForce:
    """A snapshot as the pipeline sees it."""

    snapshot: Snapshot

    @property
    def revision(self) -> str:
        return self.snapshot.revision

    def identify(self, door: Door) -> Caller:
        return Caller(self.snapshot, identify(self.snapshot, door))


@dataclass(frozen=True, slots=True)
class Caller:
    """A virtual key under one revision."""

    snapshot: Snapshot
    known: Key

    @property
    def key(self) -> str:
        return self.known.name

    def decide(self, call: Call) -> Plan:
        return decide_for(self.snapshot, self.known, call)


def identify(snapshot: Snapshot, door: Door) -> Key:
    """Find the virtual key. Raises ``Unauthorized`` in the same words for none and a wrong one."""
    if door.credential is None:
        raise Unauthorized
    digest = hashlib.sha256(door.credential.reveal().encode("utf-8", "surrogateescape")).digest()
    key = snapshot.keys.get(digest)
    if key is None or not hmac.compare_digest(key.digest, digest):
        raise Unauthorized
    return key


def decide(snapshot: Snapshot, call: Call) -> Plan:
    """Say who calls, which deployment answers, with which tags and targets. Raises ``Refused``."""
    return decide_for(snapshot, identify(snapshot, call.door), call)


def decide_for(snapshot: Snapshot, key: Key, call: Call) -> Plan:
    """Decide a call of a known key. Raises ``Refused`` where it cannot be served under any rule;
    what a rule itself refuses is part of the plan."""
    door = call.door
    warnings: tuple[str, ...] = ()
    if door.refresh and not key.may_refresh:
        warnings = ("refresh ignored: this key may not refresh",)
    if door.endpoint == "models":
        said = (key.tags, (), key.listing, 0, warnings)
        return Plan(snapshot.revision, key.name, None, *said)
    reach = find(key, call)
    tags = reach.tags
    dropped: tuple[str, ...] = ()
    if door.tags:
        tags, dropped = join_tags(snapshot, reach, door)
        warnings += tuple(f"tag {shown(tag)} dropped" for tag in dropped)
    deployment = reach.deployment
    legs: list[Leg] = []
    refusal = None
    bounds, cache, guards = deployment.bounds, deployment.cache, deployment.guards
    for model in call.models:
        leg, ruling = _rule(reach, key, call, tags, model)
        legs.append(leg)
        refusal = refusal or ruling.refusal or _unpriced(deployment, call, leg)
        if ruling.bounds or ruling.without:
            bounds = bounds_of(bounds, ruling)
        if ruling.cache is not None:
            cache = ruling.cache.by
        if ruling.unguarded or any(ruling.guards):
            guards = guards_of(guards, ruling)
    return Plan(
        snapshot.revision,
        key.name,
        deployment.name,
        tags,
        tuple(legs),
        None,
        len(dropped),
        warnings,
        deployment.retry,
        deployment.hedge_after,
        refusal,
        bounds,
        cache,
        key.may_refresh,
        pricing.payable_guards(deployment, call, guards),
    )


def facts_of(key: Key, call: Call, tags: Mapping[str, str], model: str) -> Facts:
    """Give what rules may know of one leg."""
    door = call.door
    return Facts(
        key.name, door.dialect, door.endpoint, model, call.stream, tags, door.headers, door.at
    )


def _rule(
    reach: Reach, key: Key, call: Call, tags: Mapping[str, str], model: str
) -> tuple[Leg, Ruling]:
    """Give one leg as the rules leave it. Targets that a rule picks bring their own fallback."""
    deployment = reach.deployment
    ruling = SILENT
    if reach.course is not None:
        ruling = follow(reach.course, facts_of(key, call, tags, model))
    fallback = fallback_of(deployment, ruling)
    candidates = (ruling.routes or deployment.routes).serving(ruling.model or model)
    targets = candidates.fixed
    if targets is None:
        targets = candidates.order(draw(deployment.name, deployment.sticky, key.name, call))
    targets, pool = targets + fallback, candidates.pool
    if deployment.refuse_unpriced:
        pool = len(pricing.payable(deployment, call, targets[:pool])) or 1
        targets = pricing.payable(deployment, call, targets) or targets
    leg = Leg(
        model,
        targets,
        pool,
        ruling.changes,
        ruling.rules,
        ruling.would,
    )
    return leg, ruling


def _unpriced(deployment: Deployment, call: Call, leg: Leg) -> Refusal | None:
    if pricing.payable(deployment, call, leg.targets):
        return None
    return pricing.refusal(shown(leg.model))


def bounds_of(bounds: tuple[Bound, ...], ruling: Ruling) -> tuple[Bound, ...]:
    """Add the limits that rules bring, each once, and leave out those that they take away."""
    joined = dict.fromkeys((*bounds, *ruling.bounds))
    return tuple(bound for bound in joined if bound.limit.name not in ruling.without)


def guards_of(guards: Guarding, ruling: Ruling) -> Guarding:
    """Add the guards that rules bring, each once, and leave out those that they take away."""
    came, goes = (
        tuple(rule for rule in dict.fromkeys((*own, *more)) if rule.name not in ruling.unguarded)
        for own, more in (
            (guards.input, ruling.guards.input),
            (guards.output, ruling.guards.output),
        )
    )
    ceilings = dict.fromkeys((*guards.ceilings, *ruling.guards.ceilings))
    kept = tuple(each for each in ceilings if each.name not in ruling.unguarded)
    return replace(guards, input=came, output=goes, ceilings=kept)


def fallback_of(deployment: Deployment, ruling: Ruling) -> tuple[Target, ...]:
    """Give where a leg goes when its first targets fail."""
    if ruling.fallback is not None:
        return ruling.fallback
    return deployment.fallback if ruling.routes is None else ()


def find(key: Key, call: Call) -> Reach:
    """The one that the call names, else the only one of the key that serves all its models."""
    asked = call.door.deployment or call.deployment
    if asked is not None:
        found = key.deployments.get(asked)
        if found is None:
            said = f"The deployment {shown(asked)} does not exist, or this key may not use it."
            raise NotFound(said, param="deployment")
        return found
    candidates = key.named.get(call.models[0], ())
    for model in call.models[1:]:
        others = key.named.get(model, ())
        candidates = tuple(each for each in candidates if each in others)
    if len(candidates) == 1:
        return candidates[0]
    models = ", ".join(shown(model) for model in call.models)
    if not candidates:
        together = " together" if len(call.models) > 1 else ""
        said = f"No deployment that this key may use serves {models}{together}."
        raise NotFound(said, param="model")
    names = ", ".join(sorted(each.deployment.name for each in candidates))
    raise BadField("model", f"{models} is served by {names}; name one in x-headrace-deployment")


def join_tags(
    snapshot: Snapshot, reach: Reach, door: Door
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Add what a caller may add to the tags of the key and the deployment.

    Gives the set and the names of the caller's tags that had to be dropped.
    """
    tags = dict(reach.tags)
    dropped: list[str] = []
    for name, given in door.tags:
        value = "true" if given is None else given
        rule = snapshot.tags.get(name)
        allowed = rule is not None and rule.caller and rule.allows(value)
        if allowed and tags.get(name, value) == value:
            tags[name] = value
        elif snapshot.refuse_caller_tags:
            raise BadField("tags", f"{shown(name)} is not allowed with this value")
        else:
            dropped.append(name)
    return MappingProxyType(dict(sorted(tags.items()))), tuple(dropped)


def shown(text: str) -> str:
    """Give a client's own word in a form that fits a message: short and printable."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:64])
