"""Which deployment serves a call for a path that is passed on, and what of a plan holds for it."""

from __future__ import annotations

from typing import NamedTuple

from proxy.errors import BadField, BadRequest, ModelNotFound, NotFound, TooLarge
from proxy.field_problems import ambiguous, no_deployment, no_model, too_large
from proxy.policy.decide.snapshot import Reach, VirtualKey
from proxy.types import Call
from proxy.types.passthrough import MOST_QUERY, PassedPath, PassedRequest


class Passage(NamedTuple):
    """A deployment as a key reaches it, and the path of it that a call takes."""

    reach: Reach
    path: PassedPath


def find_passage(key: VirtualKey, call: Call, passed: PassedRequest) -> Passage:
    """Return the deployment that the call names, else the only one, or the only default one, of
    those of the key that list its path and serve its model, if it has one. Raise ``Refused``."""
    found, asked = _listing(key, call.head.method, passed), call.head.deployment
    if not found:
        raise NotFound("No deployment of this key lists this path under passthrough.")
    if asked is not None:
        found = [each for each in found if each.reach is key.by_name.get(asked)]
        if not found:
            raise NotFound(no_deployment(asked, "does not list this path"), param="deployment")
    elif call.models:
        found = [each for each in found if _serves(key, each.reach, call.models[0])]
        if not found:
            raise ModelNotFound(no_model(call.models, " on this path"), param="model")
    reach = key.default_of([each.reach for each in found])
    if reach is None:
        names = [each.reach.deployment.name for each in found]
        raise BadField("deployment", ambiguous("this path", names))
    return _checked(next(each for each in found if each.reach is reach), call, passed)


def _listing(key: VirtualKey, method: str, passed: PassedRequest) -> list[Passage]:
    """Return the deployments of a key that list what is asked for."""
    paths = [(each, each.deployment.passthrough) for each in key.deployments.values()]
    found = [(each, listed.find(method, passed.path)) for each, listed in paths if listed]
    return [Passage(each, path) for each, path in found if path is not None]


def _serves(key: VirtualKey, reach: Reach, model: str) -> bool:
    named = key.by_name.get(model)
    return model in reach.deployment.routes.serves if named is None else named is reach


def _checked(passage: Passage, call: Call, passed: PassedRequest) -> Passage:
    """Return a passage. Raise ``TooLarge``, or ``BadRequest`` for too long a query."""
    most, upload = passage.path.most_bytes, call.upload
    if upload is not None and upload.length is not None and upload.length > most:
        raise TooLarge(too_large(most))
    if len(passed.query) > MOST_QUERY:
        raise BadRequest(f"The query string must not exceed {MOST_QUERY} characters.")
    return passage
