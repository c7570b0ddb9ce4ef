"""One revision of the policies, compiled: everything a call needs is an index or an object here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.policy.patterns import Pattern
from proxy.types import Target


@dataclass(frozen=True, slots=True)
class TagRule:
    """Which values a tag may have: listed ones, those that fit, or just ``true`` when it is set."""

    values: frozenset[str] | None
    pattern: Pattern | None
    caller: bool

    def allows(self, value: str) -> bool:
        if self.values is not None:
            return value in self.values
        if self.pattern is not None:
            return self.pattern.fits(value)
        return value == "true"


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment with its targets in order. ``serves`` gives, for a model's name, the target
    that serves it and then the fallbacks."""

    name: str
    tags: Mapping[str, str]
    targets: tuple[Target, ...]
    fallback: tuple[Target, ...]
    serves: Mapping[str, tuple[Target, ...]]

    def attempts(self, model: str) -> tuple[Target, ...]:
        """Give the targets to try for a name; one that is not known leaves it to the policy."""
        return self.serves.get(model) or (self.targets[0], *self.fallback)


@dataclass(frozen=True, slots=True)
class Key:
    """A virtual key. ``named`` gives, for a model or deployment name, who of its own serves it."""

    name: str
    digest: bytes
    deployments: Mapping[str, Deployment]
    named: Mapping[str, tuple[Deployment, ...]]
    listing: tuple[str, ...]
    tags: Mapping[str, str]
    may_refresh: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is in force. ``keys`` are found by the SHA-256 of a credential."""

    revision: str
    keys: Mapping[bytes, Key]
    tags: Mapping[str, TagRule]
    refuse_caller_tags: bool
    deployments: Mapping[str, Deployment]
