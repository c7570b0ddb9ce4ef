"""Which limits and guards count for a call: the deployment's, and what rules add and take away.

A call may ask several models, and one model at several targets, each of which rules may see
differently. What any of them adds counts; a part falls away only where all are let off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from proxy.policy.decide.rules import Effects
from proxy.types import ScopedLimit
from proxy.types.guard import CostCap, Guarding, GuardRule

Part = TypeVar("Part")


def bounds_of(
    bounds: tuple[ScopedLimit, ...], whole: Effects, rulings: Sequence[Effects]
) -> tuple[ScopedLimit, ...]:
    """Return the limits that count for a call: the deployment's and those that rules bring.
    ``whole`` is the union of the rulings."""
    if not (whole.bounds or whole.without):
        return bounds
    parts = [(ruling.bounds, ruling.without) for ruling in rulings]
    return _left(bounds, whole.bounds, parts, lambda bound: bound.limit.name)


def guards_of(guards: Guarding, whole: Effects, rulings: Sequence[Effects]) -> Guarding:
    """Return the guards that look at a call: the deployment's and those that rules bring.
    ``whole`` is the union of the rulings."""
    if not (whole.unguarded or any(whole.guards)):
        return guards
    inputs = [(ruling.guards.input, ruling.unguarded) for ruling in rulings]
    outputs = [(ruling.guards.output, ruling.unguarded) for ruling in rulings]
    ceilings = [(ruling.guards.ceilings, ruling.unguarded) for ruling in rulings]
    more = whole.guards
    return replace(
        guards,
        input=_left(guards.input, more.input, inputs, _name),
        output=_left(guards.output, more.output, outputs, _name),
        ceilings=_left(guards.ceilings, more.ceilings, ceilings, _name),
    )


def _left(
    own: tuple[Part, ...],
    more: tuple[Part, ...],
    rulings: Sequence[tuple[Sequence[Part], frozenset[str]]],
    name: Callable[[Part], str],
) -> tuple[Part, ...]:
    """Return the parts in force, each once: the deployment's ``own``, then what rules add.

    ``rulings`` hold the parts that rules add, and the names that they take away. A part is left
    out only where each of them that has it takes it away.
    """
    parts = dict.fromkeys((*own, *more))
    if len(rulings) == 1:  # nearly every call: all parts are those of its only model
        off = rulings[0][1]
        return tuple([part for part in parts if name(part) not in off])
    return tuple(
        part
        for part in parts
        if any(name(part) not in off and (part in own or part in added) for added, off in rulings)
    )


def _name(part: GuardRule | CostCap) -> str:
    return part.name
