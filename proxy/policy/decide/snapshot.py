"""A revision of the policies, compiled to objects and indexes that calls use."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from proxy.policy.decide.conditions import KnownFacts, facts_read
from proxy.policy.decide.routes import Candidates, Routes, Sticky
from proxy.policy.decide.rules import PolicyRules, Rule, RuleChain, compile_chain
from proxy.policy.files.source import KeyPath, SourceLocation
from proxy.policy.schema.tags import TagPattern
from proxy.runtime.frozen import frozen, memo
from proxy.types import CacheRule, Plan, Retry, ScopedLimit, Target
from proxy.types.guard import NO_GUARDS, GuardPlan, Preparable
from proxy.types.target import ListedModel

if TYPE_CHECKING:
    from proxy.types.passthrough import PassthroughPaths


@frozen
class TagRule:
    """The allowed values of a tag: listed values, a pattern, or ``true`` for a flag. Clients may
    set a ``caller`` tag."""

    values: frozenset[str] | None
    pattern: TagPattern | None
    caller: bool

    def allows(self, value: str) -> bool:
        if self.values is not None:
            return value in self.values
        if self.pattern is not None:
            return self.pattern.fits(value)
        return value == "true"


@frozen
class Deployment:
    """A deployment. ``names`` are all names by which calls select it, ``sections`` the rules of its
    policies in order of precedence. ``is_default`` decides between deployments that could serve
    the same call."""

    name: str
    names: frozenset[str]
    tags: Mapping[str, str]
    routes: Routes
    fallback: tuple[Target, ...]
    sticky: Sticky | None = None
    retry: Retry | None = None
    hedge_after: float | None = None
    sections: tuple[PolicyRules, ...] = ()
    bounds: tuple[ScopedLimit, ...] = ()
    cache: CacheRule | None = None
    guards: GuardPlan = NO_GUARDS
    refuse_unpriced: bool = False
    max_models: int = 32
    passthrough: PassthroughPaths | None = None
    only_passthrough: bool | None = None
    is_default: bool = False
    tells_keys_apart: bool = field(init=False, repr=False, compare=False)
    """True if a rule depends on the key of a call."""

    def __post_init__(self) -> None:
        tells_keys_apart = any("key" in facts_read(rule.when) for rule in self.rules)
        object.__setattr__(self, "tells_keys_apart", tells_keys_apart)

    def candidates(self, model: str, routes: Routes | None = None) -> Candidates:
        """Return the targets for a requested model. A name of the deployment, or an unknown one,
        may use all of them. ``routes`` are those of a rule."""
        routes = routes or self.routes
        if model in self.names:
            return routes.candidates
        return routes.serves.get(model, routes.candidates)

    @property
    def rules(self) -> Iterator[Rule]:
        """All rules in order of precedence."""
        return (rule for section in self.sections for rule in section.rules)

    @property
    def targets(self) -> Iterator[tuple[KeyPath, Target]]:
        """All targets of the deployment and its rules, with their paths."""
        own = (("deployments", self.name), self.routes.targets, self.fallback)
        of_rules = ((rule.path, rule.targets, rule.fallback or ()) for rule in self.rules)
        for path, targets, fallback in (own, *of_rules):
            yield from (((*path, "targets", n), target) for n, target in enumerate(targets))
            yield from (((*path, "fallback", n), target) for n, target in enumerate(fallback))

    def for_key(
        self, key: str, tags: Mapping[str, str], client_tags: frozenset[str]
    ) -> KeyDeployment:
        """Return the deployment for calls of a key with ``tags``. Clients may add any value of
        ``client_tags``."""
        chain = compile_chain(self.sections, KnownFacts(key, tags, client_tags))
        return KeyDeployment(self, tags, chain)


@frozen
class KeyDeployment:
    """A deployment for one key, with the tags of both and the rules that may match its calls."""

    deployment: Deployment
    tags: Mapping[str, str]
    chain: RuleChain | None = None

    def only_key(self, name: str) -> VirtualKey:
        """Return a key without a credential that may call only this deployment."""
        deployments = {self.deployment.name: self}
        return VirtualKey(
            name=name, deployments=deployments, named={}, listing={}, tags={}, may_refresh=False
        )


@frozen
class VirtualKey:
    """A virtual key. ``deployments`` are by name, ``by_name`` by all their names, and ``named`` by
    the models and names that they serve. ``listing`` are the entries of its list of models."""

    name: str
    deployments: Mapping[str, KeyDeployment]
    named: Mapping[str, tuple[KeyDeployment, ...]]
    listing: Mapping[str, ListedModel]
    tags: Mapping[str, str]
    may_refresh: bool
    controls_sampling: bool = False
    by_name: Mapping[str, KeyDeployment] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        deployments = self.deployments.values()
        by_name = {name: each for each in deployments for name in each.deployment.names}
        object.__setattr__(self, "by_name", by_name)

    @staticmethod
    def default_of(deployments: Sequence[KeyDeployment]) -> KeyDeployment | None:
        """Return the only deployment, or the only default one. None if a call must name one."""
        if len(deployments) != 1:
            deployments = [each for each in deployments if each.deployment.is_default]
        return deployments[0] if len(deployments) == 1 else None

    def serving(self, models: Sequence[str]) -> tuple[KeyDeployment, ...]:
        """Return the deployments that serve all models, or all if there are no models."""
        serving = self.named.get(models[0], ()) if models else tuple(self.deployments.values())
        for model in models[1:]:
            others = self.named.get(model, ())
            serving = tuple([each for each in serving if each in others])
        return serving


@frozen
class Credential:
    """A secret of a key, by its SHA-256. It is valid before ``until``."""

    digest: bytes
    key: VirtualKey
    until: datetime | None = None

    @property
    def label(self) -> str:
        """The first 8 hex digits of the digest, which distinguish it for people."""
        return self.digest.hex()[:8]

    def is_in_force(self, at: datetime) -> bool:
        """Return True if the credential has not expired. Snapshots contain no revoked ones."""
        return self.until is None or at < self.until


@frozen
class Snapshot:
    """An active revision.

    ``credentials`` are by SHA-256, without revoked ones, which are in ``revoked_credentials``.
    ``revoked`` are names and digests. ``places`` are the locations of all parts except prices,
    ``limits`` the paths of limits by name. ``headers`` are the headers that rules and draws read.
    ``prices_as_of`` is the date of the price table. ``wants_no_keys`` is True for ``keys: {}``.
    ``plans`` caches shared plans, see ``KeyCaller``. ``unprepared`` are detectors that load data
    before the first call. ``origins`` are the web origins that may call, ``*`` for all.
    ``secret_files`` are the paths of secrets in files, and the references of tokens.
    ``passthrough`` are the passthrough paths of all deployments.
    """

    revision: str
    keys: Mapping[str, VirtualKey]
    credentials: Mapping[bytes, Credential]
    tags: Mapping[str, TagRule]
    refuse_caller_tags: bool
    deployments: Mapping[str, Deployment]
    places: Mapping[KeyPath, SourceLocation] = field(default_factory=dict, repr=False)
    headers: frozenset[str] = frozenset()
    limits: Mapping[str, KeyPath] = field(default_factory=dict)
    prices_as_of: date | None = None
    revoked: frozenset[str] = frozenset()
    wants_no_keys: bool = False
    revoked_credentials: Mapping[bytes, Credential] = field(default_factory=dict)
    origins: frozenset[str] = frozenset()
    secret_files: frozenset[str] = frozenset()
    unprepared: tuple[Preparable, ...] = field(default=(), repr=False)
    passthrough: PassthroughPaths | None = None
    plans: dict[Hashable, Plan] = memo(dict)
    _by_key: Mapping[str, tuple[Credential, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_key: dict[str, tuple[Credential, ...]] = {}
        for credential in self.credentials.values():
            name = credential.key.name
            by_key[name] = (*by_key.get(name, ()), credential)
        object.__setattr__(self, "_by_key", MappingProxyType(by_key))

    def prepare(self) -> None:
        """Load what guards need before the first call: 0.1 s in steps of a few milliseconds."""
        for detector in self.unprepared:
            with suppress(Exception):  # each call reports the error
                detector.prepare()

    def load_rest(self) -> Iterator[None]:
        """Load what few texts need, in steps of a few milliseconds."""
        for detector in self.unprepared:
            with suppress(Exception):  # each call reports the error
                yield from detector.load_rest()

    def at(self, *path: str | int) -> str | None:
        """Return the ``file:line`` of a part, or of the nearest part around it."""
        while path and path not in self.places:
            path = path[:-1]
        place = self.places.get(path)
        return f"{place.file}:{place.line}" if place else None

    def key_named(self, name: str | None) -> VirtualKey | None:
        """Return the key of a name, valid or not. Calls use ``credentials``."""
        return self.keys.get(name) if name is not None else None

    def lapse_of(self, name: str, at: datetime, label: str | None = None) -> str | None:
        """Return the reason why a key is rejected at a time: unknown, revoked or expired.

        None if it is valid. With ``label`` only the credential with this label counts.
        """
        digests = self.revoked if label is not None else ()
        if name in self.revoked or any(digest.startswith(label or "") for digest in digests):
            return "revoked"
        credentials = [c for c in self._by_key.get(name, ()) if label in (None, c.label)]
        if any(credential.is_in_force(at) for credential in credentials):
            return None
        ends = [credential.until for credential in credentials if credential.until is not None]
        if ends:
            return f"expired at {max(ends).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return "revoked" if label is None and name in self.keys else "unknown"

    def without(self, revoked: Collection[str]) -> Snapshot:
        """Return the same revision with more keys and digests revoked."""
        all_revoked = self.revoked | frozenset(revoked)
        if all_revoked == self.revoked:
            return self
        valid: dict[bytes, Credential] = {}
        rejected = dict(self.revoked_credentials)
        for digest, credential in self.credentials.items():
            is_revoked = credential.key.name in all_revoked or digest.hex() in all_revoked
            (rejected if is_revoked else valid)[digest] = credential
        return replace(
            self,
            credentials=MappingProxyType(valid),
            revoked=all_revoked,
            revoked_credentials=MappingProxyType(rejected),
        )
