"""One revision of the policies, compiled: everything a call needs is an index or an object here."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from proxy.frozen import frozen, memo
from proxy.policy.decide.conditions import KnownFacts, reads_key
from proxy.policy.decide.routes import Candidates, Routes, Sticky
from proxy.policy.decide.rules import PolicyRules, Rule, RuleChain, compile_chain
from proxy.policy.files.source import Path_, SourceLocation
from proxy.policy.schema.patterns import TagPattern
from proxy.types import CacheRule, Plan, Retry, ScopedLimit, Target
from proxy.types.guard import UNGUARDED, Guarding, Preparable
from proxy.types.target import ListedModel

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedPaths


@frozen
class TagRule:
    """Which values a tag may have: listed ones, those that fit, or just ``true`` when it is set."""

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
    """A deployment, with the sections of rules that it follows, in order. ``names`` are all names
    by which calls may say it. A ``is_default`` one takes calls that several could take."""

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
    guards: Guarding = UNGUARDED
    refuse_unpriced: bool = False
    max_models: int = 32
    passthrough: PassedPaths | None = None
    only_passthrough: bool | None = None
    is_default: bool = False
    tells_keys_apart: bool = field(init=False, repr=False, compare=False)
    """Whether a rule depends on which key calls."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "tells_keys_apart", any(reads_key(rule.when) for rule in self.rules)
        )

    def candidates(self, model: str, routes: Routes | None = None) -> Candidates:
        """Return the targets for a requested model, among its own or those that a rule picks: those
        that serve it, or all for a name of the deployment and for an unknown one."""
        routes = routes or self.routes
        if model in self.names:
            return routes.candidates
        return routes.serves.get(model, routes.candidates)

    @property
    def rules(self) -> Iterator[Rule]:
        """All rules that it follows, in order."""
        return (rule for section in self.sections for rule in section.rules)

    @property
    def targets(self) -> Iterator[tuple[Path_, Target]]:
        """All targets that it or one of its rules names, each with where it is written."""
        own = (("deployments", self.name), self.routes.targets, self.fallback)
        ruled = ((rule.path, rule.targets, rule.fallback or ()) for rule in self.rules)
        for path, first, fallback in (own, *ruled):
            yield from (((*path, "targets", n), target) for n, target in enumerate(first))
            yield from (((*path, "fallback", n), target) for n, target in enumerate(fallback))

    def reached_by(self, key: str, tags: Mapping[str, str], open_tags: frozenset[str]) -> Reach:
        """Return it as a key reaches it with these tags, and with any value of those that are open
        to callers."""
        return Reach(self, tags, compile_chain(self.sections, KnownFacts(key, tags, open_tags)))


@frozen
class Reach:
    """A deployment as one key reaches it: ``tags`` are the key's over the deployment's, ``chain``
    the rules that may hold for its calls."""

    deployment: Deployment
    tags: Mapping[str, str]
    chain: RuleChain | None = None

    def alone(self, name: str) -> VirtualKey:
        """Return a key, which nobody has, that reaches nothing else."""
        deployments = {self.deployment.name: self}
        return VirtualKey(
            name=name, deployments=deployments, named={}, listing={}, tags={}, may_refresh=False
        )


@frozen
class VirtualKey:
    """A virtual key. ``named`` gives, for a model or deployment name, who of its own serves it,
    ``by_name`` its deployments by all their names, and ``listing`` what lists of models say of a
    name."""

    name: str
    deployments: Mapping[str, Reach]
    named: Mapping[str, tuple[Reach, ...]]
    listing: Mapping[str, ListedModel]
    tags: Mapping[str, str]
    may_refresh: bool
    may_trace: bool = False
    by_name: Mapping[str, Reach] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        every = self.deployments.values()
        by_name = {name: each for each in every for name in each.deployment.names}
        object.__setattr__(self, "by_name", by_name)

    @staticmethod
    def default_of(reaches: Sequence[Reach]) -> Reach | None:
        """Return the only deployment, or the only default; None if a call must name one of them."""
        if len(reaches) != 1:
            reaches = [each for each in reaches if each.deployment.is_default]
        return reaches[0] if len(reaches) == 1 else None

    def serving(self, models: Sequence[str]) -> tuple[Reach, ...]:
        """Return the deployments that serve all requested models; all if none is requested."""
        found = self.named.get(models[0], ()) if models else tuple(self.deployments.values())
        for model in models[1:]:
            others = self.named.get(model, ())
            found = tuple([each for each in found if each in others])
        return found


@frozen
class Credential:
    """A text that a key may have, by its SHA-256; it counts up to ``until``, if that is said."""

    digest: bytes
    key: VirtualKey
    until: datetime | None = None

    @property
    def label(self) -> str:
        """The first characters of the digest in hex, for people who tell it from others."""
        return self.digest.hex()[:8]

    def is_in_force(self, at: datetime) -> bool:
        """True if the text still counts at a moment; those that are revoked are in no snapshot."""
        return self.until is None or at < self.until

    def is_revoked_by(self, revoked: Collection[str]) -> bool:
        """True if a list of keys and digests names this one or its key."""
        return self.key.name in revoked or self.digest.hex() in revoked


@frozen
class Snapshot:
    """What is in force. ``keys`` are found by their names, ``credentials`` by their SHA-256: those
    that are ``revoked`` are not there, but in ``revoked_credentials``.

    ``places`` tell where each part was written, but for prices: there are too many of them.
    ``headers`` are the names of those that a rule or a draw looks at, ``limits`` say where each
    limit is written. ``prices_as_of`` is the day on which the table of prices was taken.
    ``wants_no_keys`` is true of policies that say ``keys: {}``. ``plans`` are those of calls so
    far that others share, by the way that these come: see ``KeyCaller``. ``unprepared`` are
    detectors that have more to load. ``origins`` are those of pages that may call, ``*`` stands for
    all; ``secret_files`` are the paths of secrets that stand in files, and the references of
    tokens. ``passthrough`` are the paths that any deployment passes on.
    """

    revision: str
    keys: Mapping[str, VirtualKey]
    credentials: Mapping[bytes, Credential]
    tags: Mapping[str, TagRule]
    refuse_caller_tags: bool
    deployments: Mapping[str, Deployment]
    places: Mapping[Path_, SourceLocation] = field(default_factory=dict, repr=False)
    headers: frozenset[str] = frozenset()
    limits: Mapping[str, Path_] = field(default_factory=dict)
    prices_as_of: date | None = None
    revoked: frozenset[str] = frozenset()
    wants_no_keys: bool = False
    revoked_credentials: Mapping[bytes, Credential] = field(default_factory=dict)
    origins: frozenset[str] = frozenset()
    secret_files: frozenset[str] = frozenset()
    unprepared: tuple[Preparable, ...] = field(default=(), repr=False)
    passthrough: PassedPaths | None = None
    plans: dict[Hashable, Plan] = memo(dict)
    _by_key: Mapping[str, tuple[Credential, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_key: dict[str, list[Credential]] = {}
        for credential in self.credentials.values():
            by_key.setdefault(credential.key.name, []).append(credential)
        frozen = {name: tuple(credentials) for name, credentials in by_key.items()}
        object.__setattr__(self, "_by_key", MappingProxyType(frozen))

    def prepare(self) -> None:
        """Load what its guards need before they are asked: a tenth of a second, in steps of a few
        milliseconds."""
        for each in self.unprepared:
            with suppress(Exception):  # it says so at each call that asks for it
                each.prepare()

    def load_rest(self) -> Iterator[None]:
        """Load what few texts ask of its guards: a part of a second, in steps of some ms."""
        for each in self.unprepared:
            with suppress(Exception):  # it says so at each call that asks for it
                yield from each.load_rest()

    def at(self, *path: str | int) -> str | None:
        """Return the ``file:line`` of a part of the policies, or of the nearest one around it."""
        while path and path not in self.places:
            path = path[:-1]
        place = self.places.get(path)
        return f"{place.file}:{place.line}" if place else None

    def key_named(self, name: str | None) -> VirtualKey | None:
        """Find a key by its name, for people who ask; calls find theirs by its digest."""
        return self.keys.get(name) if name is not None else None

    def lapse_of(self, name: str, at: datetime, label: str | None = None) -> str | None:
        """Return why a key would be refused at a moment: it is unknown, revoked or expired. None
        where it is in force. A ``label`` asks for the one text of the key that has it."""
        digests = self.revoked if label is not None else ()
        if name in self.revoked or any(digest.startswith(label or "") for digest in digests):
            return "revoked"
        texts = [each for each in self._by_key.get(name, ()) if label in (None, each.label)]
        if any(each.is_in_force(at) for each in texts):
            return None
        ends = [each.until for each in texts if each.until is not None]
        if ends:
            return f"expired at {max(ends).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return "revoked" if label is None and name in self.keys else "unknown"

    def key_in_force(
        self, name: str | None, at: datetime, label: str | None = None
    ) -> VirtualKey | None:
        """Return the key of a name, where a call with it would be let in at a moment."""
        if name is None or self.lapse_of(name, at, label) is not None:
            return None
        return self.keys[name]

    def without(self, revoked: frozenset[str]) -> Snapshot:
        """Return the same revision, in which more keys and digests count no more."""
        if revoked <= self.revoked:
            return self
        all_revoked = self.revoked | revoked
        left: dict[bytes, Credential] = {}
        gone = dict(self.revoked_credentials)
        for digest, credential in self.credentials.items():
            (gone if credential.is_revoked_by(all_revoked) else left)[digest] = credential
        return replace(
            self,
            credentials=MappingProxyType(left),
            revoked=all_revoked,
            revoked_credentials=MappingProxyType(gone),
        )
