"""The names that a key may use, and which of them stands for each model in a list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from types import MappingProxyType

from proxy.policy.decide.snapshot import Reach
from proxy.types import Target
from proxy.types.listed_model import ListedModel

OURS = "headrace"  # owns a name that stands for models of several owners
_DAY = re.compile(r"(?<!\d)(20\d\d)-?([01]\d)-?([0-3]\d)(?!\d)")
Named = Mapping[str, tuple[Reach, ...]]


def names_of(reached: Mapping[str, Reach]) -> dict[str, tuple[Reach, ...]]:
    """Return who serves each name: the deployment of that name, be it its own or another, else all
    that have such a model."""
    named: dict[str, list[Reach]] = {}
    for reach in reached.values():
        for model in reach.deployment.routes.serves:
            named.setdefault(model, []).append(reach)
    aliases = {alias: (each,) for each in reached.values() for alias in each.deployment.aliases}
    return {
        **{name: tuple(each) for name, each in named.items()},
        **aliases,
        **{name: (reach,) for name, reach in reached.items()},
    }


def listed_models(
    reached: Mapping[str, Reach], named: Named, as_of: date | None
) -> Mapping[str, ListedModel]:
    """Return all names of a key with what a list says of each, in their order. ``as_of`` is the
    day of the table of prices: a model whose name has no day in it is as old as that."""
    main = {name for reach in reached.values() for name in _main_names(reach, named)}
    return MappingProxyType(
        {
            name: ListedModel(
                id=name,
                owner=_owner(targets),
                created=_day_in(targets[0].model) or as_of,
                is_main=name in main,
            )
            for name in sorted(named)
            if (targets := _targets(name, named[name][0]))
        }
    )


def _main_names(reach: Reach, named: Named) -> Iterator[str]:
    """Yield one name for each model of a deployment that leads there and nowhere else. The
    deployment's own stands for several models, and for one that no other name leads to."""
    deployment = reach.deployment
    targets = {target.model: target for target in deployment.routes.candidates.active}
    found = [_name_of(target, reach, named) for target in targets.values()]
    yield from (name for name in found if name is not None)
    if len(found) != 1 or None in found:
        yield deployment.name


def _name_of(target: Target, reach: Reach, named: Named) -> str | None:
    """Return the first name of a target that no other deployment of the key has as well."""
    prefixes = filter(None, (target.upstream.provider, target.upstream.name))
    names = (target.model, *(f"{prefix}/{target.model}" for prefix in prefixes))
    return next((name for name in names if _leads_to(reach, named[name])), None)


def _leads_to(reach: Reach, candidates: tuple[Reach, ...]) -> bool:
    return len(candidates) == 1 and candidates[0] is reach


def _targets(name: str, reach: Reach) -> tuple[Target, ...]:
    """Return the targets that a name means at a deployment: all of them, unless it is a model's."""
    routes = reach.deployment.routes
    return routes.serving(name).active


def _owner(targets: tuple[Target, ...]) -> str:
    owners = {target.upstream.provider or target.upstream.name for target in targets}
    return owners.pop() if len(owners) == 1 else OURS


def _day_in(model: str) -> date | None:
    """Return the day that stands in a model's name, as in ``gpt-4o-mini-2024-07-18``."""
    match = _DAY.search(model)
    try:
        return None if match is None else date(*map(int, match.groups()))
    except ValueError:
        return None
