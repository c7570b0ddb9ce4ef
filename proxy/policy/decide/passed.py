"""Which deployment serves a call for a path that is passed on, and what of a plan holds for it."""

from __future__ import annotations

from collections.abc import Mapping
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
    found = _listing(key, call.head.method, passed)
    asked = call.head.deployment
    if asked is not None:
        reach = key.deployments.get(asked) or key.known_as(asked)
        name = reach.deployment.name if reach is not None else ""
        if name not in found:
            raise NotFound(no_deployment(asked, " for this path"), param="deployment")
        return _checked(found[name], call, passed)
    if not found:
        raise NotFound("No deployment of this key lists this path under passthrough.")
    fitting = _serving(key, call, found)
    reach = key.default_of([passage.reach for passage in fitting.values()])
    if reach is None:
        raise BadField("deployment", ambiguous("this path", fitting))
    return _checked(fitting[reach.deployment.name], call, passed)


def _listing(key: VirtualKey, method: str, passed: PassedRequest) -> dict[str, Passage]:
    """Return the deployments of a key that list what is asked for, by name."""
    found: dict[str, Passage] = {}
    for name, reach in key.deployments.items():
        paths = reach.deployment.passthrough
        path = None if paths is None else paths.find(method, passed.path)
        if path is not None:
            found[name] = Passage(reach, path)
    return found


def _serving(key: VirtualKey, call: Call, found: Mapping[str, Passage]) -> Mapping[str, Passage]:
    """Return those that serve the model of a call; all for a call without one."""
    if not call.models:
        return found
    names = {reach.deployment.name for reach in key.named_at_paths.get(call.models[0], ())}
    fitting = {name: passage for name, passage in found.items() if name in names}
    if not fitting:
        raise ModelNotFound(no_model(call.models, " on this path"), param="model")
    return fitting


def _checked(passage: Passage, call: Call, passed: PassedRequest) -> Passage:
    """Return a passage. Raise ``TooLarge``, or ``BadRequest`` for too long a query."""
    most, upload = passage.path.most_bytes, call.upload
    if upload is not None and upload.length is not None and upload.length > most:
        raise TooLarge(too_large(most))
    if len(passed.query) > MOST_QUERY:
        raise BadRequest(f"The query string must not exceed {MOST_QUERY} characters.")
    return passage
