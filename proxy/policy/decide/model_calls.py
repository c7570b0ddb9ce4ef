"""What rules make of one model of a call: where it goes, and what holds at each target.

One target is reached under many names: its own, that with its upstream or provider before it, the
deployment's, and any word at all beside a header that names the deployment. What a rule adds must
not depend on which of them a client takes, so a rule that looks at the model is tried for each
target, by the target's own names and by all by which the call may mean it.

- Where it goes (``targets``, ``fallback``, ``model``) is said for the target asked first. One
  that its own rules refuse is left out, and one that may come later also where they pick others; a
  call is refused where none is left.
- Parameters are changed for each target by its own rules.
- Limits and the cache are said for the targets that are asked first, as a limit per model is.
- Guards are said for every target that a text may reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from proxy.policy.decide.conditions import NAMELESS, Facts
from proxy.policy.decide.parts import guards_of
from proxy.policy.decide.routes import Routes, draw
from proxy.policy.decide.rules import NO_EFFECTS, Effects, Rule, RuleChain, evaluate, unlike
from proxy.policy.decide.snapshot import Deployment, Reach
from proxy.types import Call, ModelCall, Target

Names = frozenset[str]
Targets = tuple[Target, ...]
Found = Mapping[str, tuple[Effects, ...]]
CHANGES = ("set ", "cap ")
WHERE = ("targets", "fallback", "model", "refusal")
FIRST = ("cache", "limit ", "no limit ", *CHANGES)
EVERY = ("guard ", "no guard ")


class LeftOut(NamedTuple):
    """A target that is not asked, and the rule that keeps it from being."""

    target: Target
    rule: str


class RuledModelCall(NamedTuple):
    """A model call, and the effects behind it: ``where`` it goes, what holds for the targets asked
    ``first``, and what for ``every`` one. The first ``chosen`` targets are no fallback."""

    model_call: ModelCall
    where: Effects
    first: tuple[Effects, ...]
    every: tuple[Effects, ...]
    chosen: int
    left_out: tuple[LeftOut, ...] = ()


def rule_model_call(reach: Reach, call: Call, facts: Facts, model: str) -> RuledModelCall:
    """Return what the rules leave of one model call. ``facts`` are the call's, without names."""
    if reach.chain is not None and reach.chain.by_model:
        return _ByTarget(reach, reach.chain, call, facts, model).ruled()
    effects = evaluate(reach.chain, facts) if reach.chain is not None else NO_EFFECTS
    deployment = reach.deployment
    routes = effects.routes or deployment.routes
    targets, pool = ordered(deployment, routes, effects.model or model, facts.key, call)
    model_call = ModelCall(
        model=model,
        targets=targets + _fallback(deployment, effects),
        pool=pool,
        changes=effects.changes,
        rules=effects.rules,
        shadow_rules=effects.shadow_rules,
        by=effects.by,
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
    """Return the targets for a name, in the order in which they are tried, and how many of them
    are as good as the first."""
    candidates = deployment.candidates(model, routes)
    if candidates.fixed is not None:
        return candidates.fixed, candidates.pool
    return candidates.order(draw(deployment.name, deployment.sticky, key, call)), candidates.pool


def effects_by(where: Effects, first: Effects, every: Effects) -> Mapping[str, str]:
    """Return the rule behind each effect, by what counts of each of the three."""
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
    """Return where a call goes when its first targets fail. Targets that a rule picks bring their
    own fallback."""
    if effects.fallback is not None:
        return effects.fallback
    return deployment.fallback if effects.routes is None else ()


def _counts_later(rule: Rule) -> bool:
    """True if a rule changes a call for a target that is not asked first."""
    return bool(rule.changes) or any(rule.guards)


def _all(found: Found) -> tuple[Effects, ...]:
    return unlike(effects for effects_list in found.values() for effects in effects_list)


class _ByTarget:
    """The rules of one model call, tried target by target."""

    def __init__(
        self, reach: Reach, chain: RuleChain, call: Call, facts: Facts, model: str
    ) -> None:
        self._deployment = reach.deployment
        self._chain = chain
        self._call = call
        self._facts = facts
        self._model = model
        self._meant = frozenset({model, reach.deployment.name})
        self._known_effects: dict[Names, Effects] = {}
        self._left_out: list[LeftOut] = []

    def ruled(self) -> RuledModelCall:
        candidates, pool = self._ordered(self._deployment.routes, self._model)
        served = tuple(each for each in candidates if not self._is_refused(each)) or candidates
        asked = tuple(each for each in served if each in candidates[:pool]) or served[:1]
        where = self._joined(served[0])
        if where.refusal is not None:
            self._left_out.clear()
        chosen, pool = self._chosen(where, served, asked)
        targets = chosen + self._fallback(where)
        found = {each.title: self._holding(each, asked) for each in targets}
        first = unlike(effects for each in targets[:pool] for effects in found[each.title])
        while detours := self._detours(found):
            found |= {each.title: self._holding(each, asked) for each in detours}
        every = _all(found)
        whole = self._chain.union(every)
        model_call = self._leg(targets, pool, (where, self._chain.union(first), whole), found)
        return RuledModelCall(
            model_call=model_call,
            where=where,
            first=first,
            every=every,
            chosen=len(chosen),
            left_out=tuple(self._left_out),
        )

    def _ordered(self, routes: Routes, model: str) -> tuple[Targets, int]:
        return ordered(self._deployment, routes, model, self._facts.key, self._call)

    def _chosen(self, where: Effects, served: Targets, asked: Targets) -> tuple[Targets, int]:
        """Return the targets but for the fallback, and how many are as good as the first. What a
        rule picks is the policy's own choice, for which no other rule is asked."""
        if where.routes is not None or where.model is not None:
            routes = where.routes or self._deployment.routes
            return self._ordered(routes, where.model or self._model)
        if where.refusal is not None:
            return served, len(asked)
        kept = tuple(each for each in served if self._is_served(each, self._joined(each)))
        return kept, len([each for each in asked if each in kept])

    def _fallback(self, where: Effects) -> Targets:
        found = _fallback(self._deployment, where)
        if where.fallback is not None or where.refusal is not None:
            return found
        return tuple(each for each in found if self._may_follow(each))

    def _is_refused(self, target: Target) -> bool:
        effects = self._joined(target)
        return effects.refusal is not None and self._leave_out(target, effects.by["refusal"])

    def _is_served(self, target: Target, effects: Effects) -> bool:
        """True if the rules for a target that serves what is asked for do not pick others."""
        if effects.routes is None and effects.model is None:
            return True
        candidates = self._deployment.candidates(effects.model or self._model, effects.routes)
        if target in candidates.targets:
            return True
        return not self._leave_out(target, effects.by.get("targets") or effects.by["model"])

    def _may_follow(self, target: Target) -> bool:
        """True if a fallback is neither refused by its own rules, nor kept elsewhere by them."""
        effects = self._effects_for(self._names(target))
        if effects.refusal is not None:
            return not self._leave_out(target, effects.by["refusal"])
        if effects.routes is not None and target not in effects.routes.targets:
            return not self._leave_out(target, effects.by["targets"])
        if effects.model is None or effects.model in target.names:
            return True
        if effects.model in self._deployment.names:
            return True
        if effects.model not in (effects.routes or self._deployment.routes).serves:
            return True  # a name that nobody serves picks none
        return not self._leave_out(target, effects.by["model"])

    def _leave_out(self, target: Target, rule: str) -> bool:
        self._left_out.append(LeftOut(target, rule))
        return True

    def _names(self, target: Target) -> Names:
        """Return the names of a target; with those of the call, if it is for the deployment."""
        return target.names | (self._meant if self._model in self._deployment.names else NAMELESS)

    def _effects_for(self, names: Names) -> Effects:
        found = self._known_effects.get(names)
        if found is None:
            found = self._known_effects[names] = evaluate(
                self._chain, self._facts._replace(names=names)
            )
        return found

    def _holding(self, target: Target, asked: Targets) -> tuple[Effects, ...]:
        """Return what holds for a target by its own names, and by all by which the call may mean
        it. One that takes the place of what was ``asked`` has the names of that too."""
        names, meant = self._names(target), self._meant
        if target not in asked:
            meant = meant.union(*map(self._names, asked))
        return unlike((self._effects_for(names), self._effects_for(names | meant)))

    def _joined(self, target: Target) -> Effects:
        """Return what holds for a target that is asked for."""
        return self._chain.union(self._holding(target, (target,)))

    def _detours(self, found: Found) -> list[Target]:
        """Return the targets to which guards may route the call, and that are not found yet."""
        every = _all(found)
        guards = guards_of(self._deployment.guards, self._chain.union(every), every)
        return [each for each in guards.detours if each.title not in found]

    def _leg(
        self, targets: Targets, pool: int, effects: tuple[Effects, Effects, Effects], found: Found
    ) -> ModelCall:
        """Return the model call. ``effects`` say where it goes, what holds for what is asked
        first, and what for every target."""
        where, first, every = effects
        own = {
            title: self._chain.union(effects_list).changes for title, effects_list in found.items()
        }
        changes = own[targets[0].title]
        sure = self._chain.union(unlike((where, first)))
        return ModelCall(
            model=self._model,
            targets=targets,
            pool=pool,
            changes=changes,
            rules=self._counting(sure.rules, every.rules),
            shadow_rules=self._counting(sure.shadow_rules, every.shadow_rules),
            by={**effects_by(where, first, every), **self._kept_away()},
            others={title: each for title, each in own.items() if each != changes},
        )

    def _kept_away(self) -> dict[str, str]:
        return {f"left out {target.title}": rule for target, rule in self._left_out}

    def _counting(self, sure: tuple[str, ...], every: tuple[str, ...]) -> tuple[str, ...]:
        """Return the rules that hold for what is asked first, and those of others that count."""
        if sure == every:
            return sure
        later = (name for name in every if _counts_later(self._chain.rules[name]))
        return self._chain.in_order({*sure, *later})
