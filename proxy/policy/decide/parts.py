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
    bounds: tuple[ScopedLimit, ...], whole: Effects, effects_list: Sequence[Effects]
) -> tuple[ScopedLimit, ...]:
    """Return the limits that count for a call: the deployment's and those that rules bring.
    ``whole`` is the union of ``effects_list``, one for each model."""
    if not (whole.bounds or whole.without):
        return bounds
    parts = [(effects.bounds, effects.without) for effects in effects_list]
    return _left(bounds, whole.bounds, parts, lambda bound: bound.limit.name)


def guards_of(guards: Guarding, whole: Effects, effects_list: Sequence[Effects]) -> Guarding:
    """Return the guards that look at a call: the deployment's and those that rules bring.
    ``whole`` is the union of ``effects_list``, one for each model."""
    if not (whole.unguarded or any(whole.guards)):
        return guards
    inputs = [(effects.guards.input, effects.unguarded) for effects in effects_list]
    outputs = [(effects.guards.output, effects.unguarded) for effects in effects_list]
    ceilings = [(effects.guards.ceilings, effects.unguarded) for effects in effects_list]
    added = whole.guards
    return replace(
        guards,
        input=_left(guards.input, added.input, inputs, _name),
        output=_left(guards.output, added.output, outputs, _name),
        ceilings=_left(guards.ceilings, added.ceilings, ceilings, _name),
    )


def _left(
    own: tuple[Part, ...],
    added: tuple[Part, ...],
    by_model: Sequence[tuple[Sequence[Part], frozenset[str]]],
    name: Callable[[Part], str],
) -> tuple[Part, ...]:
    """Return the parts in force, each once: the deployment's ``own``, then what rules add.

    ``by_model`` holds for each model the parts that rules add, and the names that they take away.
    A part is left out only if each model that has it takes it away.
    """
    parts = dict.fromkeys((*own, *added))
    if len(by_model) == 1:  # nearly every call: all parts are those of its only model
        off = by_model[0][1]
        return tuple([part for part in parts if name(part) not in off])
    return tuple(
        part
        for part in parts
        if any(
            name(part) not in off and (part in own or part in additions)
            for additions, off in by_model
        )
    )


def _name(part: GuardRule | CostCap) -> str:
    return part.name
