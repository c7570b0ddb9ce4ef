"""Calls that nobody could price: what a deployment that says ``unpriced: refuse`` makes of them."""

from __future__ import annotations

from dataclasses import replace

from proxy.policy.snapshot import Deployment
from proxy.types import Call, Refusal, Target
from proxy.types.guard import Guarding
from proxy.usage import Tokens, in_force

RULE = "unpriced"


def payable(deployment: Deployment, call: Call, targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """Leave out what a deployment does not ask: targets whose cost nobody could tell afterwards."""
    if not deployment.refuse_unpriced:
        return targets
    return tuple(target for target in targets if is_priced(target, call))


def payable_guards(deployment: Deployment, call: Call, guards: Guarding) -> Guarding:
    """Leave the same out of where guards may route the call."""
    if not deployment.refuse_unpriced or not guards.detours:
        return guards
    came = (replace(rule, to=payable(deployment, call, rule.to)) for rule in guards.input)
    return replace(guards, input=tuple(came))


def is_priced(target: Target, call: Call) -> bool:
    """Say whether a price is in force on the call's day for what is asked and what is answered."""
    price = in_force(target.prices, call.door.at.date())
    answered = 0 if call.door.endpoint == "embeddings" else 1
    return price is not None and price.cost(Tokens(input=1, output=answered)) is not None


def refusal(model: str) -> Refusal:
    """Refuse a leg none of whose targets has a price. ``model`` must be fit for a message."""
    said = f"What {model} costs is not known, and this deployment serves nothing without a price."
    return Refusal(RULE, said, 403)
