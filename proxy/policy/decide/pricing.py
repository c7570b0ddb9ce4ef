"""Removes targets without a known price from calls that need one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proxy.money.usage import price_on
from proxy.policy.decide.snapshot import Deployment
from proxy.types import UNBILLED, Call, ModelCall, RuleRefusal, ScopedLimit, Target
from proxy.types.guard import GuardPlan
from proxy.types.target import missing_price

FREE_OUTPUT = frozenset({"embeddings", "passthrough"})
"""Endpoints whose output may be free."""


def is_priced(target: Target, call: Call) -> bool:
    """Return True if a whole price is known for the endpoint and the day of a call."""
    if target.always_priced or call.head.endpoint in UNBILLED:
        return True
    price = price_on(target.prices, call.head.received_at.date())
    return price is not None and missing_price(price, call.head.endpoint in FREE_OUTPUT) is None


def required_by(deployment: Deployment, limits: Sequence[ScopedLimit]) -> str | None:
    """Return the reason why a call needs a known price, or None if it needs none."""
    if deployment.refuse_unpriced:
        return "this deployment requires one"
    for scoped in limits:
        if scoped.needs_prices and not scoped.limit.shadow:
            return f'limit "{scoped.limit.name}" is in USD'
    return None


def _priced(targets: Sequence[Target], call: Call) -> tuple[Target, ...]:
    return tuple([target for target in targets if is_priced(target, call)])


def priced_model_calls(
    model_calls: tuple[ModelCall, ...], call: Call
) -> tuple[tuple[ModelCall, ...], tuple[ModelCall, ...]]:
    """Return the model calls with only their priced targets, and those that have no such target.

    The latter keep their targets.
    """
    unpriced: tuple[ModelCall, ...] = ()
    for index, model_call in enumerate(model_calls):
        for target in model_call.targets:
            if not target.always_priced:
                break
        else:
            continue
        targets = _priced(model_call.targets, call)
        if not targets:
            unpriced += (model_call,)
        elif len(targets) < len(model_call.targets):
            pool = len(_priced(model_call.targets[: model_call.pool_size], call)) or 1
            changed = replace(model_call, targets=targets, pool_size=pool)
            model_calls = (*model_calls[:index], changed, *model_calls[index + 1 :])
    return model_calls, unpriced


def priced_guards(guards: GuardPlan, call: Call) -> GuardPlan:
    """Return the guards with only the priced targets of the action ``route``."""
    for rule in guards.input:
        if rule.route_targets:
            rules = (
                replace(each, route_targets=_priced(each.route_targets, call))
                for each in guards.input
            )
            return replace(guards, input=tuple(rules))
    return guards


def refusal(model: str, reason: str) -> RuleRefusal:
    """Return the refusal of a model without a priced target. ``model`` must be printable ASCII."""
    message = f'No price is known for model "{model}", but {reason}. The operator can add it.'
    return RuleRefusal("unpriced", message, 403)
