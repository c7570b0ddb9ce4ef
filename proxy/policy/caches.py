"""Which stores of kept answers a revision of the policies asks for."""

from __future__ import annotations

from proxy.policy.decide.snapshot import Snapshot


def stores_of(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return the stores by name, each with the deployments whose answers may be kept there."""
    found: dict[str, list[str]] = {}
    for name, deployment in sorted(snapshot.deployments.items()):
        ruled = (rule.cache.by for rule in deployment.rules if rule.cache is not None)
        caches = [deployment.cache, *ruled]
        for store in sorted({cache.store for cache in caches if cache is not None}):
            found.setdefault(store, []).append(name)
    return found
