"""What several keys share at a provider without being told."""

from __future__ import annotations

from proxy.dialects import DIALECTS
from proxy.dialects.ways import target_endpoint
from proxy.policy.decide.snapshot import Deployment, Snapshot


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
