"""Warnings about limits that reject a single call without an output limit.

Uses the estimate that admits calls, under the rules that always apply and, one at a time, under
each of the others. Of deployments with the same estimates, only the first is inspected.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Set
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from proxy.errors import ProxyError
from proxy.errors.words import quoted
from proxy.limits.claims import estimate_claims
from proxy.policy.decide import decide
from proxy.policy.decide.conditions import ALWAYS
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.source import Finding
from proxy.policy.review.sample_call import example, suppose
from proxy.types import Call, ScopedLimit
from proxy.types.limit import Claim


def findings(snapshot: Snapshot, now: datetime) -> Iterator[Finding]:
    """Yield a warning for each limit that is less than one call reserves."""
    sections = {s.policy: s for each in snapshot.deployments.values() for s in each.sections}
    rules = [rule for section in sections.values() for rule in section.rules]
    models = {rule.model for rule in rules} | {
        target.model for rule in rules for target in (*rule.targets, *(rule.fallback or ()))
    }
    deployments: dict[Hashable, Deployment] = {}
    for deployment in snapshot.deployments.values():
        deployments.setdefault(_shape(deployment, models), deployment)
    reported: set[str] = set()
    for deployment in deployments.values():
        calls = list(_calls(deployment, now))
        for variant in _variants(deployment):
            for claim in _claims(snapshot, variant, calls):
                limit = claim.limit
                is_exceeded = limit.kind.is_usage_based and claim.amount > limit.capacity
                if is_exceeded and limit.name not in reported:
                    reported.add(limit.name)
                    amount, name = limit.kind.amount_text(claim.amount), quoted(deployment.name)
                    message = f"is less than one call of deployment {name} without an output limit "
                    message += f"reserves: {amount}. Raise the limit, or cap max_tokens."
                    yield (*snapshot.limits[limit.name], limit.kind.name), message


def _shape(deployment: Deployment, models: Set[str | None]) -> Hashable:
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
        tuple(scoped.limit.name for scoped in deployment.bounds),
        (deployment.refuse_unpriced, deployment.only_passthrough, len(deployment.fallback)),
        (routes.candidates.weights, routes.candidates.balanced),
        tuple(targets),
    )


def _calls(deployment: Deployment, now: datetime) -> Iterator[Call]:
    """Yield a short chat call with each model of a deployment, if it serves chat."""
    if deployment.only_passthrough:
        return
    models = dict.fromkeys((deployment.name, *(target.model for _, target in deployment.targets)))
    for model in models:
        with suppress(ProxyError):  # a name that no client could send
            yield suppose(example(model), {"x-headrace-deployment": deployment.name}, now)


def _variants(deployment: Deployment) -> Iterator[Deployment]:
    """Yield a deployment with only the rules that always apply, and with each other rule added."""
    always = {rule.name for rule in deployment.rules if rule.when == ALWAYS}
    scoped = [each for rule in deployment.rules if rule.name in always for each in rule.bounds]
    is_limited = _has_estimate(*deployment.bounds, *scoped)
    others = (rule for rule in deployment.rules if rule.name not in always)
    for other in (None, *others):
        if not (is_limited or (other is not None and _has_estimate(*other.bounds))):
            continue
        sections = [
            replace(
                section,
                rules=tuple(
                    replace(rule, when=ALWAYS)
                    for rule in section.rules
                    if rule is other or rule.name in always
                ),
            )
            for section in deployment.sections
        ]
        yield replace(deployment, sections=tuple(sections))


def _has_estimate(*limits: ScopedLimit) -> bool:
    """Return True if a limit counts amounts that are estimated before the call."""
    return any(scoped.limit.kind.is_usage_based for scoped in limits)


def _claims(snapshot: Snapshot, deployment: Deployment, calls: list[Call]) -> list[Claim]:
    """Return the claims of calls that are not rejected, largest first."""
    key = deployment.for_key("", deployment.tags, frozenset()).only_key("")
    plans = [(decide(snapshot, key, call), call) for call in calls]
    claims = [
        c for plan, call in plans if plan.refusal is None for c in estimate_claims(plan, call)
    ]
    return sorted(claims, key=lambda claim: -claim.amount)
