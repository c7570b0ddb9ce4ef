"""Selects the deployment that serves a call, and the tags of the call."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from proxy.errors import BadRequest, InvalidField, ModelNotFound, NotFound
from proxy.errors.field_problems import (
    describe_ambiguity,
    describe_unserved_models,
    describe_unusable_deployment,
)
from proxy.errors.words import join_names, shorten_to_ascii
from proxy.policy.decide.snapshot import KeyDeployment, Snapshot, VirtualKey
from proxy.types import Call, RequestHead
from proxy.types.target import ListedModel

if TYPE_CHECKING:
    from proxy.types.passthrough import PassthroughPath

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
        from proxy.policy.decide.passthrough import find_passthrough_path  # noqa: PLC0415  # few calls need it

        return find_passthrough_path(key, call, head.passthrough)
    name = head.deployment or call.deployment
    if name is not None:
        return _select_named(key, name, head), None
    return _select_by_model(key, call), None


def _select_by_model(key: VirtualKey, call: Call) -> KeyDeployment:
    if not call.requested_models:  # the call creates a conversation
        from proxy.policy.decide.stored_state import select_conversation_deployment  # noqa: PLC0415  # few need it

        return select_conversation_deployment(key)
    candidates = key.find_deployments_serving_all(call.requested_models)
    key_deployment = key.find_sole_or_default(candidates)
    if key_deployment is not None:
        return key_deployment
    if not candidates:
        raise ModelNotFound(describe_unserved_models(call.requested_models), param="model")
    names = [candidate.deployment.name for candidate in candidates]
    raise InvalidField("model", describe_ambiguity(join_names(call.requested_models), names))


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
