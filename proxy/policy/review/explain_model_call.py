"""Explains how one model of a call is decided: its rules, parameters and targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from proxy.dialects.requests.upstream_request import translate_request
from proxy.dialects.vendors.openai import OPENAI
from proxy.errors import InvalidField
from proxy.money.usage import find_price_on
from proxy.policy.decide import DecidedPlan
from proxy.policy.decide.conditions import Facts
from proxy.policy.decide.model_calls import (
    ANY_TARGET_EFFECTS,
    PARAMETER_EFFECTS,
    ROUTE_EFFECTS,
    RuledModelCall,
)
from proxy.policy.decide.rules import Rule
from proxy.policy.review.decision import Decision, group_decisions
from proxy.types import NO_OVERRIDES, Call, Json, ParameterOverrides, Target

EMPTY_TEXTS: Mapping[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": ""}]},
    "completions": {"prompt": ""},
    "embeddings": {"input": ""},
    "responses": {"input": ""},
}


def has_texts(call: Call) -> bool:
    """Return True if the call has its texts. The texts of past calls are not stored."""
    return any(name in call.body for name in ("messages", "prompt", "input"))


def explain_model_call(plan: DecidedPlan, index: int) -> Iterator[Decision]:
    """Yield the decisions for one of the models that the client requested."""
    model_call = plan.model_calls[index]
    text = f"{model_call.model[:64]!a}: " if len(plan.model_calls) > 1 else ""
    rules = list(_explain_rules(plan, index))
    applied = len(model_call.rules)
    verb = "applies" if applied == 1 else "apply"
    yield group_decisions("rules", f"{text}{applied} of {len(rules)} {verb}", rules)
    yield from _explain_parameters(plan, index, text)
    targets = (*_explain_targets(plan, index), *_explain_excluded_targets(plan, index))
    yield Decision("targets", f"{text}{len(model_call.targets)}", parts=targets)


def _explain_rules(plan: DecidedPlan, index: int) -> Iterator[Decision]:
    """Yield all rules of the deployment by precedence, with their effects or a mismatch."""
    model_call = plan.basis.ruled_calls[index].model_call
    deployment = plan.basis.key_deployment.deployment
    names = model_call.targets[0].names | {model_call.model, deployment.name}
    facts = Facts.from_call(plan.key, plan.basis.call, plan.tags)._replace(model_names=names)
    matching = {*model_call.rules, *model_call.shadow_rules}
    for section in deployment.sections:
        applied = [rule.name for rule in section.rules if rule.name in model_call.rules]
        reason_if_matching = (
            f"{applied[0]} matched first" if applied else "the names of the first target decide"
        )
        for rule in section.rules:
            source = plan.basis.snapshot.find_location(*rule.path)
            if rule.name not in matching:
                reason = rule.when.find_mismatch(facts) or reason_if_matching
                text = f"{rule.name} does not apply"
                yield Decision("rule", text, reason, source=source, state="not_applied")
            elif rule.shadow:
                reason = f"shadow mode: {'; '.join(text for _, text in rule.iter_effects())}"
                text = f"{rule.name} would apply"
                yield Decision("rule", text, reason, source=source, state="shadow")
            else:
                effects = [
                    f"{text} ({note})"
                    if (note := _find_overruling_reason(plan, index, rule, effect))
                    else text
                    for effect, text in rule.iter_effects()
                ]
                yield Decision("rule", f"{rule.name} applies", "; ".join(effects), source=source)


def _find_overruling_reason(plan: DecidedPlan, index: int, rule: Rule, effect: str) -> str | None:
    """Return the reason why an effect of a matching rule is overruled, None if it applies."""
    ruled_call, (kind, _, name) = plan.basis.ruled_calls[index], effect.partition(" ")
    model_call, rules = ruled_call.model_call, ruled_call.model_call.rule_by_effect
    route_only = effect.startswith(ROUTE_EFFECTS)
    decisive = (ruled_call.route_effects,) if route_only else ruled_call.first_effects
    if not effect.startswith(ANY_TARGET_EFFECTS) and not any(
        rule.name in effects.rules for effects in decisive
    ):
        if effect.startswith(PARAMETER_EFFECTS):
            return "applies only to a later target"
        return "no effect: the model that is tried first does not match"
    if kind == "cap":
        changes = (model_call.overrides, *model_call.target_overrides.values())
        caps = [change.cap.get(name) for change in changes]
        return None if rule.changes.cap[name] in caps else "a lower cap applies"
    if effect not in rules:
        return f"no effect: {rules['targets']} chooses the targets"
    if rules[effect] != rule.name:
        return f"no effect: {rules[effect]} takes precedence"
    unremoved = {f"no limit {scoped.name}" for scoped in plan.limits}
    unremoved |= {f"no guard {guard.name}" for _, guard in plan.guards.by_stage}
    return "no effect: other models of this call keep it" if effect in unremoved else None


def _explain_targets(plan: DecidedPlan, index: int) -> Iterator[Decision]:
    """Yield the targets in the order in which they are tried."""
    model_call, ruled_call = plan.model_calls[index], plan.basis.ruled_calls[index]
    deployment, call = plan.basis.key_deployment.deployment, plan.basis.call
    chosen = ruled_call.model_call.targets[: ruled_call.chosen_count]
    chosen_count = sum(target in model_call.targets for target in chosen)
    paths = {rule.name: rule.path for rule in deployment.rules}
    for number, target in enumerate(model_call.targets):
        kind = "targets" if number < chosen_count else "fallback"
        rule = model_call.rule_by_effect.get(kind)
        path = (*(paths[rule] if rule else ("deployments", deployment.name)), kind)
        if model_call in plan.unpriced:
            reason = "not tried"
        elif number >= chosen_count:
            reason = "fallback"
        elif model_call.pool_size > 1:
            reason = "balanced: the least loaded target is tried first"
        else:
            reason = _explain_choice(plan, ruled_call, target, is_first=not number)
        declared = (p for p, t in deployment.targets if t == target and p[:-1] == path)
        source = plan.basis.snapshot.find_location(*next(declared, path))
        price = find_price_on(target.prices, call.head.received_at.date())
        cost = "price unknown"
        if price is not None:
            prices = {"input": price.input, "output": price.output}
            texts = ", ".join(f"{kind} {usd}" for kind, usd in prices.items() if usd is not None)
            cost = f"USD per million tokens: {texts}"
        yield Decision("target", target.id, f"{reason}; {cost}", source=source)


def _explain_choice(
    plan: DecidedPlan, ruled_call: RuledModelCall, target: Target, *, is_first: bool
) -> str:
    """Return the reason for the position of a target that is not balanced."""
    deployment, effects = plan.basis.key_deployment.deployment, ruled_call.route_effects
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
    if not (sticky and sticky.get_sticky_value(plan.basis.key.name, plan.basis.call)):
        return f"chosen by {share}, drawn for each call"
    owner = f"value of {sticky.header}" if sticky.by == "header" else sticky.by
    return f"chosen by {share}, the same for all calls of this {owner}"


def _explain_excluded_targets(plan: DecidedPlan, index: int) -> Iterator[Decision]:
    targets, ruled_call = plan.model_calls[index].targets, plan.basis.ruled_calls[index]
    reason = "its price is unknown"
    if plan.basis.call.state_ref is not None:
        reason = "another target stores the state of this call"
    excluded = [(t, reason) for t in ruled_call.model_call.targets if t not in targets]
    excluded += [(target, f"by rule {rule}") for target, rule in ruled_call.excluded]
    for target, reason in excluded:
        yield Decision("target", f"{target.id} excluded", reason, state="not_applied")


def _diff_with_overrides(
    call: Call, target: Target, changes: ParameterOverrides
) -> dict[str, tuple[Any, Any]]:
    """Return the fields of the request to a target that rules change: name, value before, after.

    Members of objects are named ``thinking.budget_tokens``. A missing field is None. Raise
    ``InvalidField`` if the target's dialect cannot express the call.
    """
    if not changes or call.head.endpoint not in OPENAI.fields:
        return {}
    before, after = (
        dict(_flatten_members(translate_request(call, target, overrides).body))
        for overrides in (NO_OVERRIDES, changes)
    )
    return {
        name: (before.get(name), after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    }


def _flatten_members(body: Json, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        if isinstance(value, dict):
            yield from _flatten_members(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _explain_parameters(plan: DecidedPlan, index: int, prefix: str) -> Iterator[Decision]:
    """Yield the parameters of the request to the first target that rules change."""
    target, call = plan.model_calls[index].targets[0], plan.basis.call
    if not has_texts(call):
        call = replace(call, body={**call.body, **EMPTY_TEXTS.get(call.head.endpoint, {})})
    try:
        changes = _diff_with_overrides(call, target, plan.model_calls[index].get_overrides(target))
    except InvalidField as error:
        text = f"{prefix}not supported by {target.id}"
        yield Decision("parameters", text, str(error), state="refused")
        return
    parts = [
        Decision(
            "parameter",
            f"{name}: {'removed' if new is None else new}",
            f"without rules: {'not set' if old is None else old}",
        )
        for name, (old, new) in changes.items()
    ]
    if parts:
        yield Decision("parameters", f"{prefix}{len(parts)} changed", parts=tuple(parts))
