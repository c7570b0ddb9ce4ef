"""Warnings about rules that have no effect, and about limits that reject a single call.

A rule is hidden if an earlier condition is proven to match all of its calls. The proof compares how
conditions are written, so it may miss hidden rules, but never reports a reachable one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Set
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from proxy.errors import ProxyError
from proxy.errors.words import quote
from proxy.limits.claims import estimate_claims
from proxy.policy.decide import decide
from proxy.policy.decide.conditions import (
    ALWAYS,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Not,
)
from proxy.policy.decide.rules import PolicyRules, Rule
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.source import Finding
from proxy.policy.review.sample_call import build_sample_call, make_chat_body
from proxy.policy.schema.keys import ValueSet
from proxy.types import Call
from proxy.types.limit import Claim


def lint_rules(snapshot: Snapshot) -> Iterator[Finding]:
    sections: dict[str, PolicyRules] = {}
    deployments: dict[str, list[Deployment]] = {}
    for deployment in snapshot.deployments.values():
        for section in deployment.sections:
            sections[section.policy] = section
            deployments.setdefault(section.policy, []).append(deployment)
    key_deployments = [d for key in snapshot.keys.values() for d in key.deployments.values()]
    called_policies = {section.policy for d in key_deployments for section in d.deployment.sections}
    applicable = {name for d in key_deployments if d.chain for name in d.chain.rules}
    for section in sections.values():
        for index, rule in enumerate(section.rules):
            reasons = list(_find_dead_rule_reasons(section, index, rule))
            yield from ((rule.path, reason) for reason in reasons)
            if section.policy in called_policies and rule.name not in applicable and not reasons:
                message = "never applies: no key or tag that reaches it matches its condition"
                yield rule.path, message
            model = rule.model
            if model is not None and not any(
                _serves_model(d, model) for d in deployments[section.policy]
            ):
                message = f"no deployment of this policy serves model {quote(model)}"
                yield (*rule.path, "model"), message


def _find_dead_rule_reasons(section: PolicyRules, index: int, rule: Rule) -> Iterator[str]:
    """Yield the reasons why a rule never applies or has no effect, given the earlier rules."""
    for earlier in section.rules[:index]:
        if earlier.shadow or not covers(earlier.when, rule.when):
            continue
        if section.first_only:
            yield f"never applies, because rule {earlier.name} matches all of its calls first"
            return
        if earlier.refusal is not None:
            yield f"has no effect, because rule {earlier.name} rejects all of its calls"
            return
        if earlier.routes is not None and rule.routes is not None:
            yield f"its targets have no effect: rule {earlier.name} sets targets for the same calls"
        if earlier.model is not None and rule.model is not None:
            yield f"its model has no effect: rule {earlier.name} sets a model for the same calls"


def _serves_model(deployment: Deployment, model: str) -> bool:
    """Return True if ``model`` is a name of the deployment, or selects one of its targets."""
    rule_routes = (rule.routes for rule in deployment.rules if rule.routes is not None)
    return model in deployment.names or any(
        model in routes.by_model for routes in (deployment.routes, *rule_routes)
    )


def find_target_overriding_rule(deployment: Deployment) -> str | None:
    """Return the name of a rule that sets the targets of every call of a deployment."""
    for section in deployment.sections:
        for rule in section.rules:
            if rule.shadow:
                continue
            if rule.when == ALWAYS and rule.routes is not None:
                return rule.name
            if section.first_only:  # the calls of this rule do not reach the next one
                break
    return None


def covers(wide: Condition, narrow: Condition) -> bool:
    """Return True if ``wide`` is proven to match every call that ``narrow`` matches."""
    if wide == narrow:
        return True
    if isinstance(wide, AllOf):
        return all(covers(part, narrow) for part in wide.parts)
    if isinstance(narrow, AnyOf):
        return all(covers(wide, part) for part in narrow.parts)
    if isinstance(narrow, AllOf) and any(covers(wide, part) for part in narrow.parts):
        return True
    if isinstance(wide, AnyOf):
        return any(covers(part, narrow) for part in wide.parts)
    if isinstance(wide, Not) and isinstance(narrow, Not):
        return covers(narrow.part, wide.part)
    if isinstance(wide, Comparison) and isinstance(narrow, Comparison):
        is_same_fact = (wide.fact, wide.tag_or_header) == (narrow.fact, narrow.tag_or_header)
        return is_same_fact and _covers_values(wide.values, narrow.values)
    return False


def _covers_values(wide: ValueSet, narrow: ValueSet) -> bool:
    if wide == narrow:
        return True
    if narrow.values is not None:
        return all(map(wide.matches, narrow.values))
    return wide.values is None and set(wide.text) == {"*"}


def find_exceeded_limits(snapshot: Snapshot, now: datetime) -> Iterator[Finding]:
    """Yield a warning for each limit that rejects even a short call without max_tokens.

    Uses the estimate that admits calls, under the rules that always apply and, one at a time, under
    each of the others. Of deployments with the same estimates, only the first is inspected.
    """
    sections = {s.policy: s for d in snapshot.deployments.values() for s in d.sections}
    rules = [rule for section in sections.values() for rule in section.rules]
    models = {rule.model for rule in rules} | {
        target.model for rule in rules for target in (*rule.route_targets, *(rule.fallback or ()))
    }
    deployments: dict[Hashable, Deployment] = {}
    for deployment in snapshot.deployments.values():
        deployments.setdefault(_make_estimate_key(deployment, models), deployment)
    reported: set[str] = set()
    for deployment in deployments.values():
        calls = list(_make_sample_calls(deployment, now))
        for variant in _make_rule_variants(deployment):
            for claim in _estimate_claims_of_calls(snapshot, variant, calls):
                limit = claim.limit
                is_exceeded = limit.kind.is_usage_based and claim.amount > limit.capacity
                if is_exceeded and limit.name not in reported:
                    reported.add(limit.name)
                    amount, name = limit.kind.format_amount(claim.amount), quote(deployment.name)
                    message = f"is too low: a call of deployment {name} without max_tokens "
                    message += f"reserves {amount}. Raise the limit, or cap max_tokens."
                    yield (*snapshot.limit_paths[limit.name], limit.kind.name), message


def _make_estimate_key(deployment: Deployment, models: Set[str | None]) -> Hashable:
    """Return everything that the estimates of a deployment depend on.

    The name of a model counts only if it is one of ``models``, which rules mention.
    """
    routes, numbers = deployment.routes, dict[str, object].fromkeys(deployment.names)
    targets = []
    for target in (*routes.targets, *routes.candidates.targets, *deployment.fallback):
        number = len(numbers) if models.isdisjoint(target.names) else target.model
        model = numbers.setdefault(target.model, number)
        targets.append((target.upstream.name, target.endpoint, target.prices, model))
    return (
        tuple(section.policy for section in deployment.sections),
        tuple(scoped.name for scoped in deployment.limits),
        (deployment.refuse_unpriced, deployment.only_passthrough, len(deployment.fallback)),
        (routes.candidates.weights, routes.candidates.is_balanced),
        tuple(targets),
    )


def _make_sample_calls(deployment: Deployment, now: datetime) -> Iterator[Call]:
    """Yield a short chat call with each model of a deployment, if it serves chat."""
    if deployment.only_passthrough:
        return
    models = dict.fromkeys((deployment.name, *(target.model for _, target in deployment.targets)))
    for model in models:
        with suppress(ProxyError):  # a name that no client could send
            yield build_sample_call(
                make_chat_body(model), {"x-headrace-deployment": deployment.name}, now
            )


def _make_rule_variants(deployment: Deployment) -> Iterator[Deployment]:
    """Yield a deployment with only the rules that always apply, and with each other rule added.

    Yield none without a limit on amounts that are estimated before the call.
    """
    always = {rule.name for rule in deployment.rules if rule.when == ALWAYS}
    if not any(scoped.limit.kind.is_usage_based for scoped in deployment.scoped_limits):
        return
    other_rules = (rule for rule in deployment.rules if rule.name not in always)
    for other_rule in (None, *other_rules):
        sections = [
            replace(
                section,
                rules=tuple(
                    replace(rule, when=ALWAYS)
                    for rule in section.rules
                    if rule is other_rule or rule.name in always
                ),
            )
            for section in deployment.sections
        ]
        yield replace(deployment, sections=tuple(sections))


def _estimate_claims_of_calls(
    snapshot: Snapshot, deployment: Deployment, calls: list[Call]
) -> list[Claim]:
    key = deployment.bind_to_key("", deployment.tags, frozenset()).make_internal_key("")
    claims: list[Claim] = []
    for call in calls:
        plan = decide(snapshot, key, call)
        claims += estimate_claims(plan, call) if plan.refusal is None else ()
    return sorted(claims, key=lambda claim: -claim.amount)
