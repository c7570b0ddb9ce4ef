"""A revision of the policies, compiled to objects and indexes that calls use."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from proxy.errors import Unauthorized
from proxy.policy.decide.conditions import StaticFacts, iter_used_facts
from proxy.policy.decide.routes import Candidates, Routes, StickyRouting
from proxy.policy.decide.rules import PolicyRules, Rule, RuleChain, compile_chain
from proxy.policy.files.source import KeyPath, SourceLocation
from proxy.policy.schema.keys import ValueSet
from proxy.runtime.frozen import empty_cache_field, frozen
from proxy.types import CacheRule, Plan, RequestHead, Retry, ScopedLimit, Target
from proxy.types.guard import NO_GUARDS, GuardPlan, Preparable
from proxy.types.target import ListedModel

if TYPE_CHECKING:
    from proxy.types.passthrough import PassthroughPaths


@frozen
class TagRule:
    """The allowed values of a tag, ``true`` for a flag."""

    allowed: ValueSet
    set_by_clients: bool


@frozen
class Deployment:
    """A compiled deployment."""

    name: str
    names: frozenset[str]
    """All names by which calls select it."""
    tags: Mapping[str, str]
    routes: Routes
    fallback: tuple[Target, ...]
    sticky: StickyRouting | None = None
    retry: Retry | None = None
    hedge_after: float | None = None
    sections: tuple[PolicyRules, ...] = ()
    """Rules of its policies, in order of precedence."""
    limits: tuple[ScopedLimit, ...] = ()
    cache: CacheRule | None = None
    guards: GuardPlan = NO_GUARDS
    refuse_unpriced: bool = False
    max_models: int = 32
    passthrough: PassthroughPaths | None = None
    only_passthrough: bool | None = None
    is_default: bool = False
    """True if it serves calls that several deployments of a key could serve."""
    has_key_rules: bool = field(init=False, repr=False, compare=False)
    """True if a rule depends on the key of a call."""

    def __post_init__(self) -> None:
        has_key_rules = any("key" in iter_used_facts(rule.when) for rule in self.rules)
        object.__setattr__(self, "has_key_rules", has_key_rules)

    def get_candidates(self, model: str, routes: Routes | None = None) -> Candidates:
        """Return the targets for a requested model, under the ``routes`` of a rule if given.

        For a name of the deployment, or an unknown model, these are all targets.
        """
        routes = routes or self.routes
        if model in self.names:
            return routes.candidates
        return routes.by_model.get(model, routes.candidates)

    @property
    def rules(self) -> Iterator[Rule]:
        """All rules in order of precedence."""
        return (rule for section in self.sections for rule in section.rules)

    @property
    def guard_plans(self) -> list[GuardPlan]:
        """Guards of the deployment, and of each of its rules."""
        return [self.guards, *(rule.guards for rule in self.rules)]

    @property
    def scoped_limits(self) -> list[ScopedLimit]:
        """Limits of the deployment and of its rules."""
        return [*self.limits, *(scoped for rule in self.rules for scoped in rule.limits)]

    @property
    def targets(self) -> Iterator[tuple[KeyPath, Target]]:
        """All targets of the deployment and its rules, with their paths."""
        path: KeyPath = ("deployments", self.name)
        lists = [(path, self.routes.targets, self.fallback)]
        lists += [(rule.path, rule.route_targets, rule.fallback or ()) for rule in self.rules]
        for path, targets, fallback in lists:
            yield from (((*path, "targets", n), target) for n, target in enumerate(targets))
            yield from (((*path, "fallback", n), target) for n, target in enumerate(fallback))

    def bind_to_key(
        self, key: str, tags: Mapping[str, str], client_tags: frozenset[str]
    ) -> KeyDeployment:
        """Return the deployment for a key with ``tags``. Clients may add ``client_tags``."""
        chain = compile_chain(self.sections, StaticFacts(key, tags, client_tags))
        return KeyDeployment(self, tags, chain)


@frozen
class KeyDeployment:
    """A deployment for one key, with the tags of both and the rules that may match its calls."""

    deployment: Deployment
    tags: Mapping[str, str]
    chain: RuleChain | None = None

    def make_internal_key(self, name: str) -> VirtualKey:
        """Return a key without a credential that may call only this deployment."""
        deployments = {self.deployment.name: self}
        return VirtualKey(
            name=name, deployments=deployments, by_model={}, models={}, tags={}, may_refresh=False
        )


@frozen
class VirtualKey:
    """A virtual key, with its deployments by their names."""

    name: str
    deployments: Mapping[str, KeyDeployment]
    by_model: Mapping[str, tuple[KeyDeployment, ...]]
    """Deployments that serve each model name or deployment name."""
    models: Mapping[str, ListedModel]
    """Names that calls may use, as listed for clients."""
    tags: Mapping[str, str]
    may_refresh: bool
    controls_sampling: bool = False
    by_name: Mapping[str, KeyDeployment] = field(init=False, repr=False, compare=False)
    """Deployments by each of their names."""

    def __post_init__(self) -> None:
        by_name = {name: d for d in self.deployments.values() for name in d.deployment.names}
        object.__setattr__(self, "by_name", by_name)

    @staticmethod
    def find_sole_or_default(deployments: Sequence[KeyDeployment]) -> KeyDeployment | None:
        """Return the only deployment, or the only default one. None if a call must name one."""
        if len(deployments) != 1:
            deployments = [d for d in deployments if d.deployment.is_default]
        return deployments[0] if len(deployments) == 1 else None

    def find_deployments_serving_all(self, models: Sequence[str]) -> tuple[KeyDeployment, ...]:
        """Return the deployments that serve all models, or all if there are no models."""
        deployments = self.by_model.get(models[0], ()) if models else (*self.deployments.values(),)
        for model in models[1:]:
            serving = self.by_model.get(model, ())
            deployments = tuple([d for d in deployments if d in serving])
        return deployments


@frozen
class Credential:
    """A secret of a key, by its SHA-256. It is valid before ``expires_at``."""

    digest: bytes
    key: VirtualKey
    expires_at: datetime | None = None

    @property
    def label(self) -> str:
        """First 8 hex digits of the digest."""
        return self.digest.hex()[:8]

    def is_valid(self, time: datetime) -> bool:
        return self.expires_at is None or time < self.expires_at


@frozen
class Snapshot:
    """A compiled revision of the policies."""

    revision: str
    keys: Mapping[str, VirtualKey]
    credentials: Mapping[bytes, Credential]
    """Credentials that are not revoked, by SHA-256."""
    tags: Mapping[str, TagRule]
    refuse_caller_tags: bool
    deployments: Mapping[str, Deployment]
    locations: Mapping[KeyPath, SourceLocation] = field(default_factory=dict, repr=False)
    """Locations of all parts except prices."""
    headers: frozenset[str] = frozenset()
    """Request headers that rules and sticky draws read."""
    limit_paths: Mapping[str, KeyPath] = field(default_factory=dict)
    """Paths of limits in the policies, by name."""
    prices_as_of: date | None = None
    """Date of the price table, if it is used."""
    revoked: frozenset[str] = frozenset()
    """Revoked key names and digests."""
    has_empty_keys: bool = False
    """True for ``keys: {}``."""
    revoked_credentials: Mapping[bytes, Credential] = field(default_factory=dict)
    origins: frozenset[str] = frozenset()
    """Web origins that may call, ``*`` for all."""
    secret_files: frozenset[str] = frozenset()
    """Paths of secrets in files, and references of cloud tokens."""
    unprepared_parts: tuple[Preparable, ...] = field(default=(), repr=False)
    """Detectors that load data before the first call."""
    passthrough: PassthroughPaths | None = None
    referenced_names: Mapping[str, Collection[str]] = field(default_factory=dict, repr=False)
    """Names to which other parts refer, by section."""
    plans: dict[Hashable, Plan] = empty_cache_field(dict)
    """Shared plans, see ``KeyCaller.decide``."""
    _by_key: Mapping[str, list[Credential]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_key: dict[str, list[Credential]] = {}
        for credential in self.credentials.values():
            by_key.setdefault(credential.key.name, []).append(credential)
        object.__setattr__(self, "_by_key", by_key)

    def prepare(self) -> None:
        """Load the data that all calls with guards need, in steps of a few milliseconds."""
        for detector in self.unprepared_parts:
            with suppress(Exception):  # each call reports the error
                detector.prepare()

    def iter_loading_steps(self) -> Iterator[None]:
        """Load the data that few texts need, a few milliseconds per step. Yield after each step."""
        for detector in self.unprepared_parts:
            with suppress(Exception):  # each call reports the error
                yield from detector.iter_loading_steps()

    def find_location(self, *path: str | int) -> str | None:
        """Return the ``file:line`` of a part, or of the nearest part around it."""
        while path and path not in self.locations:
            path = path[:-1]
        location = self.locations.get(path)
        return f"{location.file}:{location.line}" if location else None

    def identify(self, head: RequestHead) -> Credential:
        """Return the credential of a request. Raise ``Unauthorized``, always with one message."""
        digest = head.digest
        if digest is None:
            raise Unauthorized
        credential = self.credentials.get(digest)
        if credential is None or not hmac.compare_digest(credential.digest, digest):
            revoked = self.revoked_credentials.get(digest)
            if revoked is not None:
                raise Unauthorized("revoked", revoked.key.name)
            raise Unauthorized("revoked" if digest.hex() in self.revoked else "unknown")
        if credential.expires_at is not None and not credential.is_valid(head.received_at):
            raise Unauthorized("expired", credential.key.name)
        return credential

    def find_key(self, name: str | None) -> VirtualKey | None:
        """Return the key of a name, even if it is revoked or expired."""
        return self.keys.get(name) if name is not None else None

    def find_rejection_reason(
        self, name: str, time: datetime, label: str | None = None
    ) -> str | None:
        """Return the reason why a key is invalid at a time: unknown, revoked or expired.

        None if it is valid. With ``label`` only the credential with this label counts.
        """
        digests = self.revoked if label is not None else ()
        if name in self.revoked or any(digest.startswith(label or "") for digest in digests):
            return "revoked"
        credentials = [c for c in self._by_key.get(name, ()) if label in (None, c.label)]
        if any(credential.is_valid(time) for credential in credentials):
            return None
        times = [c.expires_at for c in credentials if c.expires_at is not None]
        if times:
            return f"expired at {max(times).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return "revoked" if label is None and name in self.keys else "unknown"

    def revoke(self, names_and_digests: Collection[str]) -> Snapshot:
        """Return the same revision with more keys and digests revoked."""
        all_revoked = self.revoked | frozenset(names_and_digests)
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
