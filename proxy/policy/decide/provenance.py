"""Explains the values of a plan: the reason for each, and the file and line that declares it.

A plan keeps the objects that decided it. Explanations are computed on request, without deciding the
call again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import NamedTuple

from proxy.policy.decide.conditions import facts_of, missed
from proxy.policy.decide.model_calls import CHANGES, EVERY, WHERE, RuledModelCall
from proxy.policy.decide.rules import Rule
from proxy.policy.decide.snapshot import KeyDeployment, Snapshot, VirtualKey
from proxy.runtime.frozen import frozen
from proxy.types import Call, ModelCall, Plan, Target

PLAN_FIELDS = tuple(each.name for each in fields(Plan) if each.init)


class Basis(NamedTuple):
    """The objects that decided a call. ``dropped`` are tags that its client may not set."""

    snapshot: Snapshot
    key: VirtualKey
    reach: KeyDeployment
    call: Call
    dropped: tuple[str, ...]
    ruled: list[RuledModelCall]


class Provenance(NamedTuple):
    """The reason for a value, and the ``file:line`` that declares it."""

    why: str | None
    at: str | None


class RuleOutcome(NamedTuple):
    """A rule, and the reason why it does not apply to a model of a call."""

    rule: Rule
    at: str | None
    missed: str | None


@frozen
class DecidedPlan(Plan):
    """The plan of a call that a deployment serves, with the origins of its values.

    ``unpriced`` are the model calls that need a known price and have no target with one. Methods
    with an ``index`` explain one model call.
    """

    basis: Basis = field(kw_only=True, repr=False, compare=False)
    unpriced: tuple[ModelCall, ...] = field(kw_only=True, repr=False, compare=False)

    def without_basis(self) -> Plan:
        """Return a plan that does not keep the call and its texts alive."""
        return Plan(**{name: getattr(self, name) for name in PLAN_FIELDS})

    def origin_of_deployment(self) -> Provenance:
        deployment, call = self.basis.reach.deployment, self.basis.call
        if call.head.deployment is not None:
            why = "named in a request header"
        elif call.deployment is not None:
            why = "named at the end of the model name"
        elif call.requested_models and deployment.names.issuperset(call.requested_models):
            why = "requested by its name as the model"
        elif deployment.is_default and len(self.basis.key.serving(call.requested_models)) > 1:
            why = "the default of this key's deployments that serve the request"
        else:
            why = "the only deployment of this key that serves the request"
        return Provenance(why, self.basis.snapshot.at("deployments", deployment.name))

    def origin_of_tag(self, tag: str) -> Provenance:
        snapshot, key = self.basis.snapshot, self.basis.key
        deployment = self.basis.reach.deployment
        if tag in key.tags:
            return Provenance("set by the key", snapshot.at("keys", key.name, "tags", tag))
        if tag in deployment.tags:
            at = snapshot.at("deployments", deployment.name, "tags", tag)
            return Provenance("set by the deployment", at)
        return Provenance("set by the client", snapshot.at("tags", tag))

    def outcomes_of_rules(self, index: int) -> Iterator[RuleOutcome]:
        """Yield the rules of the deployment in order of precedence."""
        model_call = self.basis.ruled[index].model_call
        deployment = self.basis.reach.deployment
        names = model_call.targets[0].names | {model_call.model, deployment.name}
        facts = facts_of(self.key, self.basis.call, self.tags)._replace(names=names)
        matching = {*model_call.rules, *model_call.shadow_rules}
        for section in deployment.sections:
            first = next((rule.name for rule in section.rules if rule.name in model_call.rules), "")
            for rule in section.rules:
                why = None
                if rule.name not in matching:
                    why = missed(rule.when, facts) or f"{first} matched first"
                yield RuleOutcome(rule, self.basis.snapshot.at(*rule.path), why)

    def overruled(self, index: int, rule: Rule, effect: str) -> str | None:
        """Return the reason why a rule that applies lacks an effect, or None if it has it."""
        ruled, (kind, _, name) = self.basis.ruled[index], effect.partition(" ")
        by = ruled.model_call.rule_by_effect
        if (elsewhere := _elsewhere(rule, effect, ruled)) is not None:
            return elsewhere
        if kind == "cap":
            changes = (ruled.model_call.overrides, *ruled.model_call.target_overrides.values())
            caps = [each.cap.get(name) for each in changes]
            return None if rule.changes.cap[name] in caps else "a lower cap applies"
        if effect not in by:
            return f"no effect: {by['targets']} chooses the targets"
        if by[effect] != rule.name:
            return f"no effect: {by[effect]} takes precedence"
        kept = {f"no limit {scoped.limit.name}" for scoped in self.limits}
        kept |= {f"no guard {rule.name}" for rule in (*self.guards.input, *self.guards.output)}
        kept |= {f"no guard {cap.name}" for cap in self.guards.cost_caps}
        return "no effect: other models of this call keep it" if effect in kept else None

    def origins_of_targets(self, index: int) -> Iterator[tuple[Target, Provenance]]:
        """Yield the targets in the order in which they are tried."""
        model_call, ruled = self.model_calls[index], self.basis.ruled[index]
        deployment = self.basis.reach.deployment
        chosen = ruled.model_call.targets[: ruled.chosen]
        first = sum(target in model_call.targets for target in chosen)
        paths = {rule.name: rule.path for rule in deployment.rules}
        for number, target in enumerate(model_call.targets):
            kind = "targets" if number < first else "fallback"
            rule = model_call.rule_by_effect.get(kind)
            path = (*(paths[rule] if rule else ("deployments", deployment.name)), kind)
            if model_call in self.unpriced:
                why = "not tried"
            elif number >= first:
                why = "fallback"
            elif model_call.pool_size > 1:
                why = "balanced: the least loaded target is tried first"
            else:
                why = self._chosen_by(ruled, target, is_first=not number)
            paths_of_target = (
                place
                for place, written in deployment.targets
                if written == target and place[:-1] == path
            )
            at = self.basis.snapshot.at(*next(paths_of_target, path))
            yield target, Provenance(why, at)

    def _chosen_by(self, ruled: RuledModelCall, target: Target, *, is_first: bool) -> str:
        """Return the reason for the place of a target that is not balanced."""
        deployment, where = self.basis.reach.deployment, ruled.where
        model = where.model or ruled.model_call.model
        candidates = deployment.candidates(model, where.routes)
        if not candidates.weights:
            return "the first target for this model"
        if ruled.chosen == 1:
            return "the only target to choose from"
        weight = candidates.weights[candidates.targets.index(target)]
        share = f"weight {weight} of {sum(candidates.weights)}"
        if not is_first:
            return f"next: {share}"
        sticky = deployment.sticky
        if not (sticky and sticky.seed(self.basis.key.name, self.basis.call)):
            return f"chosen by {share}, drawn for each call"
        owner = f"value of {sticky.header}" if sticky.by == "header" else sticky.by
        return f"chosen by {share}, the same for all calls of this {owner}"

    def left_out(self, index: int) -> Iterator[tuple[Target, str]]:
        """Yield the excluded targets, each with the reason."""
        targets, ruled = self.model_calls[index].targets, self.basis.ruled[index]
        why = "its price is unknown"
        if self.basis.call.state_ref is not None:
            why = "another target stores the state of this call"
        yield from ((target, why) for target in ruled.model_call.targets if target not in targets)
        yield from ((target, f"by rule {rule}") for target, rule in ruled.left_out)


def _elsewhere(rule: Rule, effect: str, ruled: RuledModelCall) -> str | None:
    """Return the reason why a rule lacks an effect on the first target, or None if it has it."""
    effects_list = (ruled.where,) if effect.startswith(WHERE) else ruled.first
    if effect.startswith(EVERY) or any(rule.name in effects.rules for effects in effects_list):
        return None
    later = effect.startswith(CHANGES)
    return "for a later target only" if later else "no effect: another model is tried first"
