"""From snapshot to roster: what of a revision may be a label, or a gauge of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, product
from types import MappingProxyType
from typing import Protocol, TypeGuard

from proxy.policy.decide.rules import RuleGuards
from proxy.policy.decide.snapshot import Deployment, Reach, Snapshot
from proxy.policy.shared_state import caches_of
from proxy.types import ScopedLimit, Target
from proxy.types.guard import Guarding
from proxy.types.limit import Limit
from proxy.types.roster import ListedDeployment, Roster, internal_key

MAX_SCOPES = 1000
"""Counters of one deployment that have gauges; the rest are counted, but not shown one by one."""
MAX_SHOWN = 2000
"""Counters of all deployments whose state a scrape shows."""


class AsksDeployment(Protocol):
    """A way of looking that asks a deployment of the same policies."""

    @property
    def asked_deployment(self) -> str: ...


def roster(snapshot: Snapshot) -> Roster:
    """Return the names of a snapshot, in a fixed order."""
    reached = _reached(snapshot)
    listed = {
        name: _listed(deployment, reached[name])
        for name, deployment in sorted(snapshot.deployments.items())
    }
    keys = snapshot.keys.keys() | {name for reaches in reached.values() for name in reaches}
    return Roster(
        revision=snapshot.revision,
        keys=tuple(sorted(keys)),
        deployments=MappingProxyType(listed),
        counters=tuple(islice(counters(snapshot), MAX_SHOWN)),
        tags=MappingProxyType({name: _values(snapshot, name) for name in sorted(snapshot.tags)}),
        prices_as_of=snapshot.prices_as_of,
        credentials=tuple(sorted((c.key.name, c.label) for c in snapshot.credentials.values())),
    )


def counters(snapshot: Snapshot, *, budgets_only: bool = False) -> Iterator[tuple[Limit, str]]:
    """Yield the counters of limits whose owner no caller chooses, up to ``MAX_SCOPES`` of each
    deployment."""
    reached = _reached(snapshot)
    seen: set[tuple[str, str]] = set()
    for name, deployment in sorted(snapshot.deployments.items()):
        bounds = [*deployment.bounds, *(each for rule in deployment.rules for each in rule.bounds)]
        scopes = (
            (bound.limit, scope)
            for bound in bounds
            if bound.limit.is_budget or not budgets_only
            for scope in _scopes(snapshot, deployment, reached[name], bound)
            if (bound.limit.name, scope) not in seen
        )
        for limit, scope in islice(scopes, MAX_SCOPES):
            seen.add((limit.name, scope))
            yield limit, scope


def _reached(snapshot: Snapshot) -> dict[str, dict[str, Reach]]:
    """Return the deployments, each with the keys that reach it, those of the proxy included."""
    reached: dict[str, dict[str, Reach]] = {name: {} for name in snapshot.deployments}
    for key in snapshot.keys.values():
        for name, reach in key.deployments.items():
            reached[name][key.name] = reach
    for deployment in snapshot.deployments.values():
        for internal, whom in _internal_keys(deployment):
            asked = snapshot.deployments[whom]
            reached[whom][internal] = Reach(asked, asked.tags)
    return reached


def services_of(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Yield the guards of a deployment that ask another one, those added by rules included: the
    name of each, and that of the deployment it asks."""
    brought = (rule.guards for rule in deployment.rules)
    own = (*deployment.guards.input, *deployment.guards.output)
    for each in (*own, *(rule for by in brought for rule in (*by.input, *by.output))):
        if is_asking(each.detector):
            yield each.name, each.detector.asked_deployment


def _internal_keys(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Yield the keys of calls that the proxy makes for a deployment, and which one they call."""
    for guard, whom in services_of(deployment):
        yield internal_key("guard", guard), whom
    for cache in caches_of(deployment):
        if cache.semantic is not None:
            yield internal_key("cache", deployment.name), cache.semantic.embeddings


def is_asking(detector: object) -> TypeGuard[AsksDeployment]:
    return hasattr(detector, "asked_deployment")


def _values(snapshot: Snapshot, tag: str) -> frozenset[str]:
    rule = snapshot.tags[tag]
    if rule.values is not None:
        return rule.values
    return frozenset() if rule.pattern is not None else frozenset({"true"})


def _listed(deployment: Deployment, reaches: dict[str, Reach]) -> ListedDeployment:
    rules = list(deployment.rules)
    bounds = [*deployment.bounds, *(bound for rule in rules for bound in rule.bounds)]
    guards = [*_guards(deployment.guards)]
    for rule in rules:
        guards += _guards(rule.guards)
    tags = [deployment.tags, *(reach.tags for reach in reaches.values())]
    return ListedDeployment(
        targets=tuple(dict.fromkeys(_targets(deployment))),
        rules=tuple(dict.fromkeys(rule.name for rule in rules)),
        guards=tuple(dict.fromkeys(guards)),
        tags=frozenset(pair for each in tags for pair in each.items()),
        limits=tuple(dict.fromkeys(bound.limit for bound in bounds)),
    )


def _guards(by: RuleGuards | Guarding) -> Iterator[tuple[str, str]]:
    yield from (("input", ceiling.name) for ceiling in by.ceilings)
    yield from (("input", each.name) for each in by.input)
    yield from (("output", each.name) for each in by.output)


def _targets(deployment: Deployment) -> Iterator[Target]:
    yield from deployment.routes.candidates.targets
    yield from deployment.fallback
    yield from deployment.guards.detours
    for rule in deployment.rules:
        yield from rule.routes.candidates.targets if rule.routes else ()
        yield from (*(rule.fallback or ()), *Guarding(rule.guards.input).detours)


def _scopes(
    snapshot: Snapshot, deployment: Deployment, reaches: dict[str, Reach], bound: ScopedLimit
) -> Iterator[str]:
    """Yield the counters of a limit, as calls name them; none where callers choose a part of the
    name."""
    for key, reach in reaches.items():
        owners = [_owners(snapshot, deployment, key, reach, per) for per in bound.per]
        for values in product(*owners):
            pairs = zip(bound.per, values, strict=True)
            yield "|".join(f"{name}:{value}" for name, value in pairs)


def _owners(
    snapshot: Snapshot, deployment: Deployment, key: str, reach: Reach, per: str
) -> Iterable[str]:
    tag = per.removeprefix("tag.")
    if per == "key":
        return [key]
    if per == "deployment":
        return [deployment.name]
    if tag == per:  # a user, or a model's name, which callers say in several ways
        return []
    if tag in reach.tags:
        return [reach.tags[tag]]
    rule = snapshot.tags[tag]
    return sorted({"", *_values(snapshot, tag)}) if rule.caller else [""]
