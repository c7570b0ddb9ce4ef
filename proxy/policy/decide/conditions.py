"""Conditions of rules: pure functions of the facts of a call.

A missing fact, such as a tag that is not set, matches no value, so only ``not`` matches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from operator import attrgetter
from typing import Literal, NamedTuple

from proxy.policy.schema.keys import ValueSet
from proxy.runtime.frozen import frozen
from proxy.types import Call

NO_NAMES: frozenset[str] = frozenset()


class Facts(NamedTuple):
    """The facts of a call and of one of its models, which has ``model_names``. Times are in UTC."""

    key: str
    dialect: str
    endpoint: str
    model_names: frozenset[str]
    stream: Literal["true", "false"]
    tags: Mapping[str, str]
    headers: Mapping[str, str]
    received_at: datetime

    @classmethod
    def from_call(cls, key: str, call: Call, tags: Mapping[str, str]) -> Facts:
        """Return the facts of a call, without the names of a model."""
        head = call.head
        return cls(
            key=key,
            dialect=head.dialect,
            endpoint=head.endpoint,
            model_names=NO_NAMES,
            stream="true" if call.stream else "false",
            tags=tags,
            headers=head.headers,
            received_at=head.received_at,
        )


Matcher = Callable[[Facts], bool]
Fact = Literal["key", "dialect", "endpoint", "model", "tag", "header", "stream", "time"]


@frozen
class StaticFacts:
    """Facts of all calls of a key to a deployment. Clients may add ``client_tags``."""

    key: str
    tags: Mapping[str, str]
    client_tags: frozenset[str]


class Condition:
    """A condition on the facts of a call."""

    __slots__ = ()

    def build_matcher(self) -> Matcher:
        """Return a function that is created once and called for each call."""
        raise NotImplementedError

    def evaluate_statically(self, static: StaticFacts) -> bool | None:
        """Return the result if static facts determine it, otherwise None."""
        return None

    def explain_mismatch(self, facts: Facts) -> str:
        """Return the reason why facts do not match, in a few words."""
        raise NotImplementedError

    def find_mismatch(self, facts: Facts) -> str | None:
        """Return the reason why facts do not match, or None if they do."""
        return None if self.build_matcher()(facts) else self.explain_mismatch(facts)


@frozen
class Comparison(Condition):
    """A comparison of a fact. ``tag_or_header`` is empty for other facts.

    Any name of a model may match. Header values are never shown: they may contain client data.
    """

    fact: Fact
    values: ValueSet
    tag_or_header: str = ""

    def build_matcher(self) -> Matcher:
        name, matches = self.tag_or_header, self.values.matches
        if self.fact == "model":
            return lambda facts: any(map(matches, facts.model_names))
        if self.fact == "tag":
            return lambda facts: (value := facts.tags.get(name)) is not None and matches(value)
        if self.fact == "header":
            return lambda facts: (value := facts.headers.get(name)) is not None and matches(value)
        read: Callable[[Facts], str] = attrgetter(self.fact)
        return lambda facts: matches(read(facts))

    def evaluate_statically(self, static: StaticFacts) -> bool | None:
        if self.fact == "key":
            return self.values.matches(static.key)
        if self.fact != "tag" or self.tag_or_header in static.client_tags - static.tags.keys():
            return None
        return self.tag_or_header in static.tags and self.values.matches(
            static.tags[self.tag_or_header]
        )

    def explain_mismatch(self, facts: Facts) -> str:
        expected = f"the rule expects {self.values.text}"
        if self.fact == "model":
            return f"model of the call is {' or '.join(sorted(facts.model_names))}, {expected}"
        if self.fact == "stream":
            return "the call is streamed" if facts.stream == "true" else "the call is not streamed"
        if self.fact not in ("tag", "header"):
            return f"{self.fact} of the call is {getattr(facts, self.fact)}, {expected}"
        if self.tag_or_header not in (facts.tags if self.fact == "tag" else facts.headers):
            return f"{self.fact} {self.tag_or_header} is not set"
        value = (
            f"is {facts.tags[self.tag_or_header]}" if self.fact == "tag" else "has another value"
        )
        return f"{self.fact} {self.tag_or_header} of the call {value}, {expected}"


@frozen
class TimeOfDay(Condition):
    """A time span in minutes of the day, on days of the week (Monday is 0) in a time zone.

    A span past midnight belongs to the day on which it begins.
    """

    begin: int
    end: int
    days: frozenset[int]
    zone: tzinfo
    text: str

    def build_matcher(self) -> Matcher:
        return self._is_in_weekly_hours

    def _is_in_weekly_hours(self, facts: Facts) -> bool:
        local = facts.received_at.astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end and local.weekday() in self.days
        if minute >= self.begin:
            return local.weekday() in self.days
        yesterday = local.replace(tzinfo=None) - timedelta(days=1)
        return minute < self.end and yesterday.weekday() in self.days

    def explain_mismatch(self, facts: Facts) -> str:
        local = facts.received_at.astimezone(self.zone)
        return f"the call arrived at {local:%a %H:%M}, the rule expects {self.text}"


@frozen
class AllOf(Condition):
    """All of several conditions. Without parts it matches every call."""

    parts: tuple[Condition, ...]

    def build_matcher(self) -> Matcher:
        matchers = [part.build_matcher() for part in self.parts]
        return lambda facts: all(matches(facts) for matches in matchers)

    def evaluate_statically(self, static: StaticFacts) -> bool | None:
        results = [part.evaluate_statically(static) for part in self.parts]
        return False if False in results else None if None in results else True

    def explain_mismatch(self, facts: Facts) -> str:
        return next(reason for part in self.parts if (reason := part.find_mismatch(facts)))


@frozen
class AnyOf(Condition):
    """At least one of several conditions."""

    parts: tuple[Condition, ...]

    def build_matcher(self) -> Matcher:
        matchers = [part.build_matcher() for part in self.parts]
        return lambda facts: any(matches(facts) for matches in matchers)

    def evaluate_statically(self, static: StaticFacts) -> bool | None:
        results = [part.evaluate_statically(static) for part in self.parts]
        return True if True in results else None if None in results else False

    def explain_mismatch(self, facts: Facts) -> str:
        reasons = "; ".join(part.explain_mismatch(facts) for part in self.parts)
        return f"no alternative matches: {reasons}"


@frozen
class Not(Condition):
    """A condition that must not match. ``text`` is the condition in YAML."""

    part: Condition
    text: str

    def build_matcher(self) -> Matcher:
        matches = self.part.build_matcher()
        return lambda facts: not matches(facts)

    def evaluate_statically(self, static: StaticFacts) -> bool | None:
        result = self.part.evaluate_statically(static)
        return None if result is None else not result

    def explain_mismatch(self, facts: Facts) -> str:
        return f"the condition under `not` matches: {self.text}"


ALWAYS = AllOf(())


def iter_used_facts(condition: Condition) -> Iterator[Fact]:
    """Yield the facts that a condition depends on."""
    if isinstance(condition, AllOf | AnyOf):
        for part in condition.parts:
            yield from iter_used_facts(part)
    elif isinstance(condition, Not):
        yield from iter_used_facts(condition.part)
    elif isinstance(condition, Comparison):
        yield condition.fact
    else:
        yield "time"
