"""Routes calls that use stored state of a provider to the target that has the state."""

from __future__ import annotations

from dataclasses import replace

from proxy.dialects.requests.upstream_request import choose_target_endpoint
from proxy.dialects.responses.state_refs import make_unknown_id_error
from proxy.errors import InvalidField, NotFound
from proxy.errors.field_problems import describe_ambiguity
from proxy.policy.decide.snapshot import KeyDeployment, VirtualKey
from proxy.types import Call, Plan, StateRef


def prefer_state_deployment_in_draw(call: Call, state_ref: StateRef) -> Call:
    """Return the call for the deployment of its state if a weighted draw could have chosen it."""
    head = call.head
    drawn = (head.deployment, *head.alternatives)
    if not head.alternatives or state_ref.deployment not in drawn:
        return call
    name = state_ref.deployment
    others = tuple(other for other in drawn if other not in (None, name))
    return replace(call, head=replace(head, deployment=name, alternatives=others))


def check_state_deployment_access(key: VirtualKey, call: Call, state_ref: StateRef) -> None:
    """Raise ``NotFound`` if the key may not use the deployment of the state.

    Also raise it if only the state selects the deployment, and it does not serve all models.
    """
    key_deployment = key.deployments.get(state_ref.deployment)
    is_named = call.head.deployment is not None or call.deployment != state_ref.deployment
    is_served = is_named or call.head.endpoint == "stored"
    if key_deployment is None or not (
        is_served or all(key_deployment in key.by_model.get(m, ()) for m in call.requested_models)
    ):
        raise make_unknown_id_error(call.head, state_ref.client_id, state_ref.param)


def select_conversation_deployment(key: VirtualKey) -> KeyDeployment:
    """Return the deployment that stores conversations, which needs a target with Responses.

    Raise ``NotFound`` if there is none, ``InvalidField`` if there are several and no default.
    """
    stores = {
        name: key_deployment
        for name, key_deployment in key.deployments.items()
        if not key_deployment.deployment.only_passthrough
        and any(
            choose_target_endpoint("responses", target) == "responses"
            for target in key_deployment.deployment.routes.candidates.active_targets
        )
    }
    if not stores:
        raise NotFound("No deployment of this key supports conversations.")
    default = key.find_sole_or_default(list(stores.values()))
    if default is None:
        raise InvalidField("deployment", describe_ambiguity("this path", stores))
    return default


def keep_state_targets(plan: Plan, call: Call, state_ref: StateRef) -> Plan:
    """Return a plan with only the targets that have the state.

    Raise ``NotFound`` if no target has it. Calls of conversations are not cached, because each call
    changes the conversation.
    """
    model_calls = []
    for model_call in plan.model_calls if plan.deployment == state_ref.deployment else ():
        targets = tuple(target for target in model_call.targets if state_ref.matches(target))
        if not (state_ref.is_conversation and call.head.endpoint == "responses"):
            targets = targets[:1]
        if targets:
            model_calls.append(replace(model_call, targets=targets, pool_size=1))
    if len(model_calls) != len(plan.model_calls) or plan.deployment != state_ref.deployment:
        raise make_unknown_id_error(call.head, state_ref.client_id, state_ref.param)
    cache = None if state_ref.is_conversation else plan.cache
    return replace(plan, model_calls=tuple(model_calls), hedge_after=None, cache=cache)
