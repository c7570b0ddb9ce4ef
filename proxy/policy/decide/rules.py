"""Rules, compiled: which of them hold for a call, and what they make of it together.

The rules of a policy come before those of the policies it extends. Under ``match: first`` the rules
of a policy end with the first that holds; under ``match: all`` every one that holds counts. Where
two say different things the earlier one wins: its targets, its fallback, its model, its value of a
parameter, its refusal. A fallback of a rule after the one that picks the targets does not count. Of
several caps the lowest counts. A rule in shadow is noted when it holds,
and changes nothing, nor does it end anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from proxy.dialects.bounds import BOUNDS
from proxy.frozen import frozen
from proxy.policy.decide.conditions import (
    ALWAYS,
    Between,
    Condition,
    Facts,
    KnownFacts,
    OfHeader,
    OfModel,
    Test,
    reads,
)
from proxy.policy.decide.routes import Routes
from proxy.policy.files.source import Path_
from proxy.types import UNCHANGED, CacheRule, Changes, Refusal, ScopedLimit, Target
from proxy.types.guard import CostCap, GuardRule
from proxy.types.target import titles

EFFECTS_KEPT = 256


class RuleGuards(NamedTuple):
    """The guards that one part of the policies brings, in and out, and those of what calls cost."""

    input: tuple[GuardRule, ...] = ()
    output: tuple[GuardRule, ...] = ()
    ceilings: tuple[CostCap, ...] = ()


@frozen
class CacheDecision:
    """What is said of the cache: by which rule answers are kept, or that none are."""

    by: CacheRule | None


@frozen
class Rule:
    """One rule. ``name`` is ``policy/rule``, ``path`` where it is written; what it does not touch
    is None."""

    name: str
    when: Condition
    shadow: bool = False
    routes: Routes | None = None
    fallback: tuple[Target, ...] | None = None
    model: str | None = None
    changes: Changes = UNCHANGED
    refusal: Refusal | None = None
    bounds: tuple[ScopedLimit, ...] = ()
    without: frozenset[str] = frozenset()
    cache: CacheDecision | None = None
    guards: RuleGuards = RuleGuards()  # it is frozen
    unguarded: frozenset[str] = frozenset()
    path: Path_ = ()

    @property
    def targets(self) -> tuple[Target, ...]:
        """Those that it picks, as they are written, without their fallback."""
        return self.routes.targets if self.routes else ()

    def effects(self) -> Iterator[tuple[str, str]]:
        """Yield what it does: the effect, as ``origins`` names it, and that in words."""
        if self.refusal is not None:
            yield "refusal", f"reject with {self.refusal.status}: {self.refusal.message}"
        if self.routes is not None:
            yield "targets", f"targets {titles(self.routes.candidates.targets)}"
        if self.fallback is not None:
            yield "fallback", f"fallback {titles(self.fallback) or 'none'}"
        if self.model is not None:
            yield "model", f"model {self.model}"
        if self.cache is not None:
            yield "cache", "cache" if self.cache.by else "cache off"
        for kind, values in (("set", self.changes.set), ("cap", self.changes.cap)):
            yield from ((f"{kind} {name}", f"{kind} {name} {v}") for name, v in values.items())
        lists = (
            ("limit", [bound.limit.name for bound in self.bounds]),
            ("no limit", sorted(self.without)),
            ("guard", [guard.name for each in self.guards for guard in each]),
            ("no guard", sorted(self.unguarded)),
        )
        for kind, names in lists:
            words = kind.replace("no ", "without ")
            yield from ((f"{kind} {name}", f"{words} {name}") for name in names)


@frozen
class PolicyRules:
    """The rules of one policy. ``first`` means that only the first that holds counts."""

    policy: str
    rules: tuple[Rule, ...]
    first: bool = False


class Effects(NamedTuple):
    """What the rules that hold make of one model of a call. ``by`` names for each of their effects
    the rule whose word counts, as ``origins`` names them."""

    rules: tuple[str, ...] = ()
    shadow_rules: tuple[str, ...] = ()
    routes: Routes | None = None
    fallback: tuple[Target, ...] | None = None
    model: str | None = None
    changes: Changes = UNCHANGED
    refusal: Refusal | None = None
    bounds: tuple[ScopedLimit, ...] = ()
    without: frozenset[str] = frozenset()
    cache: CacheDecision | None = None
    guards: RuleGuards = RuleGuards()
    unguarded: frozenset[str] = frozenset()
    by: Mapping[str, str] = MappingProxyType({})


NO_EFFECTS = Effects()


class RuleGroup(NamedTuple):
    """What is left of a section for one key and deployment: the rules that may hold, each behind
    its test."""

    first: bool
    tests: tuple[tuple[Test, Rule], ...]


class RuleChain(NamedTuple):
    """The rules of one key and deployment, in groups, and by name in the same order.

    ``join`` makes the effects from the names of the rules that hold, and of those in shadow that
    would; it remembers the last ones, as they repeat. ``by_model`` is true if a rule depends on the
    model that is asked, ``steady`` if none depends on a header, a moment or a draw.
    """

    groups: tuple[RuleGroup, ...]
    join: Callable[[tuple[str, ...], tuple[str, ...]], Effects]
    rules: Mapping[str, Rule]
    by_model: bool
    steady: bool

    def union(self, effects_list: Sequence[Effects]) -> Effects:
        """Return what the rules say that hold for any model of a call, in the order in which the
        rules are written: the order in which the client names its models does not count."""
        if len(effects_list) == 1:
            return effects_list[0]
        held = {name for effects in effects_list for name in effects.rules}
        shadowed = {name for effects in effects_list for name in effects.shadow_rules}
        return self.join(self.in_order(held), self.in_order(shadowed))

    def in_order(self, names: Collection[str]) -> tuple[str, ...]:
        """Return some rules in the order in which they are written."""
        return tuple([name for name in self.rules if name in names]) if names else ()


def unlike(effects_list: Iterable[Effects]) -> tuple[Effects, ...]:
    """Return each once. Equal effects of one chain are one object."""
    return tuple({id(effects): effects for effects in effects_list}.values())


def compile_chain(sections: Sequence[PolicyRules], known: KnownFacts) -> RuleChain | None:
    """Return the rules that may hold for the calls of which something is known, without those
    that can be decided now, once for all calls; None where no rule is left."""
    groups = []
    for section in sections:
        tests = []
        for rule in section.rules:
            fixed = rule.when.fixed(known)
            if fixed is not False:
                tests.append((ALWAYS.test() if fixed else rule.when.test(), rule))
            if fixed and section.first and not rule.shadow:
                break
        if tests:
            groups.append(RuleGroup(section.first, tuple(tests)))
    rules = {rule.name: rule for group in groups for _, rule in group.tests}
    join = lru_cache(EFFECTS_KEPT)(partial(joined, rules))
    if not groups:
        return None
    by_model = any(reads(rule.when, OfModel) for rule in rules.values())
    varies = any(_varies(rule) for rule in rules.values())
    return RuleChain(
        groups=tuple(groups), join=join, rules=rules, by_model=by_model, steady=not varies
    )


def _varies(rule: Rule) -> bool:
    """True if calls that come the same way may differ in whether a rule holds, or where to."""
    drawn = rule.routes is not None and rule.routes.drawn
    return drawn or reads(rule.when, OfHeader, Between)


def evaluate(chain: RuleChain, facts: Facts) -> Effects:
    """Return what the rules say that hold for some facts."""
    held: list[str] = []
    shadow_rules: list[str] = []
    for first, tests in chain.groups:
        for holds, rule in tests:
            if holds(facts):
                if rule.shadow:
                    shadow_rules.append(rule.name)
                else:
                    held.append(rule.name)
                    if first:
                        break
    return chain.join(tuple(held), tuple(shadow_rules))


def joined(
    rules: Mapping[str, Rule], names: tuple[str, ...], shadow_rules: tuple[str, ...]
) -> Effects:
    """Join what rules that hold say: of each thing the earliest word, of caps the lowest."""
    effects = Effects(names, shadow_rules, by=origins([rules[name] for name in names]))
    for rule in map(rules.__getitem__, names):
        effects = Effects(
            rules=names,
            shadow_rules=shadow_rules,
            routes=rule.routes if effects.routes is None else effects.routes,
            fallback=_fallback(effects, rule),
            model=rule.model if effects.model is None else effects.model,
            changes=_merged(effects.changes, rule.changes),
            refusal=rule.refusal if effects.refusal is None else effects.refusal,
            bounds=effects.bounds + rule.bounds,
            without=effects.without | rule.without,
            cache=rule.cache if effects.cache is None else effects.cache,
            guards=RuleGuards(
                effects.guards.input + rule.guards.input,
                effects.guards.output + rule.guards.output,
                effects.guards.ceilings + rule.guards.ceilings,
            ),
            unguarded=effects.unguarded | rule.unguarded,
            by=effects.by,
        )
    return effects


def _fallback(earlier: Effects, rule: Rule) -> tuple[Target, ...] | None:
    """Return the fallback so far and with one more rule. Where an earlier rule has picked the
    targets, that rule alone says what follows them: a call that it keeps somewhere stays there."""
    kept = earlier.fallback is not None or earlier.routes is not None
    return earlier.fallback if kept else rule.fallback


def origins(rules: Sequence[Rule]) -> Mapping[str, str]:
    """Return which of some rules, in their order, is behind each effect of theirs together.

    The effects are ``targets``, ``fallback``, ``model``, ``refusal``, ``cache``, and with a name
    ``set``, ``cap``, ``limit``, ``no limit``, ``guard`` and ``no guard``, as in ``set seed``.
    """
    by: dict[str, str] = {}
    caps: dict[str, float] = {}
    for rule in rules:
        for effect, _ in rule.effects():
            if effect != "fallback" or by.get("targets", rule.name) == rule.name:
                by.setdefault(effect, rule.name)
        for name, most in rule.changes.cap.items():
            if most < caps.get(name, most):
                by[f"cap {name}"] = rule.name
            caps[name] = min(most, caps.get(name, most))
    return by


def _merged(first: Changes, later: Changes) -> Changes:
    if not first or not later:
        return first or later
    caps = dict(first.cap)
    for name, most in later.cap.items():
        caps[name] = min(most, caps.get(name, most))
    return Changes({**_beside(first.set, later.set), **first.set}, caps)


def _beside(first: Mapping[str, Any], later: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a later rule sets without any other name of a bound that an earlier one sets."""
    if first.keys().isdisjoint(BOUNDS):
        return later
    return {name: value for name, value in later.items() if name not in BOUNDS}
