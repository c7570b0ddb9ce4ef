"""State that calls of several keys share: stores of cached answers, and responses at a provider."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.dialects import DIALECTS
from proxy.dialects.ways import target_endpoint
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.types import CacheRule


def sharing_responses(snapshot: Snapshot) -> list[str]:
    """Return the upstreams that keep responses of several keys. Where ids are not sealed a key that
    knows the id of an item gets it there, whosever it is."""
    keeping = {name: keepers(each) for name, each in snapshot.deployments.items()}
    first: dict[str, str] = {}
    shared: set[str] = set()
    for key in snapshot.keys.values():
        for name in key.deployments:
            for upstream in keeping[name]:
                if first.setdefault(upstream, key.name) != key.name:
                    shared.add(upstream)
    return sorted(shared)


def keepers(deployment: Deployment) -> set[str]:
    """Return the upstreams of a deployment that are asked for responses by what keeps them."""
    return {
        target.upstream.name
        for _, target in deployment.targets
        if target_endpoint("responses", target, DIALECTS[target.upstream.dialect]) == "responses"
    }


def stores_of(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return the stores by name, each with the deployments whose answers may be kept there."""
    found: dict[str, list[str]] = {}
    for name, deployment in sorted(snapshot.deployments.items()):
        for store in sorted({cache.store for cache in caches_of(deployment)}):
            found.setdefault(store, []).append(name)
    return found


def caches_of(deployment: Deployment) -> Iterator[CacheRule]:
    """Yield the cache rules of a deployment, those of its rules included."""
    ruled = (rule.cache.by for rule in deployment.rules if rule.cache is not None)
    yield from (cache for cache in (deployment.cache, *ruled) if cache is not None)
