"""Explains the values of a plan: the reason for each, and the file and line that declares it.

A plan keeps the objects that decided it, so that explaining it does not decide the call again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import NamedTuple

from proxy.policy.decide.conditions import collect_facts, find_mismatch
from proxy.policy.decide.model_calls import (
    ANY_TARGET_EFFECTS,
    PARAMETER_EFFECTS,
    ROUTE_EFFECTS,
    RuledModelCall,
)
from proxy.policy.decide.rules import Rule
from proxy.policy.decide.snapshot import KeyDeployment, Snapshot, VirtualKey
from proxy.runtime.frozen import frozen
from proxy.types import Call, ModelCall, Plan, Target

PLAN_FIELDS = tuple(f.name for f in fields(Plan) if f.init)


class DecisionBasis(NamedTuple):
    """The objects that decided a call. ``dropped_tags`` are tags that its client may not set."""

    snapshot: Snapshot
    key: VirtualKey
    key_deployment: KeyDeployment
    call: Call
    dropped_tags: tuple[str, ...]
    ruled_calls: list[RuledModelCall]


class Provenance(NamedTuple):
    """The reason for a value, and the ``file:line`` that declares it."""

    reason: str | None
    source: str | None


class RuleOutcome(NamedTuple):
    """A rule, the ``file:line`` that declares it, and the reason if it does not apply."""

    rule: Rule
    source: str | None
    mismatch_reason: str | None


@frozen
class DecidedPlan(Plan):
    """The plan of a call that a deployment serves, with the provenance of its values.

    ``unpriced`` are the model calls that need a known price and have no target with one. Methods
    with an ``index`` explain one model call.
    """

    basis: DecisionBasis = field(kw_only=True, repr=False, compare=False)
    unpriced: tuple[ModelCall, ...] = field(kw_only=True, repr=False, compare=False)

    def drop_basis(self) -> Plan:
        """Return a plan without references to the call and its texts."""
        return Plan(**{name: getattr(self, name) for name in PLAN_FIELDS})

    def explain_deployment(self) -> Provenance:
        deployment, call = self.basis.key_deployment.deployment, self.basis.call
        if call.head.deployment is not None:
            reason = "named in a request header"
        elif call.deployment is not None:
            reason = "named at the end of the model name"
        elif call.requested_models and deployment.names.issuperset(call.requested_models):
            reason = "requested by its name as the model"
        elif (
            deployment.is_default
            and len(self.basis.key.find_deployments_serving_all(call.requested_models)) > 1
        ):
            reason = "the default of this key's deployments that serve the request"
        else:
            reason = "the only deployment of this key that serves the request"
        return Provenance(reason, self.basis.snapshot.find_location("deployments", deployment.name))

    def explain_tag(self, tag: str) -> Provenance:
        snapshot, key = self.basis.snapshot, self.basis.key
        deployment = self.basis.key_deployment.deployment
        if tag in key.tags:
            return Provenance(
                "set by the key", snapshot.find_location("keys", key.name, "tags", tag)
            )
        if tag in deployment.tags:
            source = snapshot.find_location("deployments", deployment.name, "tags", tag)
            return Provenance("set by the deployment", source)
        return Provenance("set by the client", snapshot.find_location("tags", tag))

    def iter_rule_outcomes(self, index: int) -> Iterator[RuleOutcome]:
        """Yield all rules of the deployment by precedence, with reasons why some do not apply."""
        model_call = self.basis.ruled_calls[index].model_call
        deployment = self.basis.key_deployment.deployment
        names = model_call.targets[0].names | {model_call.model, deployment.name}
        facts = collect_facts(self.key, self.basis.call, self.tags)._replace(model_names=names)
        matching = {*model_call.rules, *model_call.shadow_rules}
        for section in deployment.sections:
            applied = [rule.name for rule in section.rules if rule.name in model_call.rules]
            first_rule = applied[0] if applied else ""
            for rule in section.rules:
                reason = None
                if rule.name not in matching:
                    reason = find_mismatch(rule.when, facts) or f"{first_rule} matched first"
                yield RuleOutcome(rule, self.basis.snapshot.find_location(*rule.path), reason)

    def find_overruling_reason(self, index: int, rule: Rule, effect: str) -> str | None:
        """Return the reason why an effect of a matching rule is overruled, None if it applies."""
        ruled_call, (kind, _, name) = self.basis.ruled_calls[index], effect.partition(" ")
        rules = ruled_call.model_call.rule_by_effect
        route_only = effect.startswith(ROUTE_EFFECTS)
        decisive = (ruled_call.route_effects,) if route_only else ruled_call.first_effects
        if not effect.startswith(ANY_TARGET_EFFECTS) and not any(
            rule.name in effects.rules for effects in decisive
        ):
            if effect.startswith(PARAMETER_EFFECTS):
                return "applies only to a later target"
            return "no effect: the model that is tried first does not match"
        if kind == "cap":
            changes = (
                ruled_call.model_call.overrides,
                *ruled_call.model_call.target_overrides.values(),
            )
            caps = [change.cap.get(name) for change in changes]
            return None if rule.changes.cap[name] in caps else "a lower cap applies"
        if effect not in rules:
            return f"no effect: {rules['targets']} chooses the targets"
        if rules[effect] != rule.name:
            return f"no effect: {rules[effect]} takes precedence"
        unremoved = {f"no limit {scoped.limit.name}" for scoped in self.limits}
        unremoved |= {f"no guard {rule.name}" for rule in (*self.guards.input, *self.guards.output)}
        unremoved |= {f"no guard {cap.name}" for cap in self.guards.cost_caps}
        return "no effect: other models of this call keep it" if effect in unremoved else None

    def iter_target_provenance(self, index: int) -> Iterator[tuple[Target, Provenance]]:
        """Yield the targets in the order in which they are tried."""
        model_call, ruled_call = self.model_calls[index], self.basis.ruled_calls[index]
        deployment = self.basis.key_deployment.deployment
        chosen = ruled_call.model_call.targets[: ruled_call.chosen_count]
        chosen_count = sum(target in model_call.targets for target in chosen)
        paths = {rule.name: rule.path for rule in deployment.rules}
        for number, target in enumerate(model_call.targets):
            kind = "targets" if number < chosen_count else "fallback"
            rule = model_call.rule_by_effect.get(kind)
            path = (*(paths[rule] if rule else ("deployments", deployment.name)), kind)
            if model_call in self.unpriced:
                reason = "not tried"
            elif number >= chosen_count:
                reason = "fallback"
            elif model_call.pool_size > 1:
                reason = "balanced: the least loaded target is tried first"
            else:
                reason = self._explain_choice(ruled_call, target, is_first=not number)
            paths_of_target = (
                target_path
                for target_path, declared_target in deployment.targets
                if declared_target == target and target_path[:-1] == path
            )
            source = self.basis.snapshot.find_location(*next(paths_of_target, path))
            yield target, Provenance(reason, source)

    def _explain_choice(self, ruled_call: RuledModelCall, target: Target, *, is_first: bool) -> str:
        """Return the reason for the position of a target that is not balanced."""
        deployment, effects = self.basis.key_deployment.deployment, ruled_call.route_effects
        model = effects.model or ruled_call.model_call.model
        candidates = deployment.get_candidates(model, effects.routes)
        if not candidates.weights:
            return "the first target for this model"
        if ruled_call.chosen_count == 1:
            return "the only target to choose from"
        weight = candidates.weights[candidates.targets.index(target)]
        share = f"weight {weight} of {sum(candidates.weights)}"
        if not is_first:
            return f"tried next: {share}"
        sticky = deployment.sticky
        if not (sticky and sticky.get_sticky_value(self.basis.key.name, self.basis.call)):
            return f"chosen by {share}, drawn for each call"
        owner = f"value of {sticky.header}" if sticky.by == "header" else sticky.by
        return f"chosen by {share}, the same for all calls of this {owner}"

    def iter_excluded_targets(self, index: int) -> Iterator[tuple[Target, str]]:
        """Yield the excluded targets, each with the reason."""
        targets, ruled_call = self.model_calls[index].targets, self.basis.ruled_calls[index]
        reason = "its price is unknown"
        if self.basis.call.state_ref is not None:
            reason = "another target stores the state of this call"
        yield from ((t, reason) for t in ruled_call.model_call.targets if t not in targets)
        yield from ((target, f"by rule {rule}") for target, rule in ruled_call.excluded)
