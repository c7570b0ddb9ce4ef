"""What can still be looked at of policies whose shape is wrong: all but what is wrong itself.

Nothing of it ever comes into force. It is read so that what is wrong in meaning is told in the same
round as what is wrong in shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.policy import schema
from proxy.policy.files.source import Document, Path_

FINE = 16
ITEM = 4  # steps to an item of a key of a policy
ROUNDS = 20
CONTAINERS = (schema.PolicyConfig, schema.RuleConfig, schema.DeploymentConfig)
"""Parts that are looked at although their keys do not go together: others are named in them."""
STAND_IN = {"upstream": "none", "model": "none"}
REQUIRED = {("keys", "sha256"): "0" * 63 + "1", ("upstreams", "base_url"): "https://none.invalid"}
"""What is read in place of a field that is missing or wrong, so that the rest of its part is looked
at: by section and field."""


def salvaged(document: Document) -> schema.PoliciesConfig:
    """Return what is left of the document's policies, which notes what was left out.

    Leaving out a part may make another one wrong, which then goes too; after ``FINE`` rounds whole
    names go that still hold something wrong.
    """
    for number in range(ROUNDS):
        try:
            return _read(document)
        except ValidationError as error:
            most = None if number < FINE else 2
            details = error.errors(include_url=False)
            wrong = [_wrong(detail, document) for detail in details if not _lacks_targets(detail)]
            for path in wrong:
                document.leave_out(path[:most])
    return schema.PoliciesConfig()


def unmet(document: Document, left: schema.PoliciesConfig) -> Iterator[tuple[Path_, str]]:
    """Yield what is wrong with the keys of policies together, of those that have lost neither a key
    nor an item of one."""
    lost = {path[:2] for path in document.left_out if len(path) <= ITEM}
    for name, policy in left.policies.items():
        path: Path_ = ("policies", name)
        if not lost & {path, path[:1]}:
            yield from ((path, message) for message in policy.unmet())


def _read(document: Document) -> schema.PoliciesConfig:
    """Read what is left. Deployments that have lost all targets have none: they are read with a
    stand-in, as the rest of them may be wrong too."""
    bare = frozenset(_bare(document))
    data = _without(document, document.data, ())
    for (section, field), value in REQUIRED.items():
        for name, part in data.get(section, {}).items():
            if (section, name, field) in document.left_out:
                part[field] = value
    for name in bare:
        data["deployments"][name]["targets"] = [STAND_IN]
    read = schema.PoliciesConfig.model_validate(data, context=CONTAINERS)
    deployments = {
        name: deployment.model_copy(update={"targets": []}) if name in bare else deployment
        for name, deployment in read.deployments.items()
    }
    return read.model_copy(update={"deployments": deployments})


def _wrong(detail: ErrorDetails, document: Document) -> Path_:
    """Return the part that is to be left out so that an error goes."""
    path: Path_ = tuple(part for part in detail["loc"] if part != "[key]")
    if path[::2] in REQUIRED:
        return path
    return document.origin(path[:-1] if detail["type"] == "missing" else path)


def _lacks_targets(detail: ErrorDetails) -> bool:
    path = detail["loc"]
    return detail["type"] == "missing" and path[::2] == ("deployments", "targets")


def _bare(document: Document) -> Iterator[str]:
    deployments: Mapping[str, Any] = document.data.get("deployments", {})
    for name, deployment in deployments.items():
        path: Path_ = ("deployments", name)
        if not isinstance(deployment, dict) or document.left_out & {path, path[:1]}:
            continue
        left = _without(document, deployment, path)
        if not left.get("targets"):
            yield name


def _without(document: Document, value: Any, path: Path_) -> Any:
    """Return a copy of a value without the parts that are left out."""
    if isinstance(value, dict):
        return {
            key: _without(document, part, (*path, key))
            for key, part in value.items()
            if (*path, key) not in document.left_out
        }
    if isinstance(value, list):
        numbers = [n for n, _ in enumerate(value) if (*path, n) not in document.left_out]
        if len(numbers) < len(value):
            document.numbers[path] = numbers
        return [_without(document, value[n], (*path, n)) for n in numbers]
    return value
