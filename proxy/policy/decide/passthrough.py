"""Selects the deployment and the path of a passthrough call."""

from __future__ import annotations

from proxy.errors import BadRequest, InvalidField, ModelNotFound, NotFound, RequestTooLarge
from proxy.errors.field_problems import (
    describe_ambiguity,
    describe_large_body,
    describe_unserved_models,
    describe_unusable_deployment,
)
from proxy.policy.decide.snapshot import KeyDeployment, VirtualKey
from proxy.types import Call
from proxy.types.passthrough import MAX_QUERY_CHARS, PassthroughPath, PassthroughRequest


def find_passthrough_path(
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
    default = key.find_sole_or_default([key_deployment for key_deployment, _ in paths])
    if default is None:
        names = [key_deployment.deployment.name for key_deployment, _ in paths]
        raise InvalidField("deployment", describe_ambiguity("this path", names))
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
