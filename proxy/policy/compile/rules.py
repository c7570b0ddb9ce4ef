"""Compiles policies: limits, rules with their conditions, and inheritance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from proxy import types
from proxy.dialects import DIALECTS
from proxy.errors.words import quote
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.guards import GuardCompiler, compile_capture
from proxy.policy.compile.targets import TargetCompiler
from proxy.policy.decide import conditions
from proxy.policy.decide.rules import CacheDecision, PolicyRules, Rule, RuleGuards
from proxy.policy.files.source import KeyPath
from proxy.policy.files.validation import describe_unknown_name
from proxy.policy.schema.keys import compile_glob
from proxy.types.guard import GuardPlan
from proxy.types.limit import Limit
from proxy.types.windows import Calendar

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
FACT_VALUES = {
    "dialect": tuple(DIALECTS),
    "endpoint": tuple(endpoint for endpoint in get_args(types.Endpoint) if endpoint != "models"),
}
"""Possible values of each fact of a call that has a fixed set of values."""


def iter_limit_configs(
    policies: schema.PoliciesConfig,
) -> Iterator[tuple[KeyPath, schema.LimitConfig]]:
    for path, part in policies.iter_parts():
        yield from (((*path, "limits", n), limit) for n, limit in enumerate(part.limits or ()))


class LimitCompiler:
    """Compiles all limits of a folder. ``paths`` are their paths by name."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.paths: dict[str, KeyPath] = {}
        limits = iter_limit_configs(context.policies)
        self._by_path = {path: self._compile_scoped_limit(path, config) for path, config in limits}

    def compile_limits(
        self, path: KeyPath, configs: Sequence[schema.LimitConfig] | None
    ) -> tuple[types.ScopedLimit, ...]:
        """Return the limits of the list at a path."""
        limits = (self._by_path.get((*path, index)) for index, _ in enumerate(configs or ()))
        return tuple(limit for limit in limits if limit is not None)

    def _compile_scoped_limit(
        self, path: KeyPath, config: schema.LimitConfig
    ) -> types.ScopedLimit | None:
        if config.name in self.paths:
            message = f"another limit is also called {quote(config.name)}. "
            self._context.report((*path, "name"), f"{message}Limit names must be unique.")
        self.paths.setdefault(config.name, path)
        for index, per in enumerate(config.per):
            if per.startswith("tag."):
                self._context.check_tag((*path, "per", index), per.removeprefix("tag."))
        try:
            limit = self._compile_limit(path, config)
            needs_prices = limit.is_budget and config.unpriced != "allow"
            return types.ScopedLimit(limit, self._list_scope_parts(config), needs_prices)
        except ValueError as error:
            self._context.report(path, str(error).removeprefix(f"{config.name}: "))
            return None

    def _list_scope_parts(self, config: schema.LimitConfig) -> tuple[str, ...]:
        """Return the parts of a counter's name, the key first.

        Values that clients may set are counted per key, so that no client exhausts another's limit.
        """
        rules = self._context.tag_rules.items()
        client_values = {"user", *(f"tag.{name}" for name, rule in rules if rule.set_by_clients)}
        names = tuple(name for name in config.per if name != "key")
        is_per_key = config.across is None and not client_values.isdisjoint(names)
        return ("key", *names) if "key" in config.per or is_per_key else names

    def _compile_limit(self, path: KeyPath, config: schema.LimitConfig) -> Limit:
        modes = [config.mode]
        if path[0] == "policies":
            modes.append(self._context.policies.policies[str(path[1])].mode)
        amount, window = config.amount_and_window
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
        self._sections = context.compile_section("policies", self._compile_own_rules)
        self._guards_by_policy = context.compile_section("policies", self._compile_policy_guards)
        self._orders = context.compile_section(
            "policies", lambda name, _: self._list_policies_by_precedence(name, ())
        )

    def list_rules_by_precedence(self, policy_name: str) -> tuple[PolicyRules, ...]:
        """Return the rules of a policy, then the rules of the policies that it extends."""
        sections = (self._sections[policy] for policy in self._orders[policy_name])
        return tuple(section for section in sections if section.rules)

    def compile_scoped_limits(self, policy_name: str) -> tuple[types.ScopedLimit, ...]:
        """Return the limits of a policy and of the policies that it extends."""
        limits: tuple[types.ScopedLimit, ...] = ()
        for policy in self._orders[policy_name]:
            path = ("policies", policy, "limits")
            limits += self.limit_compiler.compile_limits(path, self._policies[policy].limits)
        return limits

    def compile_policy_cache(self, policy_name: str) -> CacheDecision | None:
        """Return the first decision about the cache of a policy and those that it extends."""
        decisions = (
            compile_cache(policy.cache) for policy in self._list_enforcing_policies(policy_name)
        )
        return next((decision for decision in decisions if decision is not None), None)

    def compile_guards(self, policy_name: str) -> GuardPlan:
        """Return the guards of a policy and of the policies that it extends."""
        order = self._orders[policy_name]
        guards = [self._guards_by_policy[policy] for policy in order]
        captures = (policy.capture for policy in self._list_enforcing_policies(policy_name))
        return GuardPlan(
            input=tuple(rule for part in guards for rule in part.input),
            output=tuple(rule for part in guards for rule in part.output),
            allows_opaque=any(self._policies[policy].opaque == "allow" for policy in order),
            cost_caps=tuple(cap for part in guards for cap in part.cost_caps),
            capture=next((compile_capture(c) for c in captures if c is not None), None),
        )

    def _list_enforcing_policies(self, policy_name: str) -> Iterator[schema.PolicyConfig]:
        """Yield a policy and those that it extends, without those in shadow mode."""
        policies = (self._policies[policy] for policy in self._orders[policy_name])
        return (policy for policy in policies if policy.mode == "enforce")

    def _compile_policy_guards(self, policy_name: str, config: schema.PolicyConfig) -> RuleGuards:
        guards = self.guard_compiler.compile(("policies", policy_name), config.input, config.output)
        if config.mode == "enforce":
            return guards
        return RuleGuards(
            input=tuple(replace(rule, shadow=True) for rule in guards.input),
            output=tuple(replace(rule, shadow=True) for rule in guards.output),
            cost_caps=tuple(replace(cap, shadow=True) for cap in guards.cost_caps),
        )

    def _list_policies_by_precedence(
        self, policy_name: str, extending_policies: tuple[str, ...]
    ) -> list[str]:
        """Return a policy and all that it extends, each once, in order of precedence."""
        order = [policy_name]
        for index, base in enumerate(self._policies[policy_name].extends):
            path: KeyPath = ("policies", policy_name, "extends", index)
            self._context.check_reference(path, "policies", "policy", base)
            if base in (*extending_policies, policy_name):
                message = f"policy {quote(base)} extends this policy. Remove one of the two."
                self._context.report(path, message)
            elif base in self._sections:
                bases = self._list_policies_by_precedence(base, (*extending_policies, policy_name))
                order += [policy for policy in bases if policy not in order]
        return order

    def _compile_own_rules(self, policy_name: str, config: schema.PolicyConfig) -> PolicyRules:
        rules: list[Rule] = []
        for index, rule in enumerate(config.rules):
            path: KeyPath = ("policies", policy_name, "rules", index)
            with self._context.wrap_errors_in_policy_error(path):
                is_shadow = "shadow" in (config.mode, rule.mode)
                rules.append(
                    self._compile_rule(f"{policy_name}/{rule.name}", path, rule, is_shadow)
                )
        return PolicyRules(policy_name, tuple(rules), config.match == "first")

    def _compile_rule(
        self, name: str, path: KeyPath, config: schema.RuleConfig, is_shadow: bool
    ) -> Rule:
        routes = fallback = None
        if config.targets is not None:
            routes = self._targets.compile_routes((*path, "targets"), config.targets)
        if config.fallback is not None:
            fallback = self._targets.compile_targets((*path, "fallback"), config.fallback)
        set_values = config.set.model_dump(exclude_none=True) if config.set else {}
        caps = config.cap.model_dump(exclude_none=True) if config.cap else {}
        when, refuse, without = config.when, config.refuse, config.without
        removed_limits = (without and without.limits) or []
        self._report_unknown_limits((*path, "without", "limits"), removed_limits)
        return Rule(
            name=name,
            when=self.compile_condition((*path, "when"), when) if when else conditions.ALWAYS,
            shadow=is_shadow,
            routes=routes,
            fallback=fallback,
            model=config.model,
            changes=types.ParameterOverrides(set_values, caps)
            if set_values or caps
            else types.NO_OVERRIDES,
            refusal=types.RuleRefusal(name, refuse.message, refuse.status) if refuse else None,
            limits=self.limit_compiler.compile_limits((*path, "limits"), config.limits),
            cache=compile_cache(config.cache),
            guards=self.guard_compiler.compile(path, config.input, config.output),
            without_guards=frozenset((without and without.guards) or ()),
            without_limits=frozenset(removed_limits),
            path=path,
        )

    def _report_unknown_limits(self, path: KeyPath, names: list[str]) -> None:
        limits = self.limit_compiler.paths
        for index, name in enumerate(names):
            if name not in limits:
                message = describe_unknown_name("limit", name, limits)
                self._context.report((*path, index), message)

    def compile_condition(self, path: KeyPath, config: schema.WhenConfig) -> conditions.Condition:
        """Return the condition of a rule. Several parts must all match."""
        parts = [*self._compile_comparisons(path, config)]
        if config.stream is not None:
            parts.append(conditions.StreamCondition(config.stream))
        if config.time is not None:
            parts.append(self._compile_hours((*path, "time"), config.time))
        parts += [
            self.compile_condition((*path, "all", n), part) for n, part in enumerate(config.all)
        ]
        any_of = [
            self.compile_condition((*path, "any", n), part) for n, part in enumerate(config.any)
        ]
        if any_of:
            parts.append(conditions.AnyOf(tuple(any_of)))
        if config.not_ is not None:
            excluded = self.compile_condition((*path, "not"), config.not_)
            parts.append(conditions.Not(excluded, to_yaml(config.not_)))
        return parts[0] if len(parts) == 1 else conditions.AllOf(tuple(parts))

    def _compile_comparisons(
        self, path: KeyPath, config: schema.WhenConfig
    ) -> Iterator[conditions.Condition]:
        matches: tuple[tuple[conditions.Fact, schema.MatchConfig | None], ...] = (
            ("key", config.key),
            ("dialect", config.dialect),
            ("endpoint", config.endpoint),
            ("model", config.model),
        )
        for fact, match in matches:
            if match is not None:
                for value in match.values:
                    if fact == "key":
                        self._context.check_reference((*path, fact), "keys", "key", value)
                    elif fact in FACT_VALUES and value not in FACT_VALUES[fact]:
                        message = describe_unknown_name(fact, value, FACT_VALUES[fact])
                        self._context.report((*path, fact), message)
                yield conditions.Comparison(fact, _compile_match(match))
        for name, match in sorted(config.tag.items()):
            self._context.check_tag((*path, "tag", name), name, *match.values)
            yield conditions.Comparison("tag", _compile_match(match), name)
        for name, match in sorted(config.header.items()):
            self.headers.add(name)
            yield conditions.Comparison("header", _compile_match(match), name)

    def _compile_hours(self, path: KeyPath, config: schema.HoursConfig) -> conditions.TimeOfDay:
        zone = ZoneInfo("UTC")
        try:
            zone = ZoneInfo(config.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            message = f"time zone {quote(config.zone)} does not exist. Use an IANA name."
            self._context.report((*path, "zone"), message)
        times = (time.split(":") for time in (config.between or "00:00-24:00").split("-"))
        begin, end = (int(hour) * 60 + int(minute) for hour, minute in times)
        days = frozenset(WEEKDAYS.index(day) for day in config.days or WEEKDAYS)
        return conditions.TimeOfDay(begin, end, days, zone, text=to_yaml(config))


def compile_cache(config: schema.CacheConfig | None) -> CacheDecision | None:
    """Return the decision about the cache, or None without a configuration."""
    if config is None:
        return None
    fields = config.model_dump(exclude={"off", "semantic"})
    semantic = config.semantic
    rule = None if semantic is None else types.SemanticCacheRule(**semantic.model_dump())
    return "off" if config.off else types.CacheRule(**fields, semantic=rule)


def _compile_match(match: schema.MatchConfig) -> conditions.ValueSet:
    parts: list[conditions.ValueSet] = []
    if match.equals is not None:
        parts.append(conditions.OneOf(frozenset({match.equals})))
    if match.in_ is not None:
        parts.append(conditions.OneOf(frozenset(match.in_)))
    if match.glob is not None:
        parts.append(compile_glob(match.glob))
    return parts[0] if len(parts) == 1 else conditions.Intersection(tuple(parts))


def to_yaml(config: schema.WhenConfig | schema.HoursConfig | schema.MatchConfig) -> str:
    """Return a condition as YAML on one line, with sorted keys."""
    return _to_flow_yaml(config.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True))


def _to_flow_yaml(value: object) -> str:
    if isinstance(value, dict):
        if list(value) in (["equals"], ["in"]):
            return _to_flow_yaml(next(iter(value.values())))
        return (
            "{" + ", ".join(f"{key}: {_to_flow_yaml(v)}" for key, v in sorted(value.items())) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_to_flow_yaml, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
