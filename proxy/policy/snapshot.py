"""One revision of the policies, compiled: everything a call needs is an index or an object here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

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
class Candidates:
    """Targets that can serve the same name. Without ``weights`` the first always does; with them
    both are in falling order of weight."""

    targets: tuple[Target, ...]
    weights: tuple[int, ...] = ()

    def order(self, draw: Callable[[], int]) -> tuple[Target, ...]:
        """Give the one that is drawn, then the others; one of weight 0 is never tried.

        ``draw`` gives an even number of many more bits than the sum of weights.
        """
        total = sum(self.weights)
        if not total:
            return self.targets[:1]
        point = draw() % total
        drawn = 0
        while point >= self.weights[drawn]:
            point -= self.weights[drawn]
            drawn += 1
        others = (t for i, t in enumerate(self.targets) if i != drawn and self.weights[i])
        return (self.targets[drawn], *others)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment. ``serves`` gives the candidates for a model's name."""

    name: str
    tags: Mapping[str, str]
    candidates: Candidates
    fallback: tuple[Target, ...]
    serves: Mapping[str, Candidates]
    sticky: Literal["key", "user"] | None = None

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.candidates.targets

    def attempts(self, model: str, draw: Callable[[], int]) -> tuple[Target, ...]:
        """Give the targets to try for a name; one that is not known leaves it to the policy."""
        return (*self.serves.get(model, self.candidates).order(draw), *self.fallback)


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
