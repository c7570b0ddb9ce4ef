"""The paths that deployments pass on, from what is written to what calls are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from proxy.policy.files.source import Path_
from proxy.policy.schema.deployments import PassedPathConfig
from proxy.types.passthrough import PassedPath, PassedPaths
from proxy.usage import NANO

Complain = Callable[[Path_, str], None]


def passed_paths(
    path: Path_, configs: Sequence[PassedPathConfig], complain: Complain
) -> PassedPaths:
    """Return the paths of a deployment, and ``complain`` of those that two calls could not tell
    apart."""
    made = [_passed_path(each) for each in configs]
    taken: dict[tuple[str, str], int] = {}
    for index, each in enumerate(made):
        known = set(each.names)
        if each.upstream_route and not known.issuperset(PassedPath(each.upstream_route).names):
            complain((*path, index, "to"), "contains a name in braces that is not in path")
        for method in sorted(each.methods):
            first = taken.setdefault((method, each.sample), index)
            if first != index:
                complain(
                    (*path, index),
                    f"repeats {method} {made[first].route}. Remove one of the two entries.",
                )
    return PassedPaths.of(made)


def _passed_path(config: PassedPathConfig) -> PassedPath:
    return PassedPath(
        route=config.path,
        methods=frozenset(config.methods),
        upstream_route=config.to,
        queries=frozenset(config.query),
        most_bytes=config.max_bytes,
        repeatable=config.idempotent,
        most_cost=None if config.most_usd is None else ceil(config.most_usd * NANO),
        fields=None if config.fields is None else frozenset(config.fields),
    )
