"""Calls that lean on what a provider keeps: they go to the target that has it, or nowhere."""

from __future__ import annotations

from dataclasses import replace

from proxy.dialects import DIALECTS
from proxy.dialects.responses.sealing import unknown_id
from proxy.dialects.ways import target_endpoint
from proxy.errors import BadField, NotFound
from proxy.field_problems import ambiguous
from proxy.policy.decide.snapshot import Reach, VirtualKey
from proxy.types import Call, ModelCall, Pin, Plan


def redrawn(call: Call, pin: Pin) -> Call:
    """Return a call whose deployment was drawn with that of its pin, where it was one to draw."""
    head = call.head
    drawn = (head.deployment, *head.alternatives)
    if not head.alternatives or pin.deployment not in drawn:
        return call
    others = tuple(each for each in drawn if each is not None and each != pin.deployment)
    return replace(call, head=replace(head, deployment=pin.deployment, alternatives=others))


def check_pin(key: VirtualKey, call: Call, pin: Pin) -> None:
    """Raise ``NotFound`` where a key reaches the deployment of a pin no more, or where that does
    not serve the model that a call asks for and names by the pin alone."""
    reach = key.deployments.get(pin.deployment)
    if reach is None:
        raise unknown_id(call.head, pin.sealed, pin.param)
    is_named = call.head.deployment is not None or call.deployment != pin.deployment
    if is_named or call.head.endpoint == "stored":
        return
    if not all(reach in key.named.get(model, ()) for model in call.models):
        raise unknown_id(call.head, pin.sealed, pin.param)


def find_keeper(key: VirtualKey) -> Reach:
    """Return the deployment of a key that keeps conversations: a target of it speaks Responses.
    Raise ``NotFound``, and ``BadField`` if there are several and no default."""
    found = {name: reach for name, reach in key.deployments.items() if _keeps(reach)}
    if not found:
        raise NotFound("No deployment of this key supports conversations.")
    reach = key.default_of(list(found.values()))
    if reach is None:
        raise BadField("deployment", ambiguous("this path", found))
    return reach


def _keeps(reach: Reach) -> bool:
    deployment = reach.deployment
    return not deployment.only_passthrough and any(
        target_endpoint("responses", target, DIALECTS[target.upstream.dialect]) == "responses"
        for target in deployment.routes.candidates.active
    )


def pinned_plan(plan: Plan, call: Call, pin: Pin) -> Plan:
    """Return a plan with the target of a pin alone, or with those of the upstream that has the
    conversation, whose answers are never kept. Raises ``NotFound`` where policy does not send
    the call there."""
    if plan.deployment != pin.deployment:
        raise unknown_id(call.head, pin.sealed, pin.param)
    model_calls = tuple(_pinned(each, call, pin) for each in plan.model_calls)
    cache = None if pin.is_conversation else plan.cache  # what is kept there changes with each call
    return replace(plan, model_calls=model_calls, hedge_after=None, cache=cache)


def _pinned(model_call: ModelCall, call: Call, pin: Pin) -> ModelCall:
    targets = tuple(each for each in model_call.targets if pin.reaches(each))
    if not targets:
        raise unknown_id(call.head, pin.sealed, pin.param)
    several = pin.is_conversation and call.head.endpoint == "responses"
    return replace(model_call, targets=targets if several else targets[:1], pool=1)
