"""The names that a key may use, and which of them stands for each model in a list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from types import MappingProxyType

from proxy.policy.decide.snapshot import Reach, VirtualKey
from proxy.types import Target
from proxy.types.target import ListedModel

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
    by_name = {name: (each,) for each in reached.values() for name in each.deployment.names}
    return {**{name: tuple(each) for name, each in named.items()}, **by_name}


def listed_models(
    reached: Mapping[str, Reach], named: Named, as_of: date
) -> Mapping[str, ListedModel]:
    """Return all names that a key may call: deployments, then models, each in alphabetical order.
    ``as_of`` is the date of a model whose name contains none."""
    main = {name for reach in reached.values() for name in _main_names(reach, named)}
    return MappingProxyType(
        {
            name: ListedModel(
                id=name,
                owner=_owner(targets),
                created=_day_in(targets[0].model) or as_of,
                is_main=name in main,
            )
            for name in sorted(named, key=lambda name: (name not in reached, name))
            if (targets := named[name][0].deployment.candidates(name).active)
        }
    )


def _main_names(reach: Reach, named: Named) -> Iterator[str]:
    """Yield the name of a deployment, and one name for each of its models that leads to that model
    alone."""
    yield reach.deployment.name
    for target in {each.model: each for each in reach.deployment.routes.candidates.active}.values():
        prefixes = filter(None, (target.upstream.provider, target.upstream.name))
        names = (target.model, *(f"{prefix}/{target.model}" for prefix in prefixes))
        yield from [name for name in names if _leads_to(target.model, name, reach, named)][:1]


def _leads_to(model: str, name: str, reach: Reach, named: Named) -> bool:
    candidates = reach.deployment.candidates(name).active
    return VirtualKey.default_of(named[name]) is reach and {each.model for each in candidates} == {
        model
    }


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
