"""Cache rules of a revision of the policies, and the stores that they name."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.types import CacheRule


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
