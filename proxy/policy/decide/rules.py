"""Compiled rules, and their joint effects on a call.

The rules of a policy come before those of the policies it extends. Under ``match: first`` the first
matching rule of a policy applies, under ``match: all`` every matching rule. If two rules set the
same thing, the earlier one wins; of several caps the lowest wins. A rule that chooses the targets
also decides about the fallback. A rule in shadow mode is recorded and has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from proxy.dialects.bounds import BOUNDS
from proxy.policy.decide.conditions import ALWAYS, Condition, Facts, KnownFacts, Test, facts_read
from proxy.policy.decide.routes import Routes
from proxy.policy.files.source import KeyPath
from proxy.runtime.frozen import frozen
from proxy.types import UNCHANGED, CacheRule, ParameterOverrides, RuleRefusal, ScopedLimit, Target
from proxy.types.guard import CostCap, GuardPlan, GuardRule
from proxy.types.target import titles

MAX_EFFECTS = 256
"""Number of combinations of rules whose effects are cached."""
Part = TypeVar("Part")


class RuleGuards(NamedTuple):
    """The guards of a policy or a rule."""

    input: tuple[GuardRule, ...] = ()
    output: tuple[GuardRule, ...] = ()
    cost_caps: tuple[CostCap, ...] = ()


@frozen
class CacheDecision:
    """A decision about the cache: its rule, or None to turn it off."""

    by: CacheRule | None


@frozen
class Rule:
    """A rule. ``name`` is ``policy/rule``. None means that the rule leaves something unchanged;
    ``without`` and ``unguarded`` are the names of limits and guards that it removes."""

    name: str
    when: Condition
    shadow: bool = False
    routes: Routes | None = None
    fallback: tuple[Target, ...] | None = None
    model: str | None = None
    changes: ParameterOverrides = UNCHANGED
    refusal: RuleRefusal | None = None
    bounds: tuple[ScopedLimit, ...] = ()
    without: frozenset[str] = frozenset()
    cache: CacheDecision | None = None
    guards: RuleGuards = RuleGuards()  # it is frozen
    unguarded: frozenset[str] = frozenset()
    path: KeyPath = ()

    @property
    def targets(self) -> tuple[Target, ...]:
        """Targets that it chooses, without the fallback."""
        return self.routes.targets if self.routes else ()

    def effects(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each effect, as ``origins`` uses it, and its text."""
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
            ("limit", [scoped.limit.name for scoped in self.bounds]),
            ("no limit", sorted(self.without)),
            ("guard", [guard.name for guards in self.guards for guard in guards]),
            ("no guard", sorted(self.unguarded)),
        )
        for kind, names in lists:
            text = kind.replace("no ", "without ")
            yield from ((f"{kind} {name}", f"{text} {name}") for name in names)


@frozen
class PolicyRules:
    """The rules of one policy. With ``first`` only the first matching rule applies."""

    policy: str
    rules: tuple[Rule, ...]
    first: bool = False


class Effects(NamedTuple):
    """The joint effects of rules on one model of a call. ``by`` is the rule behind each effect,
    by the name that ``origins`` uses."""

    rules: tuple[str, ...] = ()
    shadow_rules: tuple[str, ...] = ()
    routes: Routes | None = None
    fallback: tuple[Target, ...] | None = None
    model: str | None = None
    changes: ParameterOverrides = UNCHANGED
    refusal: RuleRefusal | None = None
    bounds: tuple[ScopedLimit, ...] = ()
    without: frozenset[str] = frozenset()
    cache: CacheDecision | None = None
    guards: RuleGuards = RuleGuards()
    unguarded: frozenset[str] = frozenset()
    by: Mapping[str, str] = MappingProxyType({})


NO_EFFECTS = Effects()


class RuleGroup(NamedTuple):
    """The rules of a policy that may match calls of a key to a deployment, with their tests."""

    first: bool
    tests: tuple[tuple[Test, Rule], ...]


class RuleChain(NamedTuple):
    """The rules of a key and a deployment, in order of precedence.

    ``join`` returns the effects of rules and rules in shadow mode by their names, and caches them.
    ``by_model`` is True if a rule depends on the requested model. ``steady`` is True if no rule
    depends on a header, the time or a random draw.
    """

    groups: tuple[RuleGroup, ...]
    join: Callable[[tuple[str, ...], tuple[str, ...]], Effects]
    rules: Mapping[str, Rule]
    by_model: bool
    steady: bool

    def union(self, effects_list: Sequence[Effects]) -> Effects:
        """Return the effects of the rules that match any model of a call.

        The order in which the client names its models does not matter.
        """
        if len(effects_list) == 1:
            return effects_list[0]
        rules = {name for effects in effects_list for name in effects.rules}
        shadow_rules = {name for effects in effects_list for name in effects.shadow_rules}
        return self.join(self.in_order(rules), self.in_order(shadow_rules))

    def in_order(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the names of rules in their order of precedence."""
        return tuple([name for name in self.rules if name in names]) if names else ()


def unlike(effects_list: Iterable[Effects]) -> tuple[Effects, ...]:
    """Return different effects. Equal effects of one chain are the same object."""
    return tuple({id(effects): effects for effects in effects_list}.values())


def compile_chain(sections: Sequence[PolicyRules], known: KnownFacts) -> RuleChain | None:
    """Return the rules that may match calls with the known facts, or None if there are none."""
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
    if not groups:
        return None
    rules = {rule.name: rule for group in groups for _, rule in group.tests}
    facts = {fact for rule in rules.values() for fact in facts_read(rule.when)}
    is_drawn = any(rule.routes is not None and rule.routes.drawn for rule in rules.values())
    return RuleChain(
        groups=tuple(groups),
        join=lru_cache(MAX_EFFECTS)(partial(joined, rules)),
        rules=rules,
        by_model="model" in facts,
        steady=not is_drawn and facts.isdisjoint({"header", "time"}),
    )


def evaluate(chain: RuleChain, facts: Facts) -> Effects:
    """Return the effects of the rules that match."""
    rules: list[str] = []
    shadow_rules: list[str] = []
    for first, tests in chain.groups:
        for matches, rule in tests:
            if matches(facts):
                if rule.shadow:
                    shadow_rules.append(rule.name)
                else:
                    rules.append(rule.name)
                    if first:
                        break
    return chain.join(tuple(rules), tuple(shadow_rules))


def joined(
    rules: Mapping[str, Rule], names: tuple[str, ...], shadow_rules: tuple[str, ...]
) -> Effects:
    """Return the joint effects of rules, given in order of precedence."""
    effects = Effects(names, shadow_rules, by=origins([rules[name] for name in names]))
    for rule in map(rules.__getitem__, names):
        # The rule that chooses the targets also decides about their fallback.
        has_fallback = effects.fallback is not None or effects.routes is not None
        effects = effects._replace(
            routes=rule.routes if effects.routes is None else effects.routes,
            fallback=effects.fallback if has_fallback else rule.fallback,
            model=rule.model if effects.model is None else effects.model,
            changes=_merged(effects.changes, rule.changes),
            refusal=rule.refusal if effects.refusal is None else effects.refusal,
            bounds=effects.bounds + rule.bounds,
            without=effects.without | rule.without,
            cache=rule.cache if effects.cache is None else effects.cache,
            guards=RuleGuards(
                effects.guards.input + rule.guards.input,
                effects.guards.output + rule.guards.output,
                effects.guards.cost_caps + rule.guards.cost_caps,
            ),
            unguarded=effects.unguarded | rule.unguarded,
        )
    return effects


def origins(rules: Sequence[Rule]) -> Mapping[str, str]:
    """Return the rule behind each joint effect.

    The effects are ``targets``, ``fallback``, ``model``, ``refusal``, ``cache``, and with a name
    ``set``, ``cap``, ``limit``, ``no limit``, ``guard`` and ``no guard``, as in ``set seed``.
    """
    by: dict[str, str] = {}
    caps: dict[str, float] = {}
    for rule in rules:
        for effect, _ in rule.effects():
            if effect != "fallback" or by.get("targets", rule.name) == rule.name:
                by.setdefault(effect, rule.name)
        for name, cap in rule.changes.cap.items():
            if cap < caps.get(name, cap):
                by[f"cap {name}"] = rule.name
            caps[name] = min(cap, caps.get(name, cap))
    return by


def _merged(first: ParameterOverrides, later: ParameterOverrides) -> ParameterOverrides:
    """Return the changes of two rules. A value that ``first`` sets wins, by any of its names."""
    if not first or not later:
        return first or later
    caps = dict(first.cap)
    for name, cap in later.cap.items():
        caps[name] = min(cap, caps.get(name, cap))
    values = later.set
    if not first.set.keys().isdisjoint(BOUNDS):
        values = {name: value for name, value in values.items() if name not in BOUNDS}
    return ParameterOverrides({**values, **first.set}, caps)


def limits_of(
    limits: tuple[ScopedLimit, ...], whole: Effects, effects_list: Sequence[Effects]
) -> tuple[ScopedLimit, ...]:
    """Return the limits of a call: those of its deployment and of its rules.

    ``whole`` is the union of ``effects_list``, which has the effects for each model and target.
    """
    if not (whole.bounds or whole.without):
        return limits
    by_model = [(effects.bounds, effects.without) for effects in effects_list]
    return _remaining(limits, whole.bounds, by_model, lambda scoped: scoped.limit.name)


def guards_of(guards: GuardPlan, whole: Effects, effects_list: Sequence[Effects]) -> GuardPlan:
    """Return the guards of a call: those of its deployment and of its rules.

    ``whole`` is the union of ``effects_list``, which has the effects for each model and target.
    """
    if not (whole.unguarded or any(whole.guards)):
        return guards
    inputs = [(effects.guards.input, effects.unguarded) for effects in effects_list]
    outputs = [(effects.guards.output, effects.unguarded) for effects in effects_list]
    cost_caps = [(effects.guards.cost_caps, effects.unguarded) for effects in effects_list]
    added = whole.guards
    return replace(
        guards,
        input=_remaining(guards.input, added.input, inputs, _guard_name),
        output=_remaining(guards.output, added.output, outputs, _guard_name),
        cost_caps=_remaining(guards.cost_caps, added.cost_caps, cost_caps, _guard_name),
    )


def _guard_name(guard: GuardRule | CostCap) -> str:
    return guard.name


def _remaining(
    own: tuple[Part, ...],
    added: tuple[Part, ...],
    by_model: Sequence[tuple[Sequence[Part], frozenset[str]]],
    name: Callable[[Part], str],
) -> tuple[Part, ...]:
    """Return the parts of the deployment and those that rules add, each once.

    ``by_model`` are the parts that rules add for each model, and the names of those that they
    remove. A part is removed only if it is removed for each model that has it.
    """
    parts = dict.fromkeys((*own, *added))
    if len(by_model) == 1:  # nearly every call
        removed = by_model[0][1]
        return tuple([part for part in parts if name(part) not in removed])
    return tuple(
        part
        for part in parts
        if any(
            name(part) not in removed and (part in own or part in additions)
            for additions, removed in by_model
        )
    )
