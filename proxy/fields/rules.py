"""Rules for request fields. A rule names the end of a path and applies wherever a path ends so."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from proxy.fields.spelling import squeezed

ANYWHERE = "**."
ID_OR_OBJECT = "container.id"
"""Servers also take the id in place of this object."""
Verdict = Literal["drop", "accept", "refuse", "limit"]
"""Of rules of equal length the first of these decides. ``limit`` refuses costly values."""
VERDICTS: tuple[Verdict, ...] = ("drop", "accept", "refuse", "limit")


class FieldRule(NamedTuple):
    """Rule for the fields of one name.

    ``steps`` are the normalized names of its path, innermost first. An anchored rule applies at the
    top level of a request and in groups of options. With ``is_text`` only texts match.
    """

    name: str
    steps: tuple[str, ...]
    verdict: Verdict
    is_anchored: bool = False
    is_text: bool = False


FieldRules = Mapping[str, tuple[FieldRule, ...]]
"""Rules by their innermost step, in the order in which they decide."""


def field_rules(names: Mapping[Verdict, Collection[str]], anywhere: Collection[str]) -> FieldRules:
    """Return the rules for names such as ``stop`` or ``tools[].headers``. A name without a dot is
    anchored unless it is one of ``anywhere`` or begins with ``**.``."""
    rules_by_step: dict[str, list[FieldRule]] = {}
    for verdict in VERDICTS:
        for name in names.get(verdict, ()):
            is_anchored = "." not in name and name not in anywhere
            for rule in _rules(name.removeprefix(ANYWHERE), verdict, is_anchored=is_anchored):
                rules_by_step.setdefault(rule.steps[0], []).append(rule)
    for rules in rules_by_step.values():
        rules.sort(key=lambda rule: -len(rule.steps))  # stable: verdicts keep their order
    return MappingProxyType({step: tuple(rules) for step, rules in rules_by_step.items()})


def _rules(name: str, verdict: Verdict, *, is_anchored: bool) -> Iterator[FieldRule]:
    steps = tuple(map(squeezed, reversed(name.replace("[]", "").split("."))))
    rule = FieldRule(name=name, steps=steps, verdict=verdict, is_anchored=is_anchored)
    yield rule
    if f".{name}".endswith(f".{ID_OR_OBJECT}"):
        yield rule._replace(steps=steps[1:], is_text=True)
