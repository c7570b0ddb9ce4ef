"""Selects the deployment of a call, its tags, and the targets that have its stored state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from proxy.dialects.requests.upstream_request import choose_target_endpoint
from proxy.dialects.responses.state_refs import make_unknown_id_error
from proxy.errors import BadRequest, InvalidField, ModelNotFound, NotFound, RequestTooLarge
from proxy.errors.field_problems import (
    describe_ambiguity,
    describe_large_body,
    describe_unserved_models,
    describe_unusable_deployment,
)
from proxy.errors.words import join_names, shorten_to_ascii
from proxy.policy.decide.snapshot import KeyDeployment, Snapshot, VirtualKey
from proxy.types import Call, Plan, RequestHead, StateRef
from proxy.types.passthrough import MAX_QUERY_CHARS, PassthroughPath, PassthroughRequest
from proxy.types.target import ListedModel

DEPLOYMENT_HEADER = "x-headrace-deployment"


def select_deployment(key: VirtualKey, call: Call) -> tuple[KeyDeployment, PassthroughPath | None]:
    """Return the deployment of a call, and the path of a passthrough call.

    A call may name its deployment. Otherwise it is the only one that serves all models of the call,
    or the only default one of these. Raise ``RequestError`` if there is none.
    """
    head = call.head
    if head.deployment is not None and head.alternatives:
        # A weighted draw chose one of these. The key must have access to all of them.
        for alternative in (head.deployment, *head.alternatives):
            if alternative not in key.by_name:
                raise BadRequest(describe_unusable_deployment(alternative), param="deployment")
    if head.passthrough is not None:
        return _select_by_path(key, call, head.passthrough)
    name = head.deployment or call.deployment
    if name is not None:
        return _select_named(key, name, head), None
    return _select_by_model(key, call), None


def _select_by_model(key: VirtualKey, call: Call) -> KeyDeployment:
    if not call.requested_models:  # the call creates a conversation
        stores = list(filter(_stores_conversations, key.deployments.values()))
        if not stores:
            raise NotFound("No deployment of this key supports conversations.")
        return _require_one(stores, "deployment", "this path")
    candidates = key.find_deployments_serving_all(call.requested_models)
    if not candidates:
        raise ModelNotFound(describe_unserved_models(call.requested_models), param="model")
    return _require_one(candidates, "model", join_names(call.requested_models))


def _require_one(candidates: Sequence[KeyDeployment], param: str, subject: str) -> KeyDeployment:
    """Return the only deployment, or the only default one. Raise ``InvalidField`` otherwise."""
    key_deployment = VirtualKey.find_sole_or_default(candidates)
    if key_deployment is None:
        names = [candidate.deployment.name for candidate in candidates]
        raise InvalidField(param, describe_ambiguity(subject, names))
    return key_deployment


def _stores_conversations(key_deployment: KeyDeployment) -> bool:
    """Return True if a deployment has a target with Responses, which stores conversations."""
    deployment = key_deployment.deployment
    return not deployment.only_passthrough and any(
        choose_target_endpoint("responses", target) == "responses"
        for target in deployment.routes.candidates.active_targets
    )


def _select_by_path(
    key: VirtualKey, call: Call, request: PassthroughRequest
) -> tuple[KeyDeployment, PassthroughPath]:
    """Return the deployment for a passthrough path.

    It is the named one, otherwise the only one, or the only default one, that lists the path
    and serves the model. Raises ``RequestError`` if there is none, if the body is too large or
    the query too long.
    """
    name = call.head.deployment
    paths = [
        (key_deployment, path)
        for key_deployment in key.deployments.values()
        if (listed := key_deployment.deployment.passthrough) is not None
        and (path := listed.find(call.head.method, request.path)) is not None
    ]
    if not paths:
        raise NotFound("No deployment of this key lists this path under passthrough.")
    if name is not None:
        paths = [pair for pair in paths if pair[0] is key.by_name.get(name)]
        if not paths:
            raise NotFound(
                describe_unusable_deployment(name, "does not list this path"), param="deployment"
            )
    elif call.requested_models:
        paths = [pair for pair in paths if _serves_model(key, pair[0], call.requested_models[0])]
        if not paths:
            raise ModelNotFound(
                describe_unserved_models(call.requested_models, " on this path"), param="model"
            )
    default = _require_one(
        [key_deployment for key_deployment, _ in paths], "deployment", "this path"
    )
    path = next(path for key_deployment, path in paths if key_deployment is default)
    _check_request_sizes(path, call, request)
    return default, path


def _check_request_sizes(path: PassthroughPath, call: Call, request: PassthroughRequest) -> None:
    upload, max_bytes = call.upload, path.max_bytes
    if upload is not None and upload.length is not None and upload.length > max_bytes:
        raise RequestTooLarge(describe_large_body(max_bytes))
    if len(request.query) > MAX_QUERY_CHARS:
        raise BadRequest(f"The query string must not exceed {MAX_QUERY_CHARS} characters.")


def _serves_model(key: VirtualKey, key_deployment: KeyDeployment, model: str) -> bool:
    deployment_named = key.by_name.get(model)
    if deployment_named is not None:
        return deployment_named is key_deployment
    return model in key_deployment.deployment.routes.by_model


def _select_named(key: VirtualKey, name: str, head: RequestHead) -> KeyDeployment:
    key_deployment = key.by_name.get(name)
    param = DEPLOYMENT_HEADER if DEPLOYMENT_HEADER in head.headers else "deployment"
    if key_deployment is None:
        raise NotFound(describe_unusable_deployment(name), param=param)
    if key_deployment.deployment.only_passthrough:
        message = f'Deployment "{shorten_to_ascii(name)}" serves only its passthrough paths.'
        raise NotFound(message, param=param)
    return key_deployment


def select_models_by_url(key: VirtualKey, head: RequestHead) -> tuple[ListedModel, ...]:
    """Return the models of a key, each by one name, or by all names if the request asks for them.

    Raise ``ModelNotFound`` if the request names a model that the key may not use.
    """
    model, names = head.get_url_parameter("model"), head.get_url_parameter("names")
    if model is not None:
        if model not in key.models:
            raise ModelNotFound(describe_unserved_models([model]), param="model")
        return (key.models[model],)
    if names not in (None, "all"):
        raise InvalidField("names", 'must be "all"')
    return tuple(m for m in key.models.values() if m.is_main or names == "all")


def merge_tags(
    snapshot: Snapshot, key_deployment: KeyDeployment, head: RequestHead
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the tags of a call, and the names of the client's tags that are not allowed.

    The client may not change a tag of the key or of the deployment.
    """
    tags = dict(key_deployment.tags)
    dropped: list[str] = []
    for name, text in head.tags:
        value = "true" if text is None else text
        rule = snapshot.tags.get(name)
        is_allowed = rule is not None and rule.set_by_clients and rule.allowed.matches(value)
        if is_allowed and tags.get(name, value) == value:
            tags[name] = value
        elif snapshot.refuse_caller_tags:
            message = f'clients may not set tag "{shorten_to_ascii(name)}", or not to this value'
            raise InvalidField("tags", message)
        else:
            dropped.append(name)
    return MappingProxyType(dict(sorted(tags.items()))), tuple(dropped)


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
