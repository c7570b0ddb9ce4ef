"""The names that a revision of the policies closes: only these may become labels of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import date
from typing import Literal

from proxy.runtime.frozen import frozen
from proxy.types import Target
from proxy.types.limit import Limit


def internal_key(caller: Literal["guard", "cache"], name: str) -> str:
    """Return the key of calls that a guard, or the cache of a deployment, makes by itself. No
    virtual key can have such a name."""
    return f"{caller}/{name}"


@frozen
class ListedDeployment:
    """A deployment: every target that it or one of its rules may use, and what its calls meet.

    ``tags`` are the pairs that its calls carry unless the caller says more; ``guards`` are pairs of
    a stage and a name.
    """

    targets: tuple[Target, ...] = ()
    rules: tuple[str, ...] = ()
    guards: tuple[tuple[str, str], ...] = ()
    tags: frozenset[tuple[str, str]] = frozenset()
    limits: tuple[Limit, ...] = ()


@frozen
class LabelCatalog:
    """``tags`` gives the values of each tag, none for one whose values only a pattern bounds.

    ``credentials`` are pairs of a key and the short form of one of its digests.
    ``counters`` are those of limits that a scrape shows one by one.
    ``prices_as_of`` is the day on which the table of prices was taken.
    """

    revision: str = ""
    keys: tuple[str, ...] = ()
    deployments: Mapping[str, ListedDeployment] = field(default_factory=dict)
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    prices_as_of: date | None = None
    credentials: tuple[tuple[str, str], ...] = ()
    counters: tuple[tuple[Limit, str], ...] = ()

    def owners(self, scope: str) -> dict[str, str]:
        """Return whose a counter is, by what its limit is per, as far as the policies name it.

        What callers choose may hold anything, even what looks like a part of a scope, so nothing is
        read from there on.
        """
        found: dict[str, str] = {}
        for part in scope.split("|"):
            name, _, value = part.partition(":")
            if not self.names(name, value):
                break
            found[name] = value
        return found

    def names(self, per: str, value: str) -> bool:
        """True if a key, deployment, model or tag of such a value stands in the policies."""
        if per == "key":
            return value in self.keys
        if per == "deployment":
            return value in self.deployments
        listed = self.deployments.values()
        if per == "model":
            return any(target.model == value for each in listed for target in each.targets)
        tag = per.removeprefix("tag.")
        if tag == per:
            return False
        return value in self.tags.get(tag, ()) or any((tag, value) in each.tags for each in listed)
