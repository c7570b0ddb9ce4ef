"""One revision of the policies, compiled: everything a call needs is an index or an object here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from proxy.policy.patterns import Pattern
from proxy.policy.routes import Routes, Sticky
from proxy.policy.rules import Course, Section
from proxy.policy.source import Path_, Place
from proxy.types import Bound, CacheRule, Retry, Target
from proxy.types.guard import UNGUARDED, Guarding


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
    """A deployment, with the sections of rules that it follows, in order."""

    name: str
    tags: Mapping[str, str]
    routes: Routes
    fallback: tuple[Target, ...]
    sticky: Sticky | None = None
    retry: Retry | None = None
    hedge_after: float | None = None
    sections: tuple[Section, ...] = ()
    bounds: tuple[Bound, ...] = ()
    cache: CacheRule | None = None
    guards: Guarding = UNGUARDED
    refuse_unpriced: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """A deployment as one key reaches it: ``tags`` are the key's over the deployment's, ``course``
    the rules that may hold for its calls."""

    deployment: Deployment
    tags: Mapping[str, str]
    course: Course | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """A virtual key. ``named`` gives, for a model or deployment name, who of its own serves it."""

    name: str
    digest: bytes
    deployments: Mapping[str, Reach]
    named: Mapping[str, tuple[Reach, ...]]
    listing: tuple[str, ...]
    tags: Mapping[str, str]
    may_refresh: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is in force. ``keys`` are found by the SHA-256 of a credential.

    ``places`` tell where each part was written, but for prices: there are too many of them.
    ``headers`` are the names of those that a rule or a draw looks at, ``limits`` say where each
    limit is written. ``prices_as_of`` is the day on which the table of prices was taken.
    """

    revision: str
    keys: Mapping[bytes, Key]
    tags: Mapping[str, TagRule]
    refuse_caller_tags: bool
    deployments: Mapping[str, Deployment]
    places: Mapping[Path_, Place] = field(default_factory=dict, repr=False)
    headers: frozenset[str] = frozenset()
    limits: Mapping[str, Path_] = field(default_factory=dict)
    prices_as_of: date | None = None

    def key_named(self, name: str | None) -> Key | None:
        """Find a key by its name, for people who ask; calls find theirs by its digest."""
        return next((key for key in self.keys.values() if key.name == name), None)
