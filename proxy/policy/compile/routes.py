"""Routes of a deployment or a rule, from targets and their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from proxy.policy.decide.routes import Candidates, Routes
from proxy.types import Target

WeightedTarget = tuple[Target, int | None]


def compile_routes(weighted: Sequence[WeightedTarget], balanced: bool) -> Routes:
    """Return the routes of targets, each with its weight; None if weights are not used."""
    targets = tuple(target for target, _ in weighted)
    return Routes(targets, _candidates(weighted, balanced), _candidates_by_name(weighted, balanced))


def _candidates(weighted: Sequence[WeightedTarget], balanced: bool) -> Candidates:
    ordered = sorted(weighted, key=lambda each: -(each[1] or 0))
    targets = tuple(target for target, _ in ordered)
    weights = tuple(weight for _, weight in ordered if weight is not None)
    return Candidates(targets, weights, balanced)


def _candidates_by_name(
    weighted: Sequence[WeightedTarget], balanced: bool
) -> Mapping[str, Candidates]:
    """Return the candidates of each name of a target. A weight of 0 takes no calls."""
    by_name: dict[str, list[WeightedTarget]] = {}
    for target, weight in weighted:
        for name in target.names if weight != 0 else ():
            by_name.setdefault(name, []).append((target, weight))
    return MappingProxyType({name: _candidates(found, balanced) for name, found in by_name.items()})
