"""Applies rules to one model of a call.

A target has many names: its own, that with its upstream or provider, those of the deployment, and
any name in a call that selects the deployment by a header. The effects of rules must not depend on
which name a client uses. So rules that read the model are evaluated for each target, by the
target's own names and by all names that the call may mean.

- ``targets``, ``fallback`` and ``model`` follow from the rules of the first target. A target that
  its own rules refuse is left out; a call is refused if none remains.
- Parameters are changed for each target by its own rules.
- Limits and the cache follow from the first targets, guards from all targets that text may reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from proxy.policy.decide.conditions import NAMELESS, Facts
from proxy.policy.decide.routes import Routes, draw
from proxy.policy.decide.rules import NO_EFFECTS, Effects, RuleChain, evaluate, guards_of, unlike
from proxy.policy.decide.snapshot import Deployment, KeyDeployment
from proxy.types import Call, ModelCall, Target

Names = frozenset[str]
Targets = tuple[Target, ...]
EffectsByTarget = Mapping[str, tuple[Effects, ...]]
CHANGES = ("set ", "cap ")
WHERE = ("targets", "fallback", "model", "refusal")
FIRST = ("cache", "limit ", "no limit ", *CHANGES)
EVERY = ("guard ", "no guard ")


class LeftOut(NamedTuple):
    """A target that a rule excludes."""

    target: Target
    rule: str


class RuledModelCall(NamedTuple):
    """A model call, and the effects that decide it: ``where`` it goes, those of the ``first``
    targets, and those of ``every`` target. The first ``chosen`` targets are no fallback."""

    model_call: ModelCall
    where: Effects
    first: tuple[Effects, ...]
    every: tuple[Effects, ...]
    chosen: int
    left_out: tuple[LeftOut, ...] = ()


def rule_model_call(reach: KeyDeployment, call: Call, facts: Facts, model: str) -> RuledModelCall:
    """Apply the rules of a deployment to one model. ``facts`` have no names."""
    if reach.chain is not None and reach.chain.by_model:
        return _ByTarget(reach, reach.chain, call, facts, model).ruled()
    effects = evaluate(reach.chain, facts) if reach.chain is not None else NO_EFFECTS
    deployment = reach.deployment
    routes = effects.routes or deployment.routes
    targets, pool = ordered(deployment, routes, effects.model or model, facts.key, call)
    model_call = ModelCall(
        model=model,
        targets=targets + _fallback(deployment, effects),
        pool_size=pool,
        overrides=effects.changes,
        rules=effects.rules,
        shadow_rules=effects.shadow_rules,
        rule_by_effect=effects.by,
    )
    return RuledModelCall(
        model_call=model_call,
        where=effects,
        first=(effects,),
        every=(effects,),
        chosen=len(targets),
    )


def ordered(
    deployment: Deployment, routes: Routes, model: str, key: str, call: Call
) -> tuple[Targets, int]:
    """Return the targets for a name in the order in which they are tried, and the number of equal
    targets at the start."""
    candidates = deployment.candidates(model, routes)
    if candidates.fixed is not None:
        return candidates.fixed, candidates.pool
    return candidates.order(draw(deployment.name, deployment.sticky, key, call)), candidates.pool


def effects_by(where: Effects, first: Effects, every: Effects) -> Mapping[str, str]:
    """Return the rule behind each effect, each from the effects that decide it."""
    if where is first and first is every:
        return where.by
    parts = ((every, CHANGES), (where, WHERE), (first, FIRST), (every, EVERY))
    return {
        effect: rule
        for effects, kinds in parts
        for effect, rule in effects.by.items()
        if effect.startswith(kinds)
    }


def _fallback(deployment: Deployment, effects: Effects) -> Targets:
    """Return the fallback. A rule that chooses the targets replaces that of the deployment."""
    if effects.fallback is not None:
        return effects.fallback
    return deployment.fallback if effects.routes is None else ()


def _flat(by_target: EffectsByTarget) -> tuple[Effects, ...]:
    return unlike(effects for effects_list in by_target.values() for effects in effects_list)


class _ByTarget:
    """Evaluates the rules of one model call for each target."""

    def __init__(
        self, reach: KeyDeployment, chain: RuleChain, call: Call, facts: Facts, model: str
    ) -> None:
        self._deployment = reach.deployment
        self._chain = chain
        self._call = call
        self._facts = facts
        self._model = model
        self._call_names = frozenset({model, reach.deployment.name})
        self._effects_by_names: dict[Names, Effects] = {}
        self._left_out: list[LeftOut] = []

    def ruled(self) -> RuledModelCall:
        candidates, pool = self._ordered(self._deployment.routes, self._model)
        served = tuple(each for each in candidates if not self._is_refused(each)) or candidates
        first_targets = tuple(each for each in served if each in candidates[:pool]) or served[:1]
        where = self._joined(served[0])
        if where.refusal is not None:
            self._left_out.clear()
        chosen, pool = self._chosen(where, served, first_targets)
        targets = chosen + self._fallback(where)
        by_target = {each.id: self._effects(each, first_targets) for each in targets}
        first = unlike(effects for each in targets[:pool] for effects in by_target[each.id])
        while detours := self._detours(by_target):
            by_target |= {each.id: self._effects(each, first_targets) for each in detours}
        every = _flat(by_target)
        decided_by = where, self._chain.union(first), self._chain.union(every)
        return RuledModelCall(
            model_call=self._model_call(targets, pool, decided_by, by_target),
            where=where,
            first=first,
            every=every,
            chosen=len(chosen),
            left_out=tuple(self._left_out),
        )

    def _ordered(self, routes: Routes, model: str) -> tuple[Targets, int]:
        return ordered(self._deployment, routes, model, self._facts.key, self._call)

    def _chosen(
        self, where: Effects, served: Targets, first_targets: Targets
    ) -> tuple[Targets, int]:
        """Return the targets before the fallback, and the number of equal ones at the start.

        Targets that a rule chooses are the choice of the policy, so their own rules do not exclude
        them.
        """
        if where.routes is not None or where.model is not None:
            routes = where.routes or self._deployment.routes
            return self._ordered(routes, where.model or self._model)
        if where.refusal is not None:
            return served, len(first_targets)
        targets = tuple(each for each in served if self._is_served(each, self._joined(each)))
        return targets, len([each for each in first_targets if each in targets])

    def _fallback(self, where: Effects) -> Targets:
        fallback = _fallback(self._deployment, where)
        if where.fallback is not None or where.refusal is not None:
            return fallback
        return tuple(each for each in fallback if self._may_follow(each))

    def _is_refused(self, target: Target) -> bool:
        effects = self._joined(target)
        return effects.refusal is not None and self._leave_out(target, effects.by["refusal"])

    def _is_served(self, target: Target, effects: Effects) -> bool:
        """Return True if the rules of a target do not choose others instead."""
        if effects.routes is None and effects.model is None:
            return True
        candidates = self._deployment.candidates(effects.model or self._model, effects.routes)
        if target in candidates.targets:
            return True
        return not self._leave_out(target, effects.by.get("targets") or effects.by["model"])

    def _may_follow(self, target: Target) -> bool:
        """Return True if the own rules of a fallback neither refuse it nor choose others."""
        effects = self._effects_for(self._names(target))
        if effects.refusal is not None:
            return not self._leave_out(target, effects.by["refusal"])
        if effects.routes is not None and target not in effects.routes.targets:
            return not self._leave_out(target, effects.by["targets"])
        if effects.model is None or effects.model in target.names | self._deployment.names:
            return True
        if effects.model not in (effects.routes or self._deployment.routes).serves:
            return True  # no target has this name
        return not self._leave_out(target, effects.by["model"])

    def _leave_out(self, target: Target, rule: str) -> bool:
        self._left_out.append(LeftOut(target, rule))
        return True

    def _names(self, target: Target) -> Names:
        """Return the names of a target, and those of a call for the deployment."""
        is_for_deployment = self._model in self._deployment.names
        return target.names | (self._call_names if is_for_deployment else NAMELESS)

    def _effects_for(self, names: Names) -> Effects:
        effects = self._effects_by_names.get(names)
        if effects is None:
            effects = evaluate(self._chain, self._facts._replace(names=names))
            self._effects_by_names[names] = effects
        return effects

    def _effects(self, target: Target, first_targets: Targets) -> tuple[Effects, ...]:
        """Return the effects for a target by its own names, and by all names of the call.

        A target that replaces the first ones has their names too.
        """
        names, call_names = self._names(target), self._call_names
        if target not in first_targets:
            call_names = call_names.union(*map(self._names, first_targets))
        return unlike((self._effects_for(names), self._effects_for(names | call_names)))

    def _joined(self, target: Target) -> Effects:
        """Return the effects for a first target."""
        return self._chain.union(self._effects(target, (target,)))

    def _detours(self, by_target: EffectsByTarget) -> list[Target]:
        """Return the targets to which guards may route the call, and that have no effects yet."""
        every = _flat(by_target)
        guards = guards_of(self._deployment.guards, self._chain.union(every), every)
        return [each for each in guards.route_targets if each.id not in by_target]

    def _model_call(
        self,
        targets: Targets,
        pool: int,
        decided_by: tuple[Effects, Effects, Effects],
        by_target: EffectsByTarget,
    ) -> ModelCall:
        """Return the model call. ``decided_by`` are the effects that decide where it goes, those of
        the first targets, and those of every target."""
        where, first, every = decided_by
        changes_by_target = {
            title: self._chain.union(effects).changes for title, effects in by_target.items()
        }
        changes = changes_by_target[targets[0].id]
        applied = self._chain.union(unlike((where, first)))
        by = {f"left out {target.id}": rule for target, rule in self._left_out}
        return ModelCall(
            model=self._model,
            targets=targets,
            pool_size=pool,
            overrides=changes,
            rules=self._applied(applied.rules, every.rules),
            shadow_rules=self._applied(applied.shadow_rules, every.shadow_rules),
            rule_by_effect={**effects_by(where, first, every), **by},
            target_overrides={
                title: each for title, each in changes_by_target.items() if each != changes
            },
        )

    def _applied(self, first: tuple[str, ...], every: tuple[str, ...]) -> tuple[str, ...]:
        """Return the rules of the first targets, and those that change or guard later ones."""
        if first == every:
            return first
        rules = self._chain.rules
        later = {name for name in every if rules[name].changes or any(rules[name].guards)}
        return self._chain.in_order({*first, *later})
