"""Compiles policies: limits, rules with their conditions, and inheritance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from proxy import types
from proxy.dialects import DIALECTS
from proxy.errors.words import quote
from proxy.policy import schema
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.guards import compile_capture, compile_guards
from proxy.policy.compile.targets import compile_routes
from proxy.policy.decide import conditions
from proxy.policy.decide.rules import CacheDecision, PolicyRules, Rule, join_guards
from proxy.policy.files.source import KeyPath
from proxy.policy.files.validation import describe_unknown_name
from proxy.policy.schema.keys import ValueSet, compile_glob, list_values
from proxy.types.guard import NO_GUARDS, GuardPlan
from proxy.types.limit import Limit
from proxy.types.windows import Calendar

Limits = tuple[types.ScopedLimit, ...]
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


def compile_limit_section(context: CompileContext) -> None:
    """Compile all limits of the folder."""
    for path, config in iter_limit_configs(context.policies):
        if config.name in context.limit_paths:
            message = f"another limit is also called {quote(config.name)}. "
            context.report((*path, "name"), f"{message}Limit names must be unique.")
        context.limit_paths.setdefault(config.name, path)
        for index, per in enumerate(config.per):
            if per.startswith("tag."):
                context.check_tag((*path, "per", index), per.removeprefix("tag."))
        try:
            limit = _compile_limit(context, path, config)
        except ValueError as error:
            context.report(path, str(error).removeprefix(f"{config.name}: "))
            continue
        needs_prices = limit.is_budget and config.unpriced != "allow"
        per_parts = _list_scope_parts(context, config)
        context.limits[path] = types.ScopedLimit(limit, per_parts, needs_prices)


def get_limits(context: CompileContext, path: KeyPath, count: int) -> Limits:
    """Return the compiled limits of a part with ``count`` limits, without invalid ones."""
    paths = ((*path, "limits", index) for index in range(count))
    return tuple(context.limits[path] for path in paths if path in context.limits)


def _list_scope_parts(context: CompileContext, config: schema.LimitConfig) -> tuple[str, ...]:
    """Return the parts of a counter's name, the key first.

    Values that clients may set are counted per key, so that no client exhausts another's limit.
    """
    rules = context.tag_rules.items()
    client_values = {"user", *(f"tag.{name}" for name, rule in rules if rule.set_by_clients)}
    names = tuple(name for name in config.per if name != "key")
    is_per_key = config.across is None and not client_values.isdisjoint(names)
    return ("key", *names) if "key" in config.per or is_per_key else names


def _compile_limit(context: CompileContext, path: KeyPath, config: schema.LimitConfig) -> Limit:
    amount, window = config.amount_and_window
    if isinstance(window, str):
        window = Calendar(window, config.zone or "UTC")  # type: ignore[arg-type]  # a unit
    return Limit(
        config.name,
        config.kind,
        amount=amount,
        window=window,
        burst=config.burst,
        shadow=context.is_shadow(path, config.mode),
        warn_at=config.warn_at,
        on_store_error=config.on_store_error,
    )


class CompiledPolicy(NamedTuple):
    """The parts of a policy and of the policies that it extends, which follow its own."""

    sections: tuple[PolicyRules, ...] = ()
    limits: Limits = ()
    cache: CacheDecision | None = None
    guards: GuardPlan = NO_GUARDS


def compile_policy_section(context: CompileContext) -> dict[str, CompiledPolicy]:
    own = context.compile_section("policies", partial(_compile_own_parts, context))
    orders = context.compile_section(
        "policies", lambda name, _: _list_policies_by_precedence(context, name, ())
    )
    policies: dict[str, CompiledPolicy] = {}
    for name, order in orders.items():
        parts = [own[policy] for policy in order]
        policies[name] = CompiledPolicy(
            sections=tuple(section for part in parts for section in part.sections),
            limits=tuple(scoped for part in parts for scoped in part.limits),
            cache=next((part.cache for part in parts if part.cache is not None), None),
            guards=join_guards([part.guards for part in parts]),
        )
    return policies


def _list_policies_by_precedence(
    context: CompileContext, policy_name: str, extending_policies: tuple[str, ...]
) -> list[str]:
    """Return a policy and all that it extends, each once, in order of precedence."""
    order = [policy_name]
    for index, base in enumerate(context.policies.policies[policy_name].extends):
        path: KeyPath = ("policies", policy_name, "extends", index)
        context.check_reference(path, "policies", "policy", base)
        if base in (*extending_policies, policy_name):
            message = f"policy {quote(base)} extends this policy. Remove one of the two."
            context.report(path, message)
        elif base in context.policies.policies:
            extending = (*extending_policies, policy_name)
            bases = _list_policies_by_precedence(context, base, extending)
            order += [policy for policy in bases if policy not in order]
    return order


def _compile_own_parts(
    context: CompileContext, name: str, config: schema.PolicyConfig
) -> CompiledPolicy:
    path: KeyPath = ("policies", name)
    rules: list[Rule] = []
    for index, rule in enumerate(config.rules):
        rule_path = (*path, "rules", index)
        with context.wrap_errors_in_policy_error(rule_path):
            rules.append(_compile_rule(context, f"{name}/{rule.name}", rule_path, rule))
    section = PolicyRules(name, tuple(rules), config.match == "first")
    enforces = config.mode == "enforce"
    capture = compile_capture(config.capture) if config.capture and enforces else None
    guards = compile_guards(context, path, config)
    return CompiledPolicy(
        sections=(section,) if rules else (),
        limits=get_limits(context, path, len(config.limits)),
        cache=compile_cache(config.cache) if enforces else None,
        guards=replace(guards, allows_opaque=config.opaque == "allow", capture=capture),
    )


def _compile_rule(
    context: CompileContext, name: str, path: KeyPath, config: schema.RuleConfig
) -> Rule:
    routes = fallback = None
    if config.targets is not None:
        routes = compile_routes(context, (*path, "targets"), config.targets)
    if config.fallback is not None:
        fallback = compile_routes(context, (*path, "fallback"), config.fallback).targets
    set_values = config.set.model_dump(exclude_none=True) if config.set else {}
    caps = config.cap.model_dump(exclude_none=True) if config.cap else {}
    when, refuse, without = config.when, config.refuse, config.without
    removed_limits = (without and without.limits) or []
    for index, limit in enumerate(removed_limits):
        if limit not in context.limit_paths:
            message = describe_unknown_name("limit", limit, context.limit_paths)
            context.report((*path, "without", "limits", index), message)
    return Rule(
        name=name,
        when=compile_condition(context, (*path, "when"), when) if when else conditions.ALWAYS,
        shadow=context.is_shadow(path, config.mode),
        routes=routes,
        fallback=fallback,
        model=config.model,
        changes=types.ParameterOverrides(set_values, caps)
        if set_values or caps
        else types.NO_OVERRIDES,
        refusal=types.RuleRefusal(name, refuse.message, refuse.status) if refuse else None,
        limits=get_limits(context, path, len(config.limits or ())),
        cache=compile_cache(config.cache),
        guards=compile_guards(context, path, config),
        without_guards=frozenset((without and without.guards) or ()),
        without_limits=frozenset(removed_limits),
        path=path,
    )


def compile_condition(
    context: CompileContext, path: KeyPath, config: schema.WhenConfig
) -> conditions.Condition:
    """Return the condition of a rule. Several parts must all match."""
    parts = [*_compile_comparisons(context, path, config)]
    if config.stream is not None:
        stream = list_values([str(config.stream).lower()])
        parts.append(conditions.Comparison("stream", stream))
    if config.time is not None:
        parts.append(_compile_hours(context, (*path, "time"), config.time))
    groups = {
        name: [compile_condition(context, (*path, name, n), p) for n, p in enumerate(inner)]
        for name, inner in (("all", config.all), ("any", config.any))
    }
    parts += groups["all"]
    if groups["any"]:
        parts.append(conditions.AnyOf(tuple(groups["any"])))
    if config.not_ is not None:
        excluded = compile_condition(context, (*path, "not"), config.not_)
        parts.append(conditions.Not(excluded, to_yaml(config.not_)))
    return parts[0] if len(parts) == 1 else conditions.AllOf(tuple(parts))


def _compile_comparisons(
    context: CompileContext, path: KeyPath, config: schema.WhenConfig
) -> Iterator[conditions.Condition]:
    matches: dict[conditions.Fact, schema.MatchConfig | None]
    matches = {"key": config.key, "dialect": config.dialect}
    matches |= {"endpoint": config.endpoint, "model": config.model}
    for fact, match in matches.items():
        if match is not None:
            for value in match.values:
                if fact == "key":
                    context.check_reference((*path, fact), "keys", "key", value)
                elif fact in FACT_VALUES and value not in FACT_VALUES[fact]:
                    message = describe_unknown_name(fact, value, FACT_VALUES[fact])
                    context.report((*path, fact), message)
            yield conditions.Comparison(fact, _compile_match(match))
    for name, match in sorted(config.tag.items()):
        context.check_tag((*path, "tag", name), name, *match.values)
        yield conditions.Comparison("tag", _compile_match(match), name)
    for name, match in sorted(config.header.items()):
        context.headers.add(name)
        yield conditions.Comparison("header", _compile_match(match), name)


def _compile_hours(
    context: CompileContext, path: KeyPath, config: schema.HoursConfig
) -> conditions.TimeOfDay:
    zone = ZoneInfo("UTC")
    try:
        zone = ZoneInfo(config.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = f"time zone {quote(config.zone)} does not exist. Use an IANA name."
        context.report((*path, "zone"), message)
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


def _compile_match(match: schema.MatchConfig) -> ValueSet:
    """Return the values that all comparisons of a match allow."""
    glob = None if match.glob is None else compile_glob(match.glob)
    if glob is not None and not match.values:
        return glob
    values = set(match.values if match.in_ is None else match.in_)
    values &= set(match.values if match.equals is None else [match.equals])
    return list_values(value for value in values if glob is None or glob.matches(value))


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
