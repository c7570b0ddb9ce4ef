"""Routes calls that use stored state of a provider: only to the target that has the state."""

from __future__ import annotations

from dataclasses import replace

from proxy.dialects import DIALECTS
from proxy.dialects.responses.state_refs import unknown_id
from proxy.dialects.ways import target_endpoint
from proxy.errors import InvalidField, NotFound
from proxy.errors.field_problems import ambiguous
from proxy.policy.decide.snapshot import KeyDeployment, VirtualKey
from proxy.types import Call, Plan, StateRef


def select_pinned(call: Call, pin: StateRef) -> Call:
    """Return a call for the deployment of its pin, if that is among those of a draw."""
    head = call.head
    drawn = (head.deployment, *head.alternatives)
    if not head.alternatives or pin.deployment not in drawn:
        return call
    others = tuple(each for each in drawn if each is not None and each != pin.deployment)
    return replace(call, head=replace(head, deployment=pin.deployment, alternatives=others))


def check_pin(key: VirtualKey, call: Call, pin: StateRef) -> None:
    """Raise ``NotFound`` if the key may no longer use the deployment of a pin.

    Also if that does not serve the models of a call that names it only by the pin.
    """
    reach = key.deployments.get(pin.deployment)
    is_named = call.head.deployment is not None or call.deployment != pin.deployment
    is_served = is_named or call.head.endpoint == "stored"
    if reach is None or not (
        is_served or all(reach in key.named.get(model, ()) for model in call.requested_models)
    ):
        raise unknown_id(call.head, pin.client_id, pin.param)


def find_keeper(key: VirtualKey) -> KeyDeployment:
    """Return the deployment that stores conversations: a target of it supports Responses. Raise
    ``NotFound`` if there is none, ``InvalidField`` if there are several and no default."""
    keepers = {name: reach for name, reach in key.deployments.items() if _keeps(reach)}
    if not keepers:
        raise NotFound("No deployment of this key supports conversations.")
    reach = key.default_of(list(keepers.values()))
    if reach is None:
        raise InvalidField("deployment", ambiguous("this path", keepers))
    return reach


def _keeps(reach: KeyDeployment) -> bool:
    deployment = reach.deployment
    return not deployment.only_passthrough and any(
        target_endpoint("responses", target, DIALECTS[target.upstream.dialect]) == "responses"
        for target in deployment.routes.candidates.active
    )


def pinned_plan(plan: Plan, call: Call, pin: StateRef) -> Plan:
    """Return a plan with only the targets that have the state of a pin. Raise ``NotFound`` if the
    plan has none. Each call changes its conversation, so it is not cached."""
    model_calls = []
    for model_call in plan.model_calls if plan.deployment == pin.deployment else ():
        targets = tuple(target for target in model_call.targets if pin.matches(target))
        if not (pin.is_conversation and call.head.endpoint == "responses"):
            targets = targets[:1]
        if targets:
            model_calls.append(replace(model_call, targets=targets, pool_size=1))
    if len(model_calls) != len(plan.model_calls) or plan.deployment != pin.deployment:
        raise unknown_id(call.head, pin.client_id, pin.param)
    cache = None if pin.is_conversation else plan.cache
    return replace(plan, model_calls=tuple(model_calls), hedge_after=None, cache=cache)
