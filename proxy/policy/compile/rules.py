"""Compiles policies: limits, rules with their conditions, and inheritance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from proxy.dialects import DIALECTS
from proxy.errors.words import quoted
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.guards import GuardCompiler, captured
from proxy.policy.compile.targets import TargetCompiler
from proxy.policy.decide import conditions
from proxy.policy.decide.rules import CacheDecision, PolicyRules, Rule, RuleGuards
from proxy.policy.files.load import no_such
from proxy.policy.files.source import KeyPath
from proxy.policy.schema.tags import glob
from proxy.types import (
    UNCHANGED,
    CacheRule,
    Endpoint,
    ParameterOverrides,
    RuleRefusal,
    ScopedLimit,
    SemanticCacheRule,
)
from proxy.types.guard import GuardPlan
from proxy.types.limit import Limit
from proxy.types.windows import Calendar

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ENDPOINTS = tuple(endpoint for endpoint in get_args(Endpoint) if endpoint != "models")


def written(policies: schema.PoliciesConfig) -> Iterator[tuple[KeyPath, schema.LimitConfig]]:
    """Yield every limit with its path."""
    for path, part in policies.parts():
        yield from (((*path, "limits", n), limit) for n, limit in enumerate(part.limits or ()))


class LimitCompiler:
    """Compiles all limits of a folder. ``paths`` are their paths by name."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.paths: dict[str, KeyPath] = {}
        limits = written(context.policies)
        self._by_path = {path: self._scoped_limit(path, config) for path, config in limits}

    def at(
        self, path: KeyPath, configs: Sequence[schema.LimitConfig] | None
    ) -> tuple[ScopedLimit, ...]:
        """Return the limits of the list at a path."""
        limits = (self._by_path.get((*path, index)) for index, _ in enumerate(configs or ()))
        return tuple(limit for limit in limits if limit is not None)

    def _scoped_limit(self, path: KeyPath, config: schema.LimitConfig) -> ScopedLimit | None:
        if config.name in self.paths:
            message = f"another limit is also called {quoted(config.name)}. "
            self._context.complain((*path, "name"), f"{message}Limit names must be unique.")
        self.paths.setdefault(config.name, path)
        for index, per in enumerate(config.per):
            if per.startswith("tag."):
                self._context.check_tag((*path, "per", index), per.removeprefix("tag."))
        try:
            limit = self._limit(path, config)
            needs_prices = limit.is_budget and config.unpriced != "allow"
            return ScopedLimit(limit, self._scope(config), needs_prices)
        except ValueError as error:
            self._context.complain(path, str(error).removeprefix(f"{config.name}: "))
            return None

    def _scope(self, config: schema.LimitConfig) -> tuple[str, ...]:
        """Return the parts of a counter's name, the key first.

        Values that clients may set are counted per key, so that no client can use up the limit of
        another tenant.
        """
        others = tuple(name for name in config.per if name != "key")
        is_per_key = config.across is None and any(map(self._is_set_by_clients, others))
        return ("key", *others) if "key" in config.per or is_per_key else others

    def _is_set_by_clients(self, name: str) -> bool:
        rule = self._context.tag_rules.get(name.removeprefix("tag."))
        return name == "user" or (name.startswith("tag.") and rule is not None and rule.caller)

    def _limit(self, path: KeyPath, config: schema.LimitConfig) -> Limit:
        modes = [config.mode]
        if path[0] == "policies":
            modes.append(self._context.policies.policies[str(path[1])].mode)
        amount, window = config.amount
        if isinstance(window, str):
            window = Calendar(window, config.zone or "UTC")  # type: ignore[arg-type]  # a unit
        return Limit(
            config.name,
            config.kind,
            amount=amount,
            window=window,
            burst=config.burst,
            shadow="shadow" in modes,
            warn_at=config.warn_at,
            on_store_error=config.on_store_error,
        )


class RuleCompiler:
    """Compiles policies. ``headers`` are the request headers that their conditions read."""

    def __init__(self, context: CompileContext, targets: TargetCompiler) -> None:
        self._context = context
        self._targets = targets
        self._policies = context.policies.policies
        self.limit_compiler = LimitCompiler(context)
        self.guard_compiler = GuardCompiler(context, targets)
        self.headers: set[str] = set()
        self._sections = context.parts("policies", self._section)
        self._guards_by_policy = context.parts("policies", self._policy_guards)
        self._orders = context.parts("policies", lambda name, _: self._order(name, ()))

    def sections(self, name: str) -> tuple[PolicyRules, ...]:
        """Return the rules of a policy, then those of the policies that it extends."""
        sections = (self._sections[each] for each in self._orders[name])
        return tuple(section for section in sections if section.rules)

    def scoped_limits(self, name: str) -> tuple[ScopedLimit, ...]:
        """Return the limits of a policy and of the policies that it extends."""
        policies = [(each, self._policies[each].limits) for each in self._orders[name]]
        at = self.limit_compiler.at
        return tuple(
            s for each, limits in policies for s in at(("policies", each, "limits"), limits)
        )

    def cache(self, name: str) -> CacheDecision | None:
        """Return the first decision about the cache of a policy and those that it extends."""
        decisions = (cache_decision(policy.cache) for policy in self._enforced(name))
        return next((decision for decision in decisions if decision is not None), None)

    def guarding(self, name: str) -> GuardPlan:
        """Return the guards of a policy and of the policies that it extends."""
        order = self._orders[name]
        captures = (policy.capture for policy in self._enforced(name))
        return GuardPlan(
            input=tuple(rule for each in order for rule in self._guards_by_policy[each].input),
            output=tuple(rule for each in order for rule in self._guards_by_policy[each].output),
            opaque=any(self._policies[each].opaque == "allow" for each in order),
            cost_caps=tuple(
                cap for each in order for cap in self._guards_by_policy[each].cost_caps
            ),
            capture=next((captured(each) for each in captures if each is not None), None),
        )

    def _enforced(self, name: str) -> Iterator[schema.PolicyConfig]:
        """Yield a policy and those that it extends, without those in shadow mode."""
        policies = (self._policies[each] for each in self._orders[name])
        return (policy for policy in policies if policy.mode == "enforce")

    def _policy_guards(self, name: str, config: schema.PolicyConfig) -> RuleGuards:
        """Return the own guards of a policy, in shadow mode if the policy is."""
        guards = self.guard_compiler.guards(("policies", name), config.input, config.output)
        if config.mode == "enforce":
            return guards
        return RuleGuards(
            input=tuple(replace(rule, shadow=True) for rule in guards.input),
            output=tuple(replace(rule, shadow=True) for rule in guards.output),
            cost_caps=tuple(replace(cap, shadow=True) for cap in guards.cost_caps),
        )

    def _order(self, name: str, extending: tuple[str, ...]) -> list[str]:
        """Return a policy and all that it extends, each once, in order of precedence."""
        order = [name]
        for index, base in enumerate(self._policies[name].extends):
            path: KeyPath = ("policies", name, "extends", index)
            if base not in self._sections:
                self._context.unknown(path, "policies", "policy", base)
            elif base in (*extending, name):
                message = f"policy {quoted(base)} extends this policy. Remove one of the two."
                self._context.complain(path, message)
            else:
                bases = self._order(base, (*extending, name))
                order += [each for each in bases if each not in order]
        return order

    def _section(self, name: str, config: schema.PolicyConfig) -> PolicyRules:
        rules: list[Rule] = []
        for index, rule in enumerate(config.rules):
            path: KeyPath = ("policies", name, "rules", index)
            with self._context.located(path):
                is_shadow = "shadow" in (config.mode, rule.mode)
                rules.append(self._rule(f"{name}/{rule.name}", path, rule, is_shadow))
        return PolicyRules(name, tuple(rules), config.match == "first")

    def _rule(self, name: str, path: KeyPath, config: schema.RuleConfig, is_shadow: bool) -> Rule:
        routes = fallback = None
        if config.targets is not None:
            routes = self._targets.routes((*path, "targets"), config.targets)
        if config.fallback is not None:
            fallback = self._targets.targets((*path, "fallback"), config.fallback)
        set_values = config.set.model_dump(exclude_none=True) if config.set else {}
        caps = config.cap.model_dump(exclude_none=True) if config.cap else {}
        when, refuse, without = config.when, config.refuse, config.without
        return Rule(
            name=name,
            when=self.condition((*path, "when"), when) if when else conditions.ALWAYS,
            shadow=is_shadow,
            routes=routes,
            fallback=fallback,
            model=config.model,
            changes=ParameterOverrides(set_values, caps) if set_values or caps else UNCHANGED,
            refusal=RuleRefusal(name, refuse.message, refuse.status) if refuse else None,
            bounds=self.limit_compiler.at((*path, "limits"), config.limits),
            cache=cache_decision(config.cache),
            guards=self.guard_compiler.guards(path, config.input, config.output),
            unguarded=frozenset((without and without.guards) or ()),
            without=self._without((*path, "without", "limits"), (without and without.limits) or []),
            path=path,
        )

    def _without(self, path: KeyPath, names: list[str]) -> frozenset[str]:
        limits = self.limit_compiler.paths
        for index, name in enumerate(names):
            if name not in limits and not self._context.document.may_hold(name):
                self._context.complain((*path, index), no_such("limit", name, limits))
        return frozenset(names)

    def condition(self, path: KeyPath, config: schema.When) -> conditions.Condition:
        """Return the condition of a rule. Several parts must all match."""
        parts = [*self._comparisons(path, config)]
        if config.stream is not None:
            parts.append(conditions.Streamed(config.stream))
        if config.time is not None:
            parts.append(self._hours((*path, "time"), config.time))
        parts += [self.condition((*path, "all", n), each) for n, each in enumerate(config.all)]
        any_of = [self.condition((*path, "any", n), each) for n, each in enumerate(config.any)]
        if any_of:
            parts.append(conditions.AtLeastOne(tuple(any_of)))
        if config.not_ is not None:
            excluded = self.condition((*path, "not"), config.not_)
            parts.append(conditions.Not(excluded, to_yaml(config.not_)))
        return parts[0] if len(parts) == 1 else conditions.All(tuple(parts))

    def _comparisons(self, path: KeyPath, config: schema.When) -> Iterator[conditions.Condition]:
        matches: tuple[tuple[conditions.Fact, schema.Match | None], ...] = (
            ("key", config.key),
            ("dialect", config.dialect),
            ("endpoint", config.endpoint),
            ("model", config.model),
        )
        for fact, match in matches:
            if match is not None:
                self._check_values((*path, fact), fact, match)
                yield conditions.Compare(fact, _values(match))
        for name, match in sorted(config.tag.items()):
            self._context.check_tag((*path, "tag", name), name, *match.values)
            yield conditions.Compare("tag", _values(match), name)
        for name, match in sorted(config.header.items()):
            self.headers.add(name)
            yield conditions.Compare("header", _values(match), name)

    def _check_values(self, path: KeyPath, field: str, match: schema.Match) -> None:
        """Report values that no call can have."""
        known = {"dialect": tuple(DIALECTS), "endpoint": ENDPOINTS}.get(field, ())
        for value in match.values:
            if field == "key":
                self._context.unknown(path, "keys", "key", value)
            elif known and value not in known:
                self._context.complain(path, no_such(field, value, known))

    def _hours(self, path: KeyPath, config: schema.Hours) -> conditions.Between:
        zone = ZoneInfo("UTC")
        try:
            zone = ZoneInfo(config.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            message = f"time zone {quoted(config.zone)} does not exist. Use an IANA name."
            self._context.complain((*path, "zone"), message)
        times = (time.split(":") for time in (config.between or "00:00-24:00").split("-"))
        begin, end = (int(hour) * 60 + int(minute) for hour, minute in times)
        days = frozenset(DAYS.index(day) for day in config.days or DAYS)
        return conditions.Between(begin=begin, end=end, days=days, zone=zone, text=to_yaml(config))


def cache_decision(config: schema.CacheConfig | None) -> CacheDecision | None:
    """Return the decision of a part about the cache, or None if it makes none."""
    if config is None:
        return None
    fields = config.model_dump(exclude={"off", "semantic"})
    semantic = (
        None if config.semantic is None else SemanticCacheRule(**config.semantic.model_dump())
    )
    return CacheDecision(None if config.off else CacheRule(**fields, semantic=semantic))


def _values(match: schema.Match) -> conditions.Values:
    parts: list[conditions.Values] = []
    if match.equals is not None:
        parts.append(conditions.OneOf(frozenset({match.equals})))
    if match.in_ is not None:
        parts.append(conditions.OneOf(frozenset(match.in_)))
    if match.glob is not None:
        parts.append(glob(match.glob))
    return parts[0] if len(parts) == 1 else conditions.Both(tuple(parts))


def to_yaml(config: schema.When | schema.Hours | schema.Match) -> str:
    """Return a condition as YAML on one line, with sorted keys."""
    return _flow(config.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True))


def _flow(value: object) -> str:
    if isinstance(value, dict):
        if list(value) in (["equals"], ["in"]):
            return _flow(next(iter(value.values())))
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
