"""Names of fields that stand within others, as policies write them: ``tools[].server_url``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType

from proxy.frozen import frozen
from proxy.types.spelling import squeezed

ANYWHERE = "**."


@frozen
class NestedNames:
    """Names by the steps that lead to them. ``listed`` is the whole name that ends here, as it was
    written; ``within`` has the next steps by what they have in common with other spellings."""

    listed: str | None = None
    within: Mapping[str, NestedNames] = field(default_factory=lambda: MappingProxyType({}))


def nested_names(names: Iterable[str]) -> NestedNames:
    """Return the names that have more than one step. A list's items are written as ``[]``, and
    an item that stands without its list has the same name. ``**`` is a first step of any name."""
    return _tree([(_steps(name), name) for name in sorted(set(names)) if "." in name])


def _steps(name: str) -> tuple[str, ...]:
    return tuple(name.removeprefix(ANYWHERE).replace("[]", "").split("."))


def _tree(names: Iterable[tuple[tuple[str, ...], str]]) -> NestedNames:
    listed: str | None = None
    below: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for steps, name in names:
        if not steps:
            listed = name
            continue
        below.setdefault(squeezed(steps[0]), []).append((steps[1:], name))
    within = {step: _tree(inner) for step, inner in below.items()}
    return NestedNames(listed, MappingProxyType(within))
