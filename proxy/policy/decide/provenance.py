"""Where the values of a plan come from: the part of the policies that says each, and its rule.

A plan keeps what it was decided by. Nothing here is worked out before somebody asks, and nothing is
decided again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import NamedTuple

from proxy.frozen import frozen
from proxy.policy.decide.conditions import facts_of, missed
from proxy.policy.decide.model_calls import CHANGES, EVERY, WHERE, RuledModelCall
from proxy.policy.decide.rules import Rule
from proxy.policy.decide.snapshot import Reach, Snapshot, VirtualKey
from proxy.policy.files.source import Path_
from proxy.types import Call, ModelCall, Plan, Target

PLAN_FIELDS = tuple(each.name for each in fields(Plan) if each.init)


class Basis(NamedTuple):
    """What a call was decided by. ``dropped`` are the tags that its client may not say."""

    snapshot: Snapshot
    key: VirtualKey
    reach: Reach
    call: Call
    dropped: tuple[str, ...]
    ruled: list[RuledModelCall]


class Provenance(NamedTuple):
    """Why a value counts, in a few words, and where that is written, as ``file:line``."""

    why: str | None
    at: str | None


class RuleOutcome(NamedTuple):
    """What became of a rule for one model of a call. ``missed`` says why it does not hold."""

    rule: Rule
    at: str | None
    missed: str | None


@frozen
class DecidedPlan(Plan):
    """The plan of a call that a deployment serves, with the origin of each of its values. Those of
    one model are asked for by the index of its call. ``unpriced`` are the model calls without any
    target that has a known price, where the call needs one."""

    basis: Basis = field(kw_only=True, repr=False, compare=False)
    unpriced: tuple[ModelCall, ...] = field(kw_only=True, repr=False, compare=False)

    def without_basis(self) -> Plan:
        """Return the plan alone: what it was decided by holds a call, and that its texts."""
        return Plan(**{name: getattr(self, name) for name in PLAN_FIELDS})

    def origin_of_deployment(self) -> Provenance:
        deployment, call = self.basis.reach.deployment, self.basis.call
        if call.head.deployment is not None:
            why = "named in a request header"
        elif call.deployment is not None:
            why = "named at the end of the model name"
        elif call.models and deployment.names.issuperset(call.models):
            why = "requested by its name as the model"
        elif deployment.is_default and len(self.basis.key.serving(call.models)) > 1:
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

    def place_of_limit(self, name: str) -> str | None:
        return self.basis.snapshot.at(*self.basis.snapshot.limits.get(name, ()))

    def outcomes_of_rules(self, index: int) -> Iterator[RuleOutcome]:
        """Yield every rule that the deployment follows, in order."""
        model_call = self.basis.ruled[index].model_call
        deployment = self.basis.reach.deployment
        names = model_call.targets[0].names | {model_call.model, deployment.name}
        facts = facts_of(self.key, self.basis.call, self.tags)._replace(names=names)
        holding = {*model_call.rules, *model_call.shadow_rules}
        for section in deployment.sections:
            held = next((rule.name for rule in section.rules if rule.name in model_call.rules), "")
            for rule in section.rules:
                why = None
                if rule.name not in holding:
                    why = missed(rule.when, facts) or f"{held} matched first"
                yield RuleOutcome(rule, self.basis.snapshot.at(*rule.path), why)

    def overruled(self, index: int, rule: Rule, effect: str) -> str | None:
        """Return why an effect of a rule that applies is none, in a few words; None where it is
        one."""
        ruled, (kind, _, name) = self.basis.ruled[index], effect.partition(" ")
        by = ruled.model_call.by
        if (elsewhere := _elsewhere(rule, effect, ruled)) is not None:
            return elsewhere
        if kind == "cap":
            changes = (ruled.model_call.changes, *ruled.model_call.others.values())
            caps = [each.cap.get(name) for each in changes]
            return None if rule.changes.cap[name] in caps else "a lower cap applies"
        if effect not in by:
            return f"no effect: {by['targets']} chooses the targets"
        if by[effect] != rule.name:
            return f"no effect: {by[effect]} takes precedence"
        left = {f"no limit {bound.limit.name}" for bound in self.bounds}
        left |= {f"no guard {each.name}" for each in (*self.guards.input, *self.guards.output)}
        left |= {f"no guard {each.name}" for each in self.guards.ceilings}
        return "no effect: other models of this call keep it" if effect in left else None

    def origins_of_targets(self, index: int) -> Iterator[tuple[Target, Provenance]]:
        """Yield the targets of a model in the order in which they are tried."""
        model_call, ruled = self.model_calls[index], self.basis.ruled[index]
        deployment = self.basis.reach.deployment
        chosen = ruled.model_call.targets[: ruled.chosen]
        first = sum(target in model_call.targets for target in chosen)
        paths = {rule.name: rule.path for rule in deployment.rules}
        for number, target in enumerate(model_call.targets):
            kind = "targets" if number < first else "fallback"
            rule = model_call.by.get(kind)
            path = (*(paths[rule] if rule else ("deployments", deployment.name)), kind)
            if model_call in self.unpriced:
                why = "not tried"
            elif number >= first:
                why = "fallback"
            elif model_call.pool > 1:
                why = "balanced: the least loaded target is tried first"
            else:
                why = self._chosen_by(ruled, target, is_first=not number)
            yield target, Provenance(why, self._place_of_target(path, target))

    def _chosen_by(self, ruled: RuledModelCall, target: Target, *, is_first: bool) -> str:
        """Return why a target has its place, where targets are not balanced."""
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

    def _place_of_target(self, path: Path_, target: Target) -> str | None:
        """Return where a target is written in the list at ``path``."""
        for place, written in self.basis.reach.deployment.targets:
            if written == target and place[:-1] == path:
                return self.basis.snapshot.at(*place)
        return self.basis.snapshot.at(*path)

    def left_out(self, index: int) -> Iterator[tuple[Target, str]]:
        """Yield the targets of a model that are not asked, each with the reason."""
        kept, ruled = self.model_calls[index].targets, self.basis.ruled[index]
        is_pinned = self.basis.call.pin is not None
        why = (
            "another target stores the state of this call" if is_pinned else "its price is unknown"
        )
        yield from ((target, why) for target in ruled.model_call.targets if target not in kept)
        yield from ((target, f"by rule {rule}") for target, rule in ruled.left_out)


def _elsewhere(rule: Rule, effect: str, ruled: RuledModelCall) -> str | None:
    """Return why an effect of a rule is none for what is asked first; None where it is one."""
    effects_list = (ruled.where,) if effect.startswith(WHERE) else ruled.first
    if effect.startswith(EVERY) or any(rule.name in effects.rules for effects in effects_list):
        return None
    later = effect.startswith(CHANGES)
    return "for a later target only" if later else "no effect: another model is tried first"
