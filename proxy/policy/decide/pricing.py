"""What becomes of calls that nobody could price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proxy.policy.decide.snapshot import Deployment
from proxy.types import UNBILLED, Call, ModelCall, Refusal, ScopedLimit, Target
from proxy.types.guard import Guarding
from proxy.types.target import lack
from proxy.usage import in_force

RULE = "unpriced"
ASK_ALONE = frozenset({"embeddings", "passthrough"})
"""Endpoints whose answers may cost nothing by themselves."""


def is_priced(target: Target, call: Call) -> bool:
    """True if a whole price is in force on the call's day for what it asks."""
    if target.always_priced or call.head.endpoint in UNBILLED:
        return True
    price = in_force(target.prices, call.head.at.date())
    return price is not None and lack(price, call.head.endpoint in ASK_ALONE) is None


def unpriced_by(deployment: Deployment, bounds: Sequence[ScopedLimit]) -> str | None:
    """Return why a call is only served at a known price: the words for a refusal; None where it is
    served at any."""
    if deployment.refuse_unpriced:
        return "this deployment requires one"
    for bound in bounds:
        if bound.needs_prices and not bound.limit.shadow:
            return f'limit "{bound.limit.name}" is in USD'
    return None


def payable(targets: Sequence[Target], call: Call) -> tuple[Target, ...]:
    """Return the targets whose cost can be told afterwards."""
    return tuple([target for target in targets if is_priced(target, call)])


def payable_model_calls(
    model_calls: tuple[ModelCall, ...], call: Call
) -> tuple[tuple[ModelCall, ...], tuple[ModelCall, ...]]:
    """Return them without the targets whose cost is unknown, and those that have no others: they
    are left as they are."""
    kept = model_calls
    unpriced: tuple[ModelCall, ...] = ()
    for index, model_call in enumerate(model_calls):
        for target in model_call.targets:
            if not target.always_priced:
                left = _payable_model_call(model_call, call)
                kept = (*kept[:index], left, *kept[index + 1 :])
                if not is_priced(left.targets[0], call):
                    unpriced += (left,)
                break
    return kept, unpriced


def _payable_model_call(model_call: ModelCall, call: Call) -> ModelCall:
    targets = payable(model_call.targets, call)
    if not targets or len(targets) == len(model_call.targets):
        return model_call
    return replace(
        model_call,
        targets=targets,
        pool=len(payable(model_call.targets[: model_call.pool], call)) or 1,
    )


def payable_guards(guards: Guarding, call: Call) -> Guarding:
    """Leave the same out of where guards may route the call."""
    for rule in guards.input:
        if rule.to:
            break
    else:
        return guards
    rules = (replace(rule, to=payable(rule.to, call)) for rule in guards.input)
    return replace(guards, input=tuple(rules))


def refusal(model: str, why: str) -> Refusal:
    """Refuse a model none of whose targets has a price. ``model`` must be fit for a message."""
    return Refusal(
        RULE, f'No price is known for model "{model}", but {why}. The operator can add it.', 403
    )
