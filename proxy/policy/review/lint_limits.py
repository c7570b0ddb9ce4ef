"""Limits that a single call may be too large for, as it bounds nothing: told by ``headrace check``.

What such a call claims is asked of the same estimate that calls are admitted by, under the rules
that always hold and, one at a time, under each of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from proxy.limits.claims import claims_of
from proxy.plural import counted
from proxy.policy.decide.conditions import Always
from proxy.policy.decide.rules import Effects, Rule, joined
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.policy.files.source import Path_
from proxy.policy.review.sample_call import example, suppose
from proxy.types import Call, ModelCall, Plan
from proxy.types.limit import Claim
from proxy.usage import usd_text

USED = ("tokens", "usd")


def findings(snapshot: Snapshot, now: datetime) -> Iterator[tuple[Path_, str]]:
    """Yield a finding for each limit that is less than a call of one of its deployments claims."""
    reported: set[str] = set()
    for deployment in snapshot.deployments.values():
        call = suppose(example(deployment.name), {}, now)
        for effects in _known_effects(deployment):
            for claim in _claims(deployment, effects, call):
                limit = claim.limit
                if (
                    limit.name not in reported
                    and claim.amount > limit.capacity
                    and limit.kind in USED
                ):
                    reported.add(limit.name)
                    yield (*snapshot.limits[limit.name], limit.kind), _finding(deployment, claim)


def _finding(deployment: Deployment, claim: Claim) -> str:
    money = claim.limit.kind == "usd"
    amount = f"{usd_text(claim.amount)} USD" if money else counted(claim.amount, "token")
    call = f"one call of {deployment.name} that bounds nothing"
    return f"is smaller than {call}: {amount} are claimed"


def _known_effects(deployment: Deployment) -> Iterator[Effects]:
    rules = {rule.name: rule for section in deployment.sections for rule in section.rules}
    held = dict.fromkeys([_held(deployment, more) for more in (None, *rules.values())])
    for names in held:
        effects = joined(rules, names, ())
        if effects.refusal is None:
            yield effects


def _held(deployment: Deployment, more: Rule | None) -> tuple[str, ...]:
    """Return which rules hold for a call that only one with a condition holds for."""
    held = []
    for section in deployment.sections:
        for rule in section.rules:
            if not rule.shadow and (rule is more or isinstance(rule.when, Always)):
                held.append(rule.name)
                if section.first:
                    break
    return tuple(held)


def _claims(deployment: Deployment, effects: Effects, call: Call) -> tuple[Claim, ...]:
    targets = (effects.routes or deployment.routes).targets
    spare = deployment.fallback if effects.fallback is None else effects.fallback
    model_call = ModelCall(deployment.name, (*targets, *spare), changes=effects.changes)
    bounds = (*deployment.bounds, *effects.bounds)
    counting = tuple(bound for bound in bounds if bound.limit.name not in effects.without)
    return claims_of(
        Plan(
            revision="",
            key="",
            deployment=deployment.name,
            tags={},
            model_calls=(model_call,),
            bounds=counting,
        ),
        call,
    )
