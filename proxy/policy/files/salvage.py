"""Validates the rest of policies that have schema errors.

The result is never served. It is compiled to report problems of meaning in the same run as problems
of the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.policy import schema
from proxy.policy.files.source import Document, KeyPath

FINE = 16
ITEM = 4  # steps to an item of a key of a policy
ROUNDS = 20
CONTAINERS = (schema.PolicyConfig, schema.RuleConfig, schema.DeploymentConfig)
"""Parts that are kept although their keys conflict, because they refer to other parts."""
STAND_IN = {"upstream": "none", "model": "none"}
REQUIRED = {("keys", "sha256"): "0" * 63 + "1", ("upstreams", "base_url"): "https://none.invalid"}
"""Values for fields that are missing or invalid, by section and field, so that the rest of the part
is validated."""


def salvaged(document: Document) -> schema.PoliciesConfig:
    """Return the valid parts. The document records the parts that are left out.

    Leaving out a part may invalidate another one, which is then left out in the next round. After
    ``FINE`` rounds, named parts are left out as a whole.
    """
    for number in range(ROUNDS):
        try:
            return _read(document)
        except ValidationError as error:
            depth = None if number < FINE else 2
            for detail in error.errors(include_url=False):
                is_missing = detail["type"] == "missing"
                if not is_missing or detail["loc"][::2] != ("deployments", "targets"):
                    document.leave_out(_invalid(detail, document)[:depth])
    return schema.PoliciesConfig()


def unmet(document: Document, config: schema.PoliciesConfig) -> Iterator[tuple[KeyPath, str]]:
    """Yield the unmet requirements of policies that have lost neither a key nor an item of one."""
    incomplete = {path[:2] for path in document.left_out if len(path) <= ITEM}
    for name, policy in config.policies.items():
        path: KeyPath = ("policies", name)
        if not incomplete & {path, path[:1]}:
            yield from ((path, message) for message in policy.unmet())


def _read(document: Document) -> schema.PoliciesConfig:
    """Validate the remaining parts. Deployments without targets are validated with a stand-in."""
    bare = frozenset(_bare(document))
    data = _without(document, document.data, ())
    for (section, field), value in REQUIRED.items():
        for name, part in data.get(section, {}).items():
            if (section, name, field) in document.left_out:
                part[field] = value
    for name in bare:
        data["deployments"][name]["targets"] = [STAND_IN]
    config = schema.PoliciesConfig.model_validate(data, context=CONTAINERS)
    deployments = {
        name: deployment.model_copy(update={"targets": []}) if name in bare else deployment
        for name, deployment in config.deployments.items()
    }
    return config.model_copy(update={"deployments": deployments})


def _invalid(detail: ErrorDetails, document: Document) -> KeyPath:
    """Return the path of the part to leave out because of an error."""
    path: KeyPath = tuple(part for part in detail["loc"] if part != "[key]")
    if path[::2] in REQUIRED:
        return path
    return document.origin(path[:-1] if detail["type"] == "missing" else path)


def _bare(document: Document) -> Iterator[str]:
    deployments: Mapping[str, Any] = document.data.get("deployments", {})
    for name, deployment in deployments.items():
        path: KeyPath = ("deployments", name)
        if not isinstance(deployment, dict) or document.left_out & {path, path[:1]}:
            continue
        if not _without(document, deployment, path).get("targets"):
            yield name


def _without(document: Document, value: Any, path: KeyPath) -> Any:
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
