"""Names that a policy revision defines. Only these become metric labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import date
from typing import Literal

from proxy.runtime.frozen import frozen
from proxy.types import Target
from proxy.types.limit import Limit


def make_internal_key_name(caller: Literal["guard", "cache"], name: str) -> str:
    """Return the key name for calls of a guard or a deployment's cache. No virtual key has it."""
    return f"{caller}/{name}"


@frozen
class DeploymentLabels:
    """A deployment with all targets that it or its rules may use.

    ``tags`` are its default tags. ``guards`` are pairs of a stage and a name.
    """

    targets: tuple[Target, ...] = ()
    rules: tuple[str, ...] = ()
    guards: tuple[tuple[str, str], ...] = ()
    tags: frozenset[tuple[str, str]] = frozenset()
    limits: tuple[Limit, ...] = ()


@frozen
class LabelCatalog:
    """Bounded label values of one policy revision.

    ``tags`` has the values of each tag, none for a tag that only a pattern restricts.
    ``credentials`` are pairs of a key and a fingerprint. ``counters`` are pairs of a limit and a
    scope. ``prices_as_of`` is the date of the price table.
    """

    revision: str = ""
    keys: tuple[str, ...] = ()
    deployments: Mapping[str, DeploymentLabels] = field(default_factory=dict)
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    prices_as_of: date | None = None
    credentials: tuple[tuple[str, str], ...] = ()
    counters: tuple[tuple[Limit, str], ...] = ()

    def get_scope_labels(self, scope: str) -> dict[str, str]:
        """Return the dimensions and values of a counter's scope that the policies define.

        Stop at the first value that a client may choose, because it may contain ``|`` and a part.
        """
        labels: dict[str, str] = {}
        for part in scope.split("|"):
            name, _, value = part.partition(":")
            if not self.defines_value(name, value):
                break
            labels[name] = value
        return labels

    def defines_value(self, dimension: str, value: str) -> bool:
        """Return True if the policies define this value of a key, deployment, model or tag."""
        if dimension == "key":
            return value in self.keys
        if dimension == "deployment":
            return value in self.deployments
        listed = self.deployments.values()
        if dimension == "model":
            return any(target.model == value for d in listed for target in d.targets)
        tag = dimension.removeprefix("tag.")
        if tag == dimension:
            return False
        return value in self.tags.get(tag, ()) or any((tag, value) in d.tags for d in listed)
