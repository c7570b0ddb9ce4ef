"""The section ``policies``, from schema to rules: conditions built, names resolved, order fixed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from proxy.dialects import DIALECTS
from proxy.policy import schema
from proxy.policy.compile.cache import kept
from proxy.policy.compile.context import CompileContext
from proxy.policy.compile.guards import captured
from proxy.policy.compile.limits import written
from proxy.policy.decide import conditions
from proxy.policy.decide.rules import CacheDecision, PolicyRules, Rule, RuleGuards
from proxy.policy.files.load import no_such, not_allowed
from proxy.policy.files.source import Path_
from proxy.policy.schema import patterns
from proxy.types import UNCHANGED, Changes, Endpoint, Refusal, ScopedLimit
from proxy.types.guard import Capture, Guarding
from proxy.words import quoted

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ENDPOINTS = tuple(each for each in get_args(Endpoint) if each != "models")


class RuleCompiler:
    """The rules, limits and guards that follow from naming a policy."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self.headers: set[str] = set()
        self._own = context.parts("policies", self._section)
        self._guards = context.parts("policies", self._guarding)
        self._orders = context.parts("policies", lambda name, _: self._order(name, ()))

    def sections(self, name: str) -> tuple[PolicyRules, ...]:
        """Return a policy's rules, then those of what it extends; each policy once."""
        return tuple(self._own[each] for each in self._orders[name] if self._own[each].rules)

    def bounds(self, name: str) -> tuple[ScopedLimit, ...]:
        """Return the limits of a policy, and of what it extends."""
        policies = self._context.policies.policies
        return tuple(
            bound
            for each in self._orders[name]
            for bound in self._context.bounds(("policies", each, "limits"), policies[each].limits)
        )

    def cache(self, name: str) -> CacheDecision | None:
        """Return what a policy decides about the cache, else what the first policy that it extends
        does."""
        policies = self._context.policies.policies
        in_force = (each for each in self._orders[name] if policies[each].mode == "enforce")
        decisions = (kept(policies[each].cache) for each in in_force)
        return next((each for each in decisions if each is not None), None)

    def _guarding(self, name: str, config: schema.PolicyConfig) -> RuleGuards:
        """Return a policy's own guards; all are in shadow if the policy is."""
        guards = self._context.guards(("policies", name), config.input, config.output)
        if config.mode == "enforce":
            return guards
        inputs, outputs = (tuple(replace(r, shadow=True) for r in each) for each in guards[:2])
        return RuleGuards(
            inputs, outputs, tuple(replace(each, shadow=True) for each in guards.ceilings)
        )

    def guarding(self, name: str) -> Guarding:
        """Return the guards of a policy, and of what it extends."""
        policies = self._context.policies.policies
        order = self._orders[name]
        return Guarding(
            input=tuple(rule for base in order for rule in self._guards[base].input),
            output=tuple(rule for base in order for rule in self._guards[base].output),
            opaque=any(policies[base].opaque == "allow" for base in order),
            ceilings=tuple(each for base in order for each in self._guards[base].ceilings),
            capture=self._capture(name),
        )

    def _capture(self, name: str) -> Capture | None:
        """Return which texts a policy lets traces show, else what the first policy that it extends
        does."""
        policies = self._context.policies.policies
        in_force = (each for each in self._orders[name] if policies[each].mode == "enforce")
        captures = (policies[each].capture for each in in_force)
        return next((captured(each) for each in captures if each is not None), None)

    def _order(self, name: str, above: tuple[str, ...]) -> list[str]:
        found = [name]
        for index, base in enumerate(self._context.policies.policies[name].extends):
            path: Path_ = ("policies", name, "extends", index)
            if base not in self._own:
                self._context.unknown(path, "policies", "policy", base)
            elif base in (*above, name):
                message = f"policy {quoted(base)} extends this policy. Remove one of the two."
                self._context.complain(path, message)
            else:
                found += [each for each in self._order(base, (*above, name)) if each not in found]
        return found

    def _section(self, name: str, config: schema.PolicyConfig) -> PolicyRules:
        path: Path_ = ("policies", name, "rules")
        shadow = config.mode == "shadow"
        rules: list[Rule] = []
        for index, rule in enumerate(config.rules):
            with self._context.located((*path, index)):
                rules.append(self._rule(name, (*path, index), rule, shadow))
        return PolicyRules(name, tuple(rules), config.match == "first")

    def _rule(self, policy: str, path: Path_, config: schema.RuleConfig, shadow: bool) -> Rule:
        name = f"{policy}/{config.name}"
        when = config.when
        routes = fallback = None
        if config.targets is not None:
            routes = self._context.routes((*path, "targets"), config.targets)
        if config.fallback is not None:
            fallback = self._context.plain((*path, "fallback"), config.fallback)
        return Rule(
            name=name,
            when=self.condition((*path, "when"), when) if when else conditions.ALWAYS,
            shadow=shadow or config.mode == "shadow",
            routes=routes,
            fallback=fallback,
            model=config.model,
            changes=_changes(config),
            refusal=_refusal(name, config.refuse),
            bounds=self._context.bounds((*path, "limits"), config.limits),
            cache=kept(config.cache),
            guards=self._context.guards(path, config.input, config.output),
            unguarded=frozenset((config.without and config.without.guards) or ()),
            without=self._without((*path, "without", "limits"), config.without),
            path=path,
        )

    def _without(self, path: Path_, config: schema.Without | None) -> frozenset[str]:
        names = (config and config.limits) or []
        known = {limit.name for _, limit in written(self._context.policies)}
        for index, name in enumerate(names):
            if name not in known and not self._context.may_hold(name):
                self._context.complain((*path, index), no_such("limit", name, known))
        return frozenset(names)

    def condition(self, path: Path_, config: schema.When) -> conditions.Condition:
        """Build a condition: one part by itself, several as all of them."""
        parts = list(self._parts(path, config))
        return parts[0] if len(parts) == 1 else conditions.All(tuple(parts))

    def _parts(self, path: Path_, config: schema.When) -> Iterator[conditions.Condition]:
        yield from self._compared(path, config)
        if config.stream is not None:
            yield conditions.Streamed(config.stream)
        if config.time is not None:
            yield self._hours((*path, "time"), config.time)
        yield from (self.condition((*path, "all", i), each) for i, each in enumerate(config.all))
        if config.any:
            several = (self.condition((*path, "any", i), each) for i, each in enumerate(config.any))
            yield conditions.AtLeastOne(tuple(several))
        if config.not_ is not None:
            yield conditions.Not(self.condition((*path, "not"), config.not_), in_words(config.not_))

    def _compared(self, path: Path_, config: schema.When) -> Iterator[conditions.Condition]:
        for index, field in enumerate(conditions.FIELDS):
            match: schema.Match | None = getattr(config, field)
            if match is not None:
                self._known((*path, field), field, match)
                yield conditions.Of(index, _values(match))
        if config.model is not None:
            yield conditions.OfModel(_values(config.model))
        for name, match in sorted(config.tag.items()):
            self._tag((*path, "tag", name), name, match)
            yield conditions.OfTag(name, _values(match))
        for name, match in sorted(config.header.items()):
            self.headers.add(name)
            yield conditions.OfHeader(name, _values(match))

    def _known(self, path: Path_, field: str, match: schema.Match) -> None:
        """Complain of a value that no call can ever have here."""
        if field == "key":
            for word in _words(match):
                self._context.unknown(path, "keys", "key", word)
        known = {"dialect": tuple(DIALECTS), "endpoint": ENDPOINTS}.get(field, ())
        for word in _words(match):
            if known and word not in known:
                self._context.complain(path, no_such(field, word, known))

    def _tag(self, path: Path_, name: str, match: schema.Match) -> None:
        rule = self._context.rules.get(name)
        if rule is None:
            self._context.unknown(path, "tags", "tag", name)
            return
        for word in _words(match):
            if not rule.allows(word):
                self._context.complain(path, not_allowed(word, rule.values))

    def _hours(self, path: Path_, config: schema.Hours) -> conditions.Between:
        zone = ZoneInfo("UTC")
        try:
            zone = ZoneInfo(config.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            message = f"time zone {quoted(config.zone)} does not exist. Use an IANA name."
            self._context.complain((*path, "zone"), message)
        begin, end = (_minute(part) for part in (config.between or "00:00-24:00").split("-"))
        days = frozenset(DAYS.index(day) for day in config.days or DAYS)
        return conditions.Between(begin=begin, end=end, days=days, zone=zone, says=in_words(config))


def _minute(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)


def _words(match: schema.Match) -> list[str]:
    return [*([match.equals] if match.equals is not None else []), *(match.in_ or [])]


def _values(match: schema.Match) -> conditions.Values:
    parts: list[conditions.Values] = []
    if match.equals is not None:
        parts.append(conditions.OneOf(frozenset({match.equals})))
    if match.in_ is not None:
        parts.append(conditions.OneOf(frozenset(match.in_)))
    if match.glob is not None:
        parts.append(conditions.Like(patterns.glob(match.glob)))
    return parts[0] if len(parts) == 1 else conditions.Both(tuple(parts))


def _changes(config: schema.RuleConfig) -> Changes:
    values = config.set.model_dump(exclude_none=True) if config.set else {}
    caps = config.cap.model_dump(exclude_none=True) if config.cap else {}
    return Changes(values, caps) if values or caps else UNCHANGED


def _refusal(rule: str, config: schema.RefusalConfig | None) -> Refusal | None:
    return None if config is None else Refusal(rule, config.message, config.status)


def in_words(config: schema.When | schema.Hours | schema.Match) -> str:
    """Return a condition in the words of a policy file, on one line, its keys in their alphabet's
    order: what is told of it does not depend on how it was written."""
    dumped = config.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    return _flow(dumped)


def _flow(value: object) -> str:
    if isinstance(value, dict):
        if list(value) in (["equals"], ["in"]):
            return _flow(next(iter(value.values())))
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
