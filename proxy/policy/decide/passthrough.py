"""Selects the deployment and the path of a passthrough call."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.errors import BadRequest, InvalidField, ModelNotFound, NotFound, RequestTooLarge
from proxy.errors.field_problems import ambiguous, no_deployment, no_model, too_large
from proxy.policy.decide.snapshot import KeyDeployment, VirtualKey
from proxy.types import Call
from proxy.types.passthrough import MOST_QUERY, PassthroughPath, PassthroughRequest


def find_path(
    key: VirtualKey, call: Call, request: PassthroughRequest
) -> tuple[KeyDeployment, PassthroughPath]:
    """Return the deployment that a call names, otherwise the only one, or the only default one,
    that lists the path and serves the model. Raise ``Refused`` if there is none."""
    name, candidates = call.head.deployment, list(_listing(key, call.head.method, request))
    if not candidates:
        raise NotFound("No deployment of this key lists this path under passthrough.")
    if name is not None:
        candidates = [each for each in candidates if each[0] is key.by_name.get(name)]
        if not candidates:
            raise NotFound(no_deployment(name, "does not list this path"), param="deployment")
    elif call.requested_models:
        candidates = [
            each for each in candidates if _serves(key, each[0], call.requested_models[0])
        ]
        if not candidates:
            raise ModelNotFound(no_model(call.requested_models, " on this path"), param="model")
    default = key.default_of([reach for reach, _ in candidates])
    if default is None:
        names = [reach.deployment.name for reach, _ in candidates]
        raise InvalidField("deployment", ambiguous("this path", names))
    path = next(path for reach, path in candidates if reach is default)
    _check_size(path, call, request)
    return default, path


def _listing(
    key: VirtualKey, method: str, request: PassthroughRequest
) -> Iterator[tuple[KeyDeployment, PassthroughPath]]:
    """Yield the deployments that list the path of a request."""
    for reach in key.deployments.values():
        paths = reach.deployment.passthrough
        path = paths.find(method, request.path) if paths else None
        if path is not None:
            yield reach, path


def _serves(key: VirtualKey, reach: KeyDeployment, model: str) -> bool:
    named = key.by_name.get(model)
    return model in reach.deployment.routes.serves if named is None else named is reach


def _check_size(path: PassthroughPath, call: Call, request: PassthroughRequest) -> None:
    """Raise ``RequestTooLarge`` for a large body, or ``BadRequest`` for a long query."""
    max_bytes, upload = path.most_bytes, call.upload
    if upload is not None and upload.length is not None and upload.length > max_bytes:
        raise RequestTooLarge(too_large(max_bytes))
    if len(request.query) > MOST_QUERY:
        raise BadRequest(f"The query string must not exceed {MOST_QUERY} characters.")
