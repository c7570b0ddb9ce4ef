"""Warnings about limits that reject a single call without an output limit.

Uses the estimate that admits calls, under the rules that always apply and, one at a time, under
each of the others. Of deployments whose calls claim the same, only the first is inspected.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from proxy.errors import ProxyError
from proxy.limits.claims import claims_of
from proxy.policy.decide import decide
from proxy.policy.decide.conditions import ALWAYS
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.source import Finding
from proxy.policy.review.sample_call import example, suppose
from proxy.types import Call, ScopedLimit
from proxy.types.limit import Claim
from proxy.words import quoted


def findings(snapshot: Snapshot, now: datetime) -> Iterator[Finding]:
    """Yield a warning for each limit that is less than one call reserves."""
    reported: set[str] = set()
    for deployment in _unlike(snapshot.deployments.values()):
        calls = list(_calls(deployment, now))
        for supposed in _supposed(deployment):
            for claim in _claims(snapshot, supposed, calls):
                limit = claim.limit
                if (
                    limit.name not in reported
                    and claim.amount > limit.capacity
                    and limit.kind.estimated
                ):
                    reported.add(limit.name)
                    at = (*snapshot.limits[limit.name], limit.kind.name)
                    yield at, _finding(deployment, claim)


def _unlike(deployments: Collection[Deployment]) -> Collection[Deployment]:
    """Return the first of those deployments that differ in the names of models alone.

    An estimate does not depend on such a name, unless a rule mentions it too.
    """
    sections = {section.policy: section for each in deployments for section in each.sections}
    rules = [rule for section in sections.values() for rule in section.rules]
    mentioned = {rule.model for rule in rules} | {
        target.model for rule in rules for target in (*rule.targets, *(rule.fallback or ()))
    }
    first: dict[Hashable, Deployment] = {}
    for each in deployments:
        first.setdefault(_shape(each, mentioned), each)
    return first.values()


def _shape(deployment: Deployment, mentioned: Set[str | None]) -> Hashable:
    """Return what claims of calls depend on, with numbers in place of models' names."""
    routes, models = deployment.routes, dict[str, object].fromkeys(deployment.names)
    targets = []
    for target in (*routes.targets, *routes.candidates.targets, *deployment.fallback):
        number = len(models) if mentioned.isdisjoint(target.names) else target.model
        model = models.setdefault(target.model, number)
        targets.append((target.upstream.name, target.endpoint, target.prices, model))
    return (
        tuple(section.policy for section in deployment.sections),
        tuple(bound.limit.name for bound in deployment.bounds),
        (deployment.refuse_unpriced, deployment.only_passthrough, len(deployment.fallback)),
        (routes.candidates.weights, routes.candidates.balanced),
        tuple(targets),
    )


def _finding(deployment: Deployment, claim: Claim) -> str:
    amount = claim.limit.kind.amount_text(claim.amount)
    name = quoted(deployment.name)
    return (
        f"is less than one call of deployment {name} without an output limit reserves: {amount}. "
        "Raise the limit, or cap max_tokens."
    )


def _calls(deployment: Deployment, now: datetime) -> Iterator[Call]:
    """Yield a short chat call with each model of a deployment, if it serves chat."""
    if deployment.only_passthrough:
        return
    models = dict.fromkeys((deployment.name, *(target.model for _, target in deployment.targets)))
    for model in models:
        with suppress(ProxyError):  # a name that no client could send
            yield suppose(example(model), {"x-headrace-deployment": deployment.name}, now)


def _supposed(deployment: Deployment) -> Iterator[Deployment]:
    """Yield a deployment with only the rules that always apply, and with each other rule added."""
    always = {rule.name for rule in deployment.rules if rule.when == ALWAYS}
    bounds = [bound for rule in deployment.rules if rule.name in always for bound in rule.bounds]
    is_limited = _is_estimated(*deployment.bounds, *bounds)
    others = (rule for rule in deployment.rules if rule.name not in always)
    for other in (None, *others):
        if not (is_limited or (other is not None and _is_estimated(*other.bounds))):
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


def _is_estimated(*bounds: ScopedLimit) -> bool:
    """Return True if a limit counts amounts that are estimated before the call."""
    return any(bound.limit.kind.estimated for bound in bounds)


def _claims(snapshot: Snapshot, deployment: Deployment, calls: Iterable[Call]) -> list[Claim]:
    """Return the claims of calls that are not rejected, largest first."""
    key = deployment.reached_by("", deployment.tags, frozenset()).alone("")
    plans = [(decide(snapshot, key, call), call) for call in calls]
    found = [c for plan, call in plans if plan.refusal is None for c in claims_of(plan, call)]
    return sorted(found, key=lambda claim: -claim.amount)
