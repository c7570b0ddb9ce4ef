"""Compiled rules, and their combined effects on a call.

The rules of a policy precede the rules of the policies it extends. Under ``match: first`` the first
matching rule of a policy applies, under ``match: all`` every matching rule. If two rules set the
same thing, the earlier one wins; of several caps the lowest wins. A rule that chooses the targets
also decides about the fallback. A rule in shadow mode is recorded and has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial, reduce
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from proxy.fields.token_bounds import OUTPUT_LIMIT_FIELDS
from proxy.policy.decide.conditions import (
    ALWAYS,
    Condition,
    Facts,
    Matcher,
    StaticFacts,
    iter_used_facts,
)
from proxy.policy.decide.routes import Routes
from proxy.policy.files.source import KeyPath
from proxy.runtime.frozen import frozen
from proxy.types import (
    NO_OVERRIDES,
    CacheRule,
    ParameterOverrides,
    RuleRefusal,
    ScopedLimit,
    Target,
)
from proxy.types.guard import NO_GUARDS, CostCap, GuardPlan, GuardRule
from proxy.types.target import join_target_ids

MAX_EFFECTS = 256
"""Number of combinations of rules whose effects are cached."""
Part = TypeVar("Part")
Named = TypeVar("Named", bound=ScopedLimit | GuardRule | CostCap)


CacheDecision = CacheRule | Literal["off"]


@frozen
class Rule:
    """A rule. ``name`` is ``policy/rule``. None means that the rule leaves a value unchanged."""

    name: str
    when: Condition
    shadow: bool = False
    routes: Routes | None = None
    fallback: tuple[Target, ...] | None = None
    model: str | None = None
    changes: ParameterOverrides = NO_OVERRIDES
    refusal: RuleRefusal | None = None
    limits: tuple[ScopedLimit, ...] = ()
    without_limits: frozenset[str] = frozenset()
    cache: CacheDecision | None = None
    guards: GuardPlan = NO_GUARDS
    without_guards: frozenset[str] = frozenset()
    path: KeyPath = ()

    @property
    def route_targets(self) -> tuple[Target, ...]:
        """Targets that the rule chooses, without the fallback."""
        return self.routes.targets if self.routes else ()

    def iter_effects(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each effect, as in ``map_effects_to_rules``, and its text."""
        if self.refusal is not None:
            yield "refusal", f"reject with {self.refusal.status}: {self.refusal.message}"
        if self.routes is not None:
            yield "targets", f"targets {join_target_ids(self.routes.candidates.targets)}"
        if self.fallback is not None:
            yield "fallback", f"fallback {join_target_ids(self.fallback) or 'none'}"
        if self.model is not None:
            yield "model", f"model {self.model}"
        if self.cache is not None:
            yield "cache", "cache off" if self.cache == "off" else "cache"
        for kind, values in (("set", self.changes.set), ("cap", self.changes.cap)):
            yield from ((f"{kind} {name}", f"{kind} {name} {v}") for name, v in values.items())
        lists = (
            ("limit", [scoped.name for scoped in self.limits]),
            ("no limit", sorted(self.without_limits)),
            ("guard", [guard.name for _, guard in self.guards.by_stage]),
            ("no guard", sorted(self.without_guards)),
        )
        for kind, names in lists:
            text = kind.replace("no ", "without ")
            yield from ((f"{kind} {name}", f"{text} {name}") for name in names)


@frozen
class PolicyRules:
    """The rules of one policy. With ``first_only`` only the first matching rule applies."""

    policy: str
    rules: tuple[Rule, ...]
    first_only: bool = False


class RuleEffects(NamedTuple):
    """The combined effects of rules on one model of a call."""

    rules: tuple[str, ...] = ()
    shadow_rules: tuple[str, ...] = ()
    routes: Routes | None = None
    fallback: tuple[Target, ...] | None = None
    model: str | None = None
    changes: ParameterOverrides = NO_OVERRIDES
    refusal: RuleRefusal | None = None
    limits: tuple[ScopedLimit, ...] = ()
    without_limits: frozenset[str] = frozenset()
    cache: CacheDecision | None = None
    guards: GuardPlan = NO_GUARDS
    without_guards: frozenset[str] = frozenset()
    rule_by_effect: Mapping[str, str] = MappingProxyType({})


NO_EFFECTS = RuleEffects()


class RuleGroup(NamedTuple):
    """The rules of a policy that may match calls of a key to a deployment, with their matchers."""

    first_only: bool
    rules: tuple[tuple[Matcher, Rule], ...]


class RuleChain(NamedTuple):
    """The rules of a key and a deployment, in order of precedence.

    ``depends_on_model`` is True if a rule depends on the requested model. ``is_plan_cacheable`` is
    True if no rule depends on a header, the time or a random draw.
    """

    groups: tuple[RuleGroup, ...]
    combine: Callable[[tuple[str, ...], tuple[str, ...]], RuleEffects]
    """Returns the effects of rules and of rules in shadow mode, by their names. Cached."""
    rules: Mapping[str, Rule]
    depends_on_model: bool
    is_plan_cacheable: bool

    def combine_all(self, effects_list: Sequence[RuleEffects]) -> RuleEffects:
        """Return the effects of the rules that match any model of a call.

        The order in which the client names its models does not matter.
        """
        if len(effects_list) == 1:
            return effects_list[0]
        rules = {name for effects in effects_list for name in effects.rules}
        shadow_rules = {name for effects in effects_list for name in effects.shadow_rules}
        return self.combine(self.sort_rule_names(rules), self.sort_rule_names(shadow_rules))

    def sort_rule_names(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the names of rules in their order of precedence."""
        return tuple([name for name in self.rules if name in names]) if names else ()


def list_unique(effects_list: Iterable[RuleEffects]) -> tuple[RuleEffects, ...]:
    """Drop repeated effects. Equal effects of one chain are the same object."""
    return tuple({id(effects): effects for effects in effects_list}.values())


def compile_chain(sections: Sequence[PolicyRules], static: StaticFacts) -> RuleChain | None:
    """Return the rules that may match a key's calls to a deployment, or None if there are none."""
    groups = []
    for section in sections:
        matchers = []
        for rule in section.rules:
            result = rule.when.evaluate_statically(static)
            if result is not False:
                matchers.append(
                    (ALWAYS.build_matcher() if result else rule.when.build_matcher(), rule)
                )
            if result and section.first_only and not rule.shadow:
                break
        if matchers:
            groups.append(RuleGroup(section.first_only, tuple(matchers)))
    if not groups:
        return None
    rules = {rule.name: rule for group in groups for _, rule in group.rules}
    facts = {fact for rule in rules.values() for fact in iter_used_facts(rule.when)}
    has_random_draw = any(
        rule.routes is not None and rule.routes.has_random_draw for rule in rules.values()
    )
    return RuleChain(
        groups=tuple(groups),
        combine=lru_cache(MAX_EFFECTS)(partial(combine_effects, rules)),
        rules=rules,
        depends_on_model="model" in facts,
        is_plan_cacheable=not has_random_draw and facts.isdisjoint({"header", "time"}),
    )


def evaluate_rules(chain: RuleChain, facts: Facts) -> RuleEffects:
    """Return the effects of the rules that match."""
    rules: list[str] = []
    shadow_rules: list[str] = []
    for first_only, matchers in chain.groups:
        for matches, rule in matchers:
            if matches(facts):
                (shadow_rules if rule.shadow else rules).append(rule.name)
                if first_only and not rule.shadow:
                    break
    return chain.combine(tuple(rules), tuple(shadow_rules))


def combine_effects(
    rules: Mapping[str, Rule], names: tuple[str, ...], shadow_rules: tuple[str, ...]
) -> RuleEffects:
    """Return the combined effects of rules, given in order of precedence."""
    matching = [rules[name] for name in names]
    # The first rule that chooses the targets or the fallback decides about the fallback.
    fallback = (r.fallback for r in matching if r.routes is not None or r.fallback is not None)
    return RuleEffects(
        rules=names,
        shadow_rules=shadow_rules,
        routes=_find_first_not_none(rule.routes for rule in matching),
        fallback=next(fallback, None),
        model=_find_first_not_none(rule.model for rule in matching),
        changes=reduce(_merge_changes, (rule.changes for rule in matching), NO_OVERRIDES),
        refusal=_find_first_not_none(rule.refusal for rule in matching),
        limits=tuple(scoped for rule in matching for scoped in rule.limits),
        without_limits=frozenset(name for rule in matching for name in rule.without_limits),
        cache=_find_first_not_none(rule.cache for rule in matching),
        guards=join_guards([rule.guards for rule in matching]),
        without_guards=frozenset(name for rule in matching for name in rule.without_guards),
        rule_by_effect=map_effects_to_rules(matching),
    )


def join_guards(plans: Sequence[GuardPlan]) -> GuardPlan:
    """Return the guards of several plans, in order. The first capture applies."""
    return GuardPlan(
        input=tuple(rule for plan in plans for rule in plan.input),
        output=tuple(rule for plan in plans for rule in plan.output),
        allows_opaque=any(plan.allows_opaque for plan in plans),
        cost_caps=tuple(cap for plan in plans for cap in plan.cost_caps),
        capture=_find_first_not_none(plan.capture for plan in plans),
    )


def _find_first_not_none(values: Iterable[Part | None]) -> Part | None:
    return next((value for value in values if value is not None), None)


def map_effects_to_rules(rules: Sequence[Rule]) -> Mapping[str, str]:
    """Return the rule behind each combined effect.

    The effects are ``targets``, ``fallback``, ``model``, ``refusal``, ``cache``, and with a name
    ``set``, ``cap``, ``limit``, ``no limit``, ``guard`` and ``no guard``, as in ``set seed``.
    """
    by_effect: dict[str, str] = {}
    caps: dict[str, float] = {}
    for rule in rules:
        for effect, _ in rule.iter_effects():
            if effect != "fallback" or by_effect.get("targets", rule.name) == rule.name:
                by_effect.setdefault(effect, rule.name)
        for name, cap in rule.changes.cap.items():
            if cap < caps.get(name, cap):
                by_effect[f"cap {name}"] = rule.name
            caps[name] = min(cap, caps.get(name, cap))
    return by_effect


def _merge_changes(first: ParameterOverrides, later: ParameterOverrides) -> ParameterOverrides:
    """Return the changes of two rules. A value that ``first`` sets wins, by any of its names."""
    if not first or not later:
        return first or later
    caps = dict(first.cap)
    for name, cap in later.cap.items():
        caps[name] = min(cap, caps.get(name, cap))
    values = later.set
    if not first.set.keys().isdisjoint(OUTPUT_LIMIT_FIELDS):
        values = {name: value for name, value in values.items() if name not in OUTPUT_LIMIT_FIELDS}
    return ParameterOverrides({**values, **first.set}, caps)


def combine_limits(
    limits: tuple[ScopedLimit, ...], union: RuleEffects, effects_list: Sequence[RuleEffects]
) -> tuple[ScopedLimit, ...]:
    """Return the limits of a call, from the ``limits`` of its deployment and from its rules.

    ``union`` is the union of ``effects_list``, which has the effects for each model and target.
    """
    if not (union.limits or union.without_limits):
        return limits
    changes = [(effects.limits, effects.without_limits) for effects in effects_list]
    return _apply_additions_and_removals(limits, union.limits, changes)


def combine_guards(
    guards: GuardPlan, union: RuleEffects, effects_list: Sequence[RuleEffects]
) -> GuardPlan:
    """Return the guards of a call, from the ``guards`` of its deployment and from its rules."""
    if not (union.without_guards or union.guards.by_stage):
        return guards
    parts: dict[str, Any] = {}
    for name in ("input", "output", "cost_caps"):
        changes = [(getattr(e.guards, name), e.without_guards) for e in effects_list]
        added = getattr(union.guards, name)
        parts[name] = _apply_additions_and_removals(getattr(guards, name), added, changes)
    return replace(guards, **parts)


def _apply_additions_and_removals(
    parts: tuple[Named, ...],
    additions: tuple[Named, ...],
    changes: Sequence[tuple[Sequence[Named], frozenset[str]]],
) -> tuple[Named, ...]:
    """Return ``parts`` of the deployment and the ``additions`` of rules, each once.

    ``changes`` are the parts that rules add for each model and target, and the names of those that
    they remove. A part is removed only if it is removed for each model and target that has it.
    """
    return tuple(
        [
            part
            for part in dict.fromkeys((*parts, *additions))
            if any(
                part.name not in removed and (part in parts or part in added)
                for added, removed in changes
            )
        ]
    )
