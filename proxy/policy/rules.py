"""Rules, compiled: which of them hold for a call, and what they make of it together.

The rules of a policy come before those of the policies it extends. Under ``match: first`` the rules
of a policy end with the first that holds; under ``match: all`` every one that holds counts. Where
two say different things the earlier one wins: its targets, its fallback, its model, its value of a
parameter, its refusal. Of several caps the lowest counts. A rule in shadow is noted when it holds,
and changes nothing, nor does it end anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.policy.conditions import Condition, Facts
from proxy.policy.routes import Routes
from proxy.types import UNCHANGED, Changes, Refusal, Target


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``name`` is ``policy/rule``; what it does not touch is None."""

    name: str
    when: Condition
    shadow: bool = False
    routes: Routes | None = None
    fallback: tuple[Target, ...] | None = None
    model: str | None = None
    changes: Changes = UNCHANGED
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """The rules of one policy. ``first`` means that only the first that holds counts."""

    policy: str
    rules: tuple[Rule, ...]
    first: bool = False


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules that hold make of one leg of a call."""

    rules: tuple[str, ...] = ()
    would: tuple[str, ...] = ()
    routes: Routes | None = None
    fallback: tuple[Target, ...] | None = None
    model: str | None = None
    changes: Changes = UNCHANGED
    refusal: Refusal | None = None


SILENT = Ruling()


def follow(sections: Sequence[Section], facts: Facts) -> Ruling:
    """Say what the rules make of a leg."""
    held: list[Rule] = []
    would: list[str] = []
    for section in sections:
        for rule in section.rules:
            if rule.when.holds(facts):
                if rule.shadow:
                    would.append(rule.name)
                else:
                    held.append(rule)
                    if section.first:
                        break
    if not held:
        return Ruling(would=tuple(would)) if would else SILENT
    routed = _first(rule for rule in held if rule.routes is not None)
    fallen = _first(rule for rule in held if rule.fallback is not None)
    return Ruling(
        rules=tuple(rule.name for rule in held),
        would=tuple(would),
        routes=routed.routes if routed else None,
        fallback=fallen.fallback if fallen else None,
        model=next((rule.model for rule in held if rule.model is not None), None),
        changes=_merged(held),
        refusal=next((rule.refusal for rule in held if rule.refusal is not None), None),
    )


def _first(rules: Any) -> Rule | None:
    found: Rule | None = next(rules, None)
    return found


def _merged(held: Sequence[Rule]) -> Changes:
    """Join what the rules change: the earliest value, the lowest cap."""
    changing = [rule.changes for rule in held if rule.changes]
    if len(changing) < 2:  # nothing to join
        return changing[0] if changing else UNCHANGED
    values: dict[str, Any] = {}
    caps: dict[str, float] = {}
    for changes in changing:
        for name, value in changes.set.items():
            values.setdefault(name, value)
        for name, most in changes.cap.items():
            caps[name] = min(most, caps.get(name, most))
    return Changes(values, caps)
