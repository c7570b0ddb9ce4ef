"""Lists the parts of a snapshot for telemetry and the ledger.

These are label values, limit counters, budgets, and state that several keys share.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from types import MappingProxyType

from proxy.dialects.requests.upstream_request import choose_target_endpoint
from proxy.policy.decide.snapshot import Deployment, KeyDeployment, Snapshot
from proxy.types import CacheRule, ScopedLimit, Target
from proxy.types.label_catalog import DeploymentLabels, LabelCatalog, make_internal_key_name
from proxy.types.limit import BudgetQuery, Limit

MAX_SCOPES_PER_DEPLOYMENT = 1000
"""Maximum number of counters of one deployment that have gauges."""
MAX_COUNTERS = 2000
"""Maximum number of counters of all deployments that have gauges."""
KeyDeployments = dict[str, KeyDeployment]
"""One deployment for each key that may call it, by key name."""


def list_labels(snapshot: Snapshot) -> LabelCatalog:
    """Return the label values of a snapshot, in a fixed order."""
    key_deployments = _group_keys_by_deployment(snapshot)
    listed = {
        name: _collect_deployment_labels(deployment, key_deployments[name])
        for name, deployment in sorted(snapshot.deployments.items())
    }
    keys = snapshot.keys.keys() | {
        name for deployments in key_deployments.values() for name in deployments
    }
    return LabelCatalog(
        revision=snapshot.revision,
        keys=tuple(sorted(keys)),
        deployments=MappingProxyType(listed),
        counters=tuple(islice(iter_limits_and_known_scopes(snapshot), MAX_COUNTERS)),
        tags=MappingProxyType(
            {name: _list_allowed_tag_values(snapshot, name) for name in sorted(snapshot.tags)}
        ),
        prices_as_of=snapshot.prices_as_of,
        credentials=tuple(sorted((c.key.name, c.label) for c in snapshot.credentials.values())),
    )


def iter_limits_and_known_scopes(
    snapshot: Snapshot, *, budgets_only: bool = False
) -> Iterator[tuple[Limit, str]]:
    """Yield each limit with the scopes that the policy lists: keys, deployments, listed tag values.

    Of each deployment, up to ``MAX_SCOPES_PER_DEPLOYMENT`` are listed.
    """
    key_deployments = _group_keys_by_deployment(snapshot)
    yielded: set[tuple[str, str]] = set()
    for name, deployment in sorted(snapshot.deployments.items()):
        scopes = (
            (scoped.limit, scope)
            for scoped in deployment.scoped_limits
            if scoped.limit.is_budget or not budgets_only
            for scope in _list_limit_scopes(snapshot, deployment, key_deployments[name], scoped)
            if (scoped.name, scope) not in yielded
        )
        for limit, scope in islice(scopes, MAX_SCOPES_PER_DEPLOYMENT):
            yielded.add((limit.name, scope))
            yield limit, scope


def _group_keys_by_deployment(snapshot: Snapshot) -> dict[str, KeyDeployments]:
    """Return the key deployments by deployment name, including deployments of internal keys."""
    key_deployments: dict[str, KeyDeployments] = {name: {} for name in snapshot.deployments}
    for key in snapshot.keys.values():
        for name, deployment in key.deployments.items():
            key_deployments[name][key.name] = deployment
    calls: list[tuple[str, str]] = []
    for caller in snapshot.deployments.values():
        for guard, name in iter_guard_and_called_deployment(caller):
            calls.append((make_internal_key_name("guard", guard), name))
        for cache in _list_cache_rules(caller):
            if cache.semantic is not None:
                key_name = make_internal_key_name("cache", caller.name)
                calls.append((key_name, cache.semantic.embeddings))
    for key_name, name in calls:
        target = snapshot.deployments[name]
        key_deployments[name][key_name] = KeyDeployment(target, target.tags)
    return key_deployments


def iter_guard_and_called_deployment(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Yield the guards that call a deployment, each as its name and that deployment's name."""
    for plan in deployment.guard_plans:
        for guard in (*plan.input, *plan.output):
            name: str | None = getattr(guard.detector, "model_deployment", None)
            if name is not None:
                yield guard.name, name


def _list_allowed_tag_values(snapshot: Snapshot, tag: str) -> frozenset[str]:
    return snapshot.tags[tag].allowed.values or frozenset()


def _collect_deployment_labels(
    deployment: Deployment, key_deployments: KeyDeployments
) -> DeploymentLabels:
    plans = deployment.guard_plans
    tags = [deployment.tags, *(d.tags for d in key_deployments.values())]
    return DeploymentLabels(
        targets=tuple(dict.fromkeys(_list_targets(deployment))),
        rules=tuple(dict.fromkeys(rule.name for rule in deployment.rules)),
        guards=tuple(dict.fromkeys((s, g.name) for plan in plans for s, g in plan.by_stage)),
        tags=frozenset(tag for group in tags for tag in group.items()),
        limits=tuple(dict.fromkeys(scoped.limit for scoped in deployment.scoped_limits)),
    )


def _list_targets(deployment: Deployment) -> Iterator[Target]:
    yield from deployment.routes.candidates.targets
    yield from deployment.fallback
    yield from deployment.guards.route_targets
    for rule in deployment.rules:
        yield from rule.routes.candidates.targets if rule.routes else ()
        yield from (*(rule.fallback or ()), *rule.guards.route_targets)


def _list_limit_scopes(
    snapshot: Snapshot, deployment: Deployment, key_deployments: KeyDeployments, scoped: ScopedLimit
) -> Iterator[str]:
    """Yield the scopes of a limit, or none if the policy does not list a part of them."""
    for key, key_deployment in key_deployments.items():
        owners = [_list_scope_values(snapshot, key, key_deployment, per) for per in scoped.per]
        for values in product(*owners):
            pairs = zip(scoped.per, values, strict=True)
            yield "|".join(f"{name}:{value}" for name, value in pairs)


def _list_scope_values(
    snapshot: Snapshot, key: str, deployment: KeyDeployment, scope_part: str
) -> Iterable[str]:
    tag = scope_part.removeprefix("tag.")
    if scope_part in ("key", "deployment"):
        return [key if scope_part == "key" else deployment.deployment.name]
    if tag == scope_part:  # clients choose users, and write the name of a model in several ways
        return []
    if tag in deployment.tags:
        return [deployment.tags[tag]]
    rule = snapshot.tags[tag]
    return sorted({"", *_list_allowed_tag_values(snapshot, tag)}) if rule.set_by_clients else [""]


@dataclass(slots=True)
class ActiveBudgets:
    """The budgets of the active revision, listed in a thread once for each snapshot."""

    get_snapshot: Callable[[], Snapshot]
    _snapshot: Snapshot | None = None
    _by_name: Mapping[str, BudgetQuery] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read_budgets(self) -> Mapping[str, BudgetQuery]:
        """Return the budgets by name. Listing takes a second for 5,000 keys."""
        async with self._lock:
            snapshot = self.get_snapshot()
            if snapshot is not self._snapshot:
                self._by_name = await asyncio.to_thread(list_budgets, snapshot)
                self._snapshot = snapshot
            return self._by_name


def list_budgets(snapshot: Snapshot) -> dict[str, BudgetQuery]:
    """Return the budgets by name, with the scopes that no client chooses.

    ``BudgetQuery.deployments`` are the deployments whose calls a budget counts, or None if rules
    decide which calls it counts.
    """
    scopes: dict[str, set[str]] = defaultdict(set)
    for limit, scope in iter_limits_and_known_scopes(snapshot, budgets_only=True):
        scopes[limit.name].add(scope)
    rules = [rule for deployment in snapshot.deployments.values() for rule in deployment.rules]
    by_name = {scoped.name: scoped for rule in rules for scoped in rule.limits}
    by_rule = by_name.keys() | {name for rule in rules for name in rule.without_limits}
    deployments: dict[str, set[str]] = defaultdict(set)
    for name, deployment in snapshot.deployments.items():
        for scoped in deployment.limits:
            deployments[scoped.name].add(name)
            by_name[scoped.name] = scoped
    return {
        name: BudgetQuery(
            limit=scoped.limit,
            per=scoped.per,
            deployments=None if name in by_rule else frozenset(deployments[name]),
            scopes=frozenset(scopes[name]),
        )
        for name, scoped in by_name.items()
        if scoped.limit.is_budget
    }


def list_upstreams_storing_for_several_keys(snapshot: Snapshot) -> list[str]:
    """Return the upstreams that store responses of several keys.

    Unless ids are sealed, a key that knows an id can read the response of another key.
    """
    first_keys: dict[str, str] = {}
    shared: set[str] = set()
    stores = {
        name: {
            target.upstream.name
            for _, target in deployment.targets
            if choose_target_endpoint("responses", target) == "responses"
        }
        for name, deployment in snapshot.deployments.items()
    }
    for key in snapshot.keys.values():
        for name in key.deployments:
            for upstream in stores[name]:
                if first_keys.setdefault(upstream, key.name) != key.name:
                    shared.add(upstream)
    return sorted(shared)


def list_deployments_by_cache_store(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return the cache stores by name, each with the deployments that use it."""
    stores: dict[str, list[str]] = {}
    for name, deployment in sorted(snapshot.deployments.items()):
        for store in sorted({cache.store for cache in _list_cache_rules(deployment)}):
            stores.setdefault(store, []).append(name)
    return stores


def _list_cache_rules(deployment: Deployment) -> Iterator[CacheRule]:
    caches = (deployment.cache, *(rule.cache for rule in deployment.rules))
    yield from (cache for cache in caches if isinstance(cache, CacheRule))
