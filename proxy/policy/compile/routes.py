"""Routes of a deployment or a rule, from targets and their weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from proxy.policy.decide.routes import Candidates, Routes
from proxy.policy.decide.snapshot import Deployment
from proxy.policy.files.source import Finding, Path_
from proxy.types import Target

WeightedTarget = tuple[Target, int | None]
REMEDY = "Give all targets a weight, set balance, or move this one to fallback."
UNREACHABLE = f"can never be used, because earlier targets have all its names. {REMEDY}"


def compile_routes(weighted: Sequence[WeightedTarget], balanced: bool) -> Routes:
    """Return the routes of targets, each with its weight; None if weights are not used."""
    targets = tuple(target for target, _ in weighted)
    return Routes(targets, _candidates(weighted, balanced), _candidates_by_name(weighted, balanced))


def named_targets(
    routes: Routes, deployment_names: Collection[str]
) -> Iterator[tuple[Target, frozenset[str]]]:
    """Yield the targets that only calls for their models reach, each with the names that lead to
    it. Without weights or balancing, the first target takes all calls for the deployment."""
    if routes.candidates.weights or routes.candidates.balanced:
        return
    for target in routes.targets[1:]:
        names = target.names.difference(deployment_names)
        yield target, frozenset({n for n in names if routes.serves[n].targets[0] is target})


def unreachable(
    deployments: Iterable[Deployment], placed: Mapping[Path_, Target]
) -> Iterator[Finding]:
    """Yield the targets that no call can reach. One that a rule picks may be reachable in another
    deployment. ``placed`` are all targets by where they are written."""
    is_reachable: dict[int, bool] = {}
    for deployment in deployments:
        picked = [rule.routes for rule in deployment.rules if rule.routes is not None]
        for routes in (deployment.routes, *picked):
            for target, names in named_targets(routes, deployment.names):
                known = is_reachable.get(id(target), False)
                is_reachable[id(target)] = known or bool(names)
    for path, target in placed.items():
        if not is_reachable.get(id(target), True):
            yield path, UNREACHABLE


def _candidates(weighted: Sequence[WeightedTarget], balanced: bool) -> Candidates:
    ordered = sorted(weighted, key=lambda each: -(each[1] or 0))
    targets = tuple(target for target, _ in ordered)
    weights = tuple(weight for _, weight in ordered if weight is not None)
    if weights:  # the schema reports a weight that is missing or invalid
        weights += (0,) * (len(targets) - len(weights))
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
