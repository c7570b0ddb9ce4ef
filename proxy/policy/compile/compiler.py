"""From schema to snapshot, once a revision: references resolved, secrets read, indices built."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from proxy import usage
from proxy.policy import schema
from proxy.policy.compile.cache import check_embeddings, kept
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.guards import GuardCompiler
from proxy.policy.compile.limits import LimitCompiler
from proxy.policy.compile.listed_models import listed_models, names_of
from proxy.policy.compile.prices import uncovered
from proxy.policy.compile.routes import WeightedTarget, compile_routes, unreachable
from proxy.policy.compile.rules import RuleCompiler
from proxy.policy.compile.upstreams import compile_upstream
from proxy.policy.decide.routes import Routes, Sticky
from proxy.policy.decide.rules import RuleGuards
from proxy.policy.decide.snapshot import (
    Credential,
    Deployment,
    Reach,
    Snapshot,
    TagRule,
    VirtualKey,
)
from proxy.policy.files import price_table
from proxy.policy.files.cloud_tokens import CloudTokens, is_token
from proxy.policy.files.load import Loaded, no_such, not_allowed, note, secret
from proxy.policy.files.source import Path_, PolicyError
from proxy.policy.schema import patterns
from proxy.policy.schema.plugged import AnyGuard
from proxy.types import Retry, ScopedLimit, Secret, Target, Upstream
from proxy.types.guard import UNGUARDED
from proxy.words import quoted

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedPaths

T = TypeVar("T")
FILE = "file:"
DEFAULT_POLICY = "default"


def compile_policies(
    loaded: Loaded, environ: Mapping[str, str] | None, tokens: CloudTokens | None = None
) -> Snapshot:
    """Return the snapshot. Raise ``PolicyError`` with all that is wrong, in shape or in meaning.

    Without an ``environ`` secrets are not read: such a snapshot decides, but cannot serve. Without
    ``tokens`` those of clouds are fetched for it alone.
    """
    document = loaded.document
    work = _Compiler(loaded, environ, tokens or CloudTokens(environ or {}))
    try:
        with document.located(()):
            snapshot = work.snapshot(loaded.revision)
        document.raise_problems()
    except PolicyError as error:
        raise PolicyError(error.problems, frozenset(work.secret_files)) from error
    return snapshot.without(frozenset(loaded.policies.revoked))


class _Compiler:
    """Notes problems in the document and goes on, so that all are told at once."""

    def __init__(
        self, loaded: Loaded, environ: Mapping[str, str] | None, tokens: CloudTokens
    ) -> None:
        self.tokens = tokens
        self.loaded = loaded
        self.policies = loaded.policies
        self.document = loaded.document
        self.environ = environ
        self.placed: dict[Path_, Target] = {}
        self.made: dict[Hashable, VirtualKey] = {}  # of keys that differ in their names alone
        self.asks_table = loaded.brings_prices
        self.secret_files: set[str] = set()

    def snapshot(self, revision: str) -> Snapshot:
        self.rules = self.parts("tags", lambda _, tag: _rule(tag))
        self.upstreams = self.parts(
            "upstreams", lambda name, each: compile_upstream(name, each, self.secret)
        )
        context: CompileContext = weakref.proxy(self)  # in a circle it would be garbage, not gone
        self.limits = LimitCompiler(context)
        self.guard_compiler = GuardCompiler(context)
        self.rule_compiler = RuleCompiler(context)
        deployments = self.parts("deployments", self.deployment)
        if self.knows_prices():
            for path, message in uncovered(deployments, self.placed):
                self.complain(path, message)
        check_embeddings(context, deployments)
        for path, message in unreachable(deployments.values(), self.placed):
            self.complain(path, message)
        self.aliases()
        keys = self.parts("keys", lambda name, each: self.key(name, each, deployments))
        credentials = list(self.credentials(keys))
        places = {path: at for path, at in self.document.places.items() if path[:1] != ("prices",)}
        return Snapshot(
            revision=revision,
            keys=MappingProxyType(keys),
            credentials=MappingProxyType({each.digest: each for each in credentials}),
            tags=MappingProxyType(self.rules),
            refuse_caller_tags=self.policies.caller_tags.otherwise == "refuse",
            deployments=MappingProxyType(deployments),
            places=MappingProxyType(places),
            limits=MappingProxyType(self.limits.names),
            headers=frozenset(self.rule_compiler.headers | _sticky_headers(self.policies)),
            secret_files=frozenset(self.secret_files),
            origins=frozenset(self.policies.cors.origins),
            wants_no_keys="keys" in self.document.empty and not keys,
            unprepared=tuple(self.guard_compiler.unprepared),
            prices_as_of=self.as_of(),
            passthrough=_all_paths(deployments.values()),
        )

    def parts(self, section: str, compile_part: Callable[[str, Any], T]) -> dict[str, T]:
        """Return each part of a section, compiled. Raises ``PolicyError``."""
        compiled: dict[str, T] = {}
        for name, config in getattr(self.policies, section).items():
            with self.document.located((section, name)):
                compiled[name] = compile_part(name, config)
        return compiled

    def located(self, path: Path_) -> AbstractContextManager[None]:
        return self.document.located(path)

    def as_of(self) -> date | None:
        """Return the day of the table of prices, where anything has asked for a price of it."""
        return self.loaded.priced.price_table.as_of if self.asks_table else None

    def knows_prices(self) -> bool:
        """True if nothing is missing that may price a target, or take a limit of money away."""
        without_prices = ("keys", "tags", "caller_tags", "cors")
        return self.document.whole and all(
            path[0] in without_prices for path in self.document.left_out
        )

    def text(self, name: str) -> str:
        return self.document.text(name)

    def secret(self, path: Path_, ref: str) -> Secret:
        if self.environ is None:
            return Secret("")
        token = is_token(ref)
        if ref.startswith(FILE) or token:
            self.secret_files.add(ref.removeprefix(FILE))
        try:
            value = self.tokens.text(ref) if token else secret(ref, self.environ)
        except ValueError as error:
            self.document.complain(path, str(error))
            return Secret("")
        if not value.isprintable() or not value.isascii():
            self.document.complain(path, "must contain only printable ASCII characters")
        return Secret(value)

    def deployment(self, name: str, config: schema.DeploymentConfig) -> Deployment:
        path: Path_ = ("deployments", name)
        self.tags(path, config.tags)
        policy = self.followed(path, config.policy)
        own = self.bounds((*path, "limits"), config.limits)
        cache = kept(config.cache) or (self.rule_compiler.cache(policy) if policy else None)
        return Deployment(
            name=name,
            names=frozenset({name, *config.also_known_as}),
            tags=_sorted(config.tags),
            routes=self.routes((*path, "targets"), config.targets, config.balance is not None),
            fallback=self.plain((*path, "fallback"), config.fallback),
            sticky=_sticky(config.sticky),
            retry=_retry(config.retry),
            hedge_after=config.hedge.after if config.hedge else None,
            sections=self.rule_compiler.sections(policy) if policy else (),
            bounds=own + (self.rule_compiler.bounds(policy) if policy else ()),
            cache=cache.by if cache else None,
            guards=self.rule_compiler.guarding(policy) if policy else UNGUARDED,
            refuse_unpriced=config.unpriced == "refuse",
            max_models=config.max_models,
            passthrough=self.passed_paths((*path, "passthrough"), config.passthrough),
            only_passthrough=config.only_passthrough,
            is_default=config.default,
        )

    def passed_paths(
        self, path: Path_, configs: list[schema.PassedPathConfig]
    ) -> PassedPaths | None:
        if not configs:
            return None
        from proxy.policy.compile.passthrough import passed_paths  # noqa: PLC0415  # few have any

        return passed_paths(path, configs, self.complain)

    def aliases(self) -> None:
        """Complain of a name that two deployments have."""
        owners = {name: name for name in self.policies.deployments}
        for name, config in self.policies.deployments.items():
            for index, alias in enumerate(config.also_known_as):
                owner = owners.setdefault(alias, name)
                if owner != name or alias == name or alias in config.also_known_as[:index]:
                    path: Path_ = ("deployments", name, "also_known_as", index)
                    self.complain(
                        path, f"{quoted(alias)} is already a name of deployment {quoted(owner)}"
                    )

    def followed(self, path: Path_, policy: str | None) -> str | None:
        """Name the policy that a deployment follows: its own, or the one for all others."""
        if policy is None:
            return DEFAULT_POLICY if DEFAULT_POLICY in self.policies.policies else None
        if policy not in self.policies.policies:
            self.unknown((*path, "policy"), "policies", "policy", policy)
            return None
        return policy

    def guards(
        self, path: Path_, inputs: Sequence[AnyGuard] | None, outputs: Sequence[AnyGuard] | None
    ) -> RuleGuards:
        return self.guard_compiler.guards(path, inputs, outputs)

    def bounds(
        self, path: Path_, configs: list[schema.LimitConfig] | None
    ) -> tuple[ScopedLimit, ...]:
        return self.limits.at(path, configs)

    def routes(
        self, path: Path_, configs: list[schema.TargetConfig], balanced: bool = False
    ) -> Routes:
        return compile_routes(self.targets(path, configs), balanced)

    def plain(self, path: Path_, configs: list[schema.TargetConfig]) -> tuple[Target, ...]:
        return tuple(target for target, _ in self.targets(path, configs))

    def targets(self, path: Path_, configs: list[schema.TargetConfig]) -> list[WeightedTarget]:
        found = (self.target((*path, i), each) for i, each in enumerate(configs))
        pairs = zip(found, configs, strict=True)
        return [(target, each.weight) for target, each in pairs if target is not None]

    def target(self, path: Path_, config: schema.TargetConfig) -> Target | None:
        upstream = self.upstreams.get(config.upstream)
        if upstream is None:
            self.unknown((*path, "upstream"), "upstreams", "upstream", config.upstream)
            return None
        prices = tuple(map(price_of, config.price)) or self.listed(upstream, config.model)
        found = Target(
            upstream=upstream, model=config.model, endpoint=config.endpoint, prices=prices
        )
        self.placed[path] = found
        return found

    def listed(self, upstream: Upstream, model: str) -> tuple[usage.Price, ...]:
        """Find the prices in the table; only rows of a model in use are looked at closely."""
        if upstream.provider is None:
            return ()
        rows = self.loaded.priced.prices.get(upstream.provider, {})
        name = usage.listed(rows, model)
        if name is None:
            return ()
        self.asks_table = True
        path: Path_ = ("prices", upstream.provider, name)
        value = rows[name]
        dated = enumerate(value) if isinstance(value, list) else [(0, value)]
        prices = (self.row((*path, index), row) for index, row in dated)
        return tuple(price for price in prices if price is not None)

    def row(self, path: Path_, value: Any) -> usage.Price | None:
        try:
            return price_of(schema.PriceConfig.model_validate(value))
        except ValidationError as error:
            note(self.document, error, schema.PriceConfig, path)
            return None

    def key(
        self, name: str, config: schema.KeyConfig, deployments: Mapping[str, Deployment]
    ) -> VirtualKey:
        path: Path_ = ("keys", name)
        self.tags(path, config.tags)
        for index, wanted in enumerate(config.deployments):
            if wanted not in deployments:
                self.unknown((*path, "deployments", index), "deployments", "deployment", wanted)
        may_refresh, may_trace = "refresh" in config.may, "trace" in config.may
        found = tuple(each for each in config.deployments if each in deployments)
        alike = (found, frozenset(config.tags.items()), may_refresh, may_trace)
        like = self.made.get(alike)
        if like is not None:
            return replace(like, name=name)
        reached = {each: self.reach(name, config, deployments[each]) for each in found}
        asked = {n: each for n, each in reached.items() if not each.deployment.only_passthrough}
        named = names_of(asked)
        key = VirtualKey(
            name=name,
            deployments=MappingProxyType(reached),
            named=MappingProxyType(named),
            listing=listed_models(asked, named, self.as_of() or price_table.as_of()),
            tags=_sorted(config.tags),
            may_refresh=may_refresh,
            may_trace=may_trace,
        )
        if not any(deployments[each].tells_keys_apart for each in found):
            self.made[alike] = key
        return key

    def reach(self, key: str, config: schema.KeyConfig, deployment: Deployment) -> Reach:
        tags = _joined(deployment.tags, config.tags)
        open_ = frozenset(name for name, tag in self.policies.tags.items() if tag.caller)
        return deployment.reached_by(key, tags, open_)

    def credentials(self, keys: Mapping[str, VirtualKey]) -> Iterator[Credential]:
        """Return the texts that keys may have, each with the end that comes first."""
        first: dict[str, str] = {}
        for name, config in self.policies.keys.items():
            for index, each in enumerate(config.sha256):
                if each.digest in first:
                    path = self.document.written(("keys", name, "sha256", index))
                    self.document.complain(
                        path, f"is already the digest of key {quoted(first[each.digest])}"
                    )
                first.setdefault(each.digest, name)
                ends = [end for end in (each.until, config.expires) if end is not None]
                yield Credential(bytes.fromhex(each.digest), keys[name], min(ends, default=None))

    def tags(self, path: Path_, tags: Mapping[str, str]) -> None:
        for tag, value in tags.items():
            rule = self.rules.get(tag)
            at: Path_ = (*path, "tags", tag)
            if rule is None:
                self.unknown(at, "tags", "tag", tag)
            elif not rule.allows(value):
                self.document.complain(at, not_allowed(value, rule.values))

    def may_hold(self, name: str) -> bool:
        return self.document.may_hold(name)

    def complain(self, path: Path_, message: str) -> None:
        self.document.complain(path, message)

    def unknown(self, path: Path_, section: str, kind: str, name: str) -> None:
        """Complain of a name that is defined nowhere, but not of one whose own part is wrong."""
        known = self.document.data.get(section, {})
        if name not in known and not self.document.may_name(section, name):
            hint = "" if known else f'. Add it under "{section}:".'
            self.document.complain(path, no_such(kind, name, known) + hint)


def _all_paths(deployments: Iterable[Deployment]) -> PassedPaths | None:
    """Return the paths that any deployment passes on; None where none does."""
    found = [each.passthrough for each in deployments if each.passthrough is not None]
    if not found:
        return None
    from proxy.types.passthrough import PassedPaths  # noqa: PLC0415  # few have any

    return PassedPaths.merge(found)


def _rule(tag: schema.Tag) -> TagRule:
    return TagRule(
        values=frozenset(tag.values) if tag.values is not None else None,
        pattern=patterns.compiled(tag.pattern) if tag.pattern is not None else None,
        caller=tag.caller,
    )


def price_of(config: schema.PriceConfig) -> usage.Price:
    fields = config.model_dump(exclude={"tiers"})
    tiers = tuple(usage.Tier(**tier.model_dump()) for tier in config.tiers)
    return usage.Price(**fields, tiers=tiers)


def _sorted(tags: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(sorted(tags.items())))


def _joined(under: Mapping[str, str], over: Mapping[str, str]) -> Mapping[str, str]:
    """Join a deployment's tags and a key's, sharing the set where only one has any."""
    return under if not over else _sorted({**under, **over})


def _sticky_headers(policies: schema.PoliciesConfig) -> set[str]:
    sticky = (each.sticky for each in policies.deployments.values())
    return {each.header for each in sticky if each is not None and each.header is not None}


def _sticky(config: schema.StickyConfig | None) -> Sticky | None:
    return None if config is None else Sticky(config.by or "header", config.header or "")


def _retry(config: schema.RetryConfig | None) -> Retry | None:
    if config is None:
        return None
    return Retry(
        times=config.times, on=frozenset(config.on), wait=config.wait, max_wait=config.max_wait
    )
