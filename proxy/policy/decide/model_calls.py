"""Applies rules to each model of a call, and removes targets without a known price.

A target has many names: its model, its model with a prefix, all names of the deployment, and any
name in a call that selects the deployment by a header. The effects of rules must not depend on
which name a client uses. So rules that read the model are evaluated for each target, by the
target's own names and by all names that the call may mean.

- ``targets``, ``fallback`` and ``model`` follow from the rules of the first target. A target that
  its rules refuse is excluded; a call is refused if none remains.
- Parameters are changed for each target by its own rules.
- Limits and the cache follow from the first targets, guards from all targets that text may reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from proxy.money.usage import find_price_on
from proxy.policy.decide.conditions import NO_NAMES, Facts
from proxy.policy.decide.routes import Routes, draw_routing_number
from proxy.policy.decide.rules import (
    NO_EFFECTS,
    RuleChain,
    RuleEffects,
    combine_guards,
    evaluate_rules,
    list_unique,
)
from proxy.policy.decide.snapshot import Deployment, KeyDeployment
from proxy.types import UNBILLED_ENDPOINTS, Call, ModelCall, RuleRefusal, ScopedLimit, Target
from proxy.types.guard import GuardPlan
from proxy.types.target import describe_missing_price

Names = frozenset[str]
Targets = tuple[Target, ...]
RuleEffectsByTarget = Mapping[str, tuple[RuleEffects, ...]]
PARAMETER_EFFECTS = ("set ", "cap ")
ROUTE_EFFECTS = ("targets", "fallback", "model", "refusal")
FIRST_TARGET_EFFECTS = ("cache", "limit ", "no limit ", *PARAMETER_EFFECTS)
ANY_TARGET_EFFECTS = ("guard ", "no guard ")
FREE_OUTPUT_ENDPOINTS = frozenset({"embeddings", "passthrough"})
"""Endpoints whose output may be free."""


class RuledModelCall(NamedTuple):
    """A model call, with the effects that chose its targets, of its first targets, and of all.

    The first ``chosen_count`` targets are not fallbacks. ``excluded`` has targets, each with the
    rule that excludes it.
    """

    model_call: ModelCall
    route_effects: RuleEffects
    first_effects: tuple[RuleEffects, ...]
    all_effects: tuple[RuleEffects, ...]
    chosen_count: int
    excluded: tuple[tuple[Target, str], ...] = ()


def apply_rules(
    key_deployment: KeyDeployment, call: Call, facts: Facts, model: str
) -> RuledModelCall:
    """Apply the rules of a deployment to one model. ``facts`` have no names."""
    deployment, chain = key_deployment.deployment, key_deployment.chain
    if chain is not None and chain.depends_on_model:
        return _TargetRuleEvaluation(deployment, chain, call, facts, model).apply_rules()
    effects = evaluate_rules(chain, facts) if chain is not None else NO_EFFECTS
    routes = effects.routes or deployment.routes
    targets, pool_size = order_with_pool_size(
        deployment, routes, effects.model or model, facts.key, call
    )
    model_call = ModelCall(
        model=model,
        targets=targets + _get_fallback(deployment, effects),
        pool_size=pool_size,
        overrides=effects.changes,
        rules=effects.rules,
        shadow_rules=effects.shadow_rules,
        rule_by_effect=effects.rule_by_effect,
    )
    return RuledModelCall(
        model_call=model_call,
        route_effects=effects,
        first_effects=(effects,),
        all_effects=(effects,),
        chosen_count=len(targets),
    )


def order_with_pool_size(
    deployment: Deployment, routes: Routes, model: str, key: str, call: Call
) -> tuple[Targets, int]:
    """Return the targets for a model in the order to try them, and the number of balanced ones."""
    candidates = deployment.get_candidates(model, routes)
    order = candidates.order
    if order is None:
        number = draw_routing_number(deployment.name, deployment.sticky, key, call)
        order = candidates.draw_order(number)
    return order, candidates.pool_size


def find_rule_by_effect(
    route_effects: RuleEffects, first_effects: RuleEffects, all_effects: RuleEffects
) -> Mapping[str, str]:
    """Return the name of the rule behind each effect.

    ``route_effects`` decide targets, model and refusal, ``first_effects`` the cache and limits, and
    ``all_effects`` the guards and the parameters that only later targets get.
    """
    if route_effects is first_effects and first_effects is all_effects:
        return route_effects.rule_by_effect
    parts = (
        (all_effects, PARAMETER_EFFECTS),
        (route_effects, ROUTE_EFFECTS),
        (first_effects, FIRST_TARGET_EFFECTS),
        (all_effects, ANY_TARGET_EFFECTS),
    )
    return {
        effect: rule
        for effects, prefixes in parts
        for effect, rule in effects.rule_by_effect.items()
        if effect.startswith(prefixes)
    }


def _get_fallback(deployment: Deployment, effects: RuleEffects) -> Targets:
    """Return the fallback. A rule that chooses the targets replaces the deployment's fallback."""
    if effects.fallback is not None:
        return effects.fallback
    return deployment.fallback if effects.routes is None else ()


class _TargetRuleEvaluation:
    """Evaluates the rules of a deployment for each target of one model."""

    def __init__(
        self, deployment: Deployment, chain: RuleChain, call: Call, facts: Facts, model: str
    ) -> None:
        self._deployment = deployment
        self._chain = chain
        self._call = call
        self._facts = facts
        self._model = model
        self._call_names = frozenset({model, deployment.name})
        self._effects_by_names: dict[Names, RuleEffects] = {}
        self._excluded: list[tuple[Target, str]] = []

    def apply_rules(self) -> RuledModelCall:
        candidates, pool_size = self._order_with_pool_size(self._deployment.routes, self._model)
        served = (
            tuple(t for t in candidates if self._keep_unless_refused(t, self._find_effects(t)))
            or candidates
        )
        first_targets = tuple(t for t in served if t in candidates[:pool_size]) or served[:1]
        route = self._find_effects(served[0])
        if route.refusal is not None:
            self._excluded.clear()
        chosen, pool_size = self._choose_with_pool_size(route, served, first_targets)
        targets = chosen + self._select_fallback(route)
        by_target = {t.id: self._evaluate_own_and_all_names(t, first_targets) for t in targets}
        first_effects = list_unique(e for t in targets[:pool_size] for e in by_target[t.id])
        while True:
            all_effects = list_unique(e for effects in by_target.values() for e in effects)
            guards = combine_guards(
                self._deployment.guards, self._chain.combine_all(all_effects), all_effects
            )
            detours = [t for t in guards.route_targets if t.id not in by_target]
            if not detours:
                break
            by_target |= {t.id: self._evaluate_own_and_all_names(t, first_targets) for t in detours}
        unions = route, self._chain.combine_all(first_effects), self._chain.combine_all(all_effects)
        return RuledModelCall(
            model_call=self._make_model_call(targets, pool_size, unions, by_target),
            route_effects=route,
            first_effects=first_effects,
            all_effects=all_effects,
            chosen_count=len(chosen),
            excluded=tuple(self._excluded),
        )

    def _order_with_pool_size(self, routes: Routes, model: str) -> tuple[Targets, int]:
        return order_with_pool_size(self._deployment, routes, model, self._facts.key, self._call)

    def _choose_with_pool_size(
        self, route: RuleEffects, served: Targets, first_targets: Targets
    ) -> tuple[Targets, int]:
        """Return the targets before the fallback, and the number of balanced ones at the start.

        If a rule chose the targets, their own rules do not exclude them.
        """
        if route.routes is not None or route.model is not None:
            routes = route.routes or self._deployment.routes
            return self._order_with_pool_size(routes, route.model or self._model)
        if route.refusal is not None:
            return served, len(first_targets)
        targets = tuple(t for t in served if self._keep_unless_rerouted(t, self._find_effects(t)))
        return targets, len([t for t in first_targets if t in targets])

    def _select_fallback(self, route: RuleEffects) -> Targets:
        fallback = _get_fallback(self._deployment, route)
        if route.fallback is not None or route.refusal is not None:
            return fallback
        return tuple(t for t in fallback if self._keep_as_fallback(t))

    def _keep_unless_refused(self, target: Target, effects: RuleEffects) -> bool:
        if effects.refusal is None:
            return True
        return self._exclude(target, effects.rule_by_effect["refusal"])

    def _keep_unless_rerouted(self, target: Target, effects: RuleEffects) -> bool:
        """Return True unless the rules of a target choose other targets."""
        if effects.routes is None and effects.model is None:
            return True
        candidates = self._deployment.get_candidates(effects.model or self._model, effects.routes)
        if target in candidates.targets:
            return True
        rules = effects.rule_by_effect
        return self._exclude(target, rules.get("targets") or rules["model"])

    def _keep_as_fallback(self, target: Target) -> bool:
        """Return True unless the rules of a fallback target refuse it or choose other targets."""
        effects = self._evaluate_effects(self._list_model_names(target))
        rules = effects.rule_by_effect
        if not self._keep_unless_refused(target, effects):
            return False
        if effects.routes is not None and target not in effects.routes.targets:
            return self._exclude(target, rules["targets"])
        if effects.model is None or effects.model in target.names | self._deployment.names:
            return True
        if effects.model not in (effects.routes or self._deployment.routes).by_model:
            return True  # for a name that no target has
        return self._exclude(target, rules["model"])

    def _exclude(self, target: Target, rule: str) -> Literal[False]:
        self._excluded.append((target, rule))
        return False

    def _list_model_names(self, target: Target) -> Names:
        """Return the names that model rules compare for a target.

        A call for the deployment also has the names that it used.
        """
        is_for_deployment = self._model in self._deployment.names
        return target.names | (self._call_names if is_for_deployment else NO_NAMES)

    def _evaluate_effects(self, names: Names) -> RuleEffects:
        effects = self._effects_by_names.get(names)
        if effects is None:
            effects = evaluate_rules(self._chain, self._facts._replace(model_names=names))
            self._effects_by_names[names] = effects
        return effects

    def _evaluate_own_and_all_names(
        self, target: Target, first_targets: Targets
    ) -> tuple[RuleEffects, ...]:
        """Return the effects for a target by its own names, and by all names of the call.

        A target that replaces the first targets also has their names.
        """
        names, call_names = self._list_model_names(target), self._call_names
        if target not in first_targets:
            call_names = call_names.union(*map(self._list_model_names, first_targets))
        return list_unique(
            (self._evaluate_effects(names), self._evaluate_effects(names | call_names))
        )

    def _find_effects(self, target: Target) -> RuleEffects:
        return self._chain.combine_all(self._evaluate_own_and_all_names(target, (target,)))

    def _make_model_call(
        self,
        targets: Targets,
        pool_size: int,
        unions: tuple[RuleEffects, RuleEffects, RuleEffects],
        by_target: RuleEffectsByTarget,
    ) -> ModelCall:
        """Return the model call.

        ``unions`` are the combined effects that choose targets, those for the first targets, and
        those for all targets.
        """
        route, first_effects, all_effects = unions
        overrides_by_target = {
            target_id: self._chain.combine_all(effects).changes
            for target_id, effects in by_target.items()
        }
        overrides = overrides_by_target[targets[0].id]
        applied = self._chain.combine_all(list_unique((route, first_effects)))
        excluded = {f"left out {target.id}": rule for target, rule in self._excluded}
        return ModelCall(
            model=self._model,
            targets=targets,
            pool_size=pool_size,
            overrides=overrides,
            rules=self._list_applied_rules(applied.rules, all_effects.rules),
            shadow_rules=self._list_applied_rules(applied.shadow_rules, all_effects.shadow_rules),
            rule_by_effect={**find_rule_by_effect(route, first_effects, all_effects), **excluded},
            target_overrides={
                target_id: changes
                for target_id, changes in overrides_by_target.items()
                if changes != overrides
            },
        )

    def _list_applied_rules(
        self, first_rules: tuple[str, ...], all_rules: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the rules of the first targets, and those that change or guard later ones."""
        if first_rules == all_rules:
            return first_rules
        rules = self._chain.rules
        later = {name for name in all_rules if rules[name].changes or rules[name].guards.by_stage}
        return self._chain.sort_rule_names({*first_rules, *later})


def has_known_price(target: Target, call: Call) -> bool:
    """Return True if all prices are known for the endpoint and the day of a call."""
    if target.always_priced or call.head.endpoint in UNBILLED_ENDPOINTS:
        return True
    price = find_price_on(target.prices, call.head.received_at.date())
    return (
        price is not None
        and describe_missing_price(price, call.head.endpoint in FREE_OUTPUT_ENDPOINTS) is None
    )


def explain_price_requirement(deployment: Deployment, limits: Sequence[ScopedLimit]) -> str | None:
    """Return the reason why a call needs a known price, or None if it needs none."""
    if deployment.refuse_unpriced:
        return "this deployment requires one"
    for scoped in limits:
        if scoped.needs_prices and not scoped.limit.shadow:
            return f'limit "{scoped.name}" is in USD'
    return None


def drop_unpriced_targets_unless_all(
    model_calls: Sequence[ModelCall], call: Call
) -> tuple[tuple[ModelCall, ...], tuple[ModelCall, ...]]:
    """Return all model calls with only their priced targets, and those that have no such target.

    Model calls without a priced target keep all their targets.
    """
    priced, unpriced = [], []
    for model_call in model_calls:
        targets = tuple([t for t in model_call.targets if has_known_price(t, call)])
        if not targets:
            unpriced.append(model_call)
        if not targets or len(targets) == len(model_call.targets):
            priced.append(model_call)
            continue
        pool = [t for t in model_call.targets[: model_call.pool_size] if has_known_price(t, call)]
        priced.append(replace(model_call, targets=targets, pool_size=len(pool) or 1))
    return tuple(priced), tuple(unpriced)


def drop_unpriced_route_targets(guards: GuardPlan, call: Call) -> GuardPlan:
    """Return the guards with only the priced targets of the action ``route``."""
    if not any(rule.route_targets for rule in guards.input):
        return guards
    rules = tuple(
        replace(
            rule, route_targets=tuple(t for t in rule.route_targets if has_known_price(t, call))
        )
        for rule in guards.input
    )
    return replace(guards, input=rules)


def make_unpriced_refusal(model: str, reason: str) -> RuleRefusal:
    """Return the refusal of a model without a priced target. ``model`` must be printable ASCII."""
    message = f'No price is known for model "{model}", but {reason}. The operator can add it.'
    return RuleRefusal("unpriced", message, 403)
