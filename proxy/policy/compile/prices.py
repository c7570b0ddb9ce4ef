"""Limits of money cover only targets whose price is whole: a cost that nobody knows spends nothing.

What is found here keeps a folder from coming into force. What only a call can tell, its endpoint
and its day, is for ``pricing``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from proxy.policy.decide.snapshot import Deployment
from proxy.policy.files.source import Finding, Path_
from proxy.types import ScopedLimit, Target
from proxy.words import quoted

Placed = Mapping[Path_, Target]
"""Every target of a folder, by where it is written."""


def uncovered(deployments: Mapping[str, Deployment], placed: Placed) -> Iterator[Finding]:
    """Return the targets without a whole price whose calls a limit of money counts."""
    lists: dict[Path_, list[tuple[Path_, Target]]] = {}
    for place, target in placed.items():
        lists.setdefault(place[:-1], []).append((place, target))
    for name, deployment in deployments.items():
        path: Path_ = ("deployments", name)
        own = _written_below(lists, path)
        routed = deployment.guards.detours
        detours = [pair for pair in placed.items() if pair[1] in routed] if routed else []
        yield from _findings((*own, *detours), deployment.bounds)
        for rule in deployment.rules:
            if rule.shadow:
                continue
            if rule.routes is None:
                yield from _findings(own, rule.bounds)
            picked = _written_below(lists, rule.path)
            bounds = (*deployment.bounds, *rule.bounds)
            counted = [each for each in bounds if each.limit.name not in rule.without]
            yield from _findings(picked, counted)


def _written_below(
    lists: Mapping[Path_, list[tuple[Path_, Target]]], path: Path_
) -> list[tuple[Path_, Target]]:
    return [pair for name in ("targets", "fallback") for pair in lists.get((*path, name), ())]


def _findings(
    targets: Iterable[tuple[Path_, Target]], bounds: Iterable[ScopedLimit]
) -> Iterator[Finding]:
    limit = next((bound.limit.name for bound in bounds if bound.needs_prices), None)
    if limit is None:
        return
    for path, target in targets:
        lack = target.lack_of_price()
        if lack is not None:
            yield (
                path,
                f"model {quoted(target.model)} has {lack}, but limit {quoted(limit)} is in USD. "
                'Add "price:" to this target, or set "unpriced: allow" on the limit.',
            )
