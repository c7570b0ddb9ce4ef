"""Conditions of rules: pure functions of the facts of a call.

A missing fact, such as a tag that is not set, matches no value, so only ``not`` holds for it.
``explain`` shows the mismatch of a condition that does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from operator import attrgetter
from typing import Literal, NamedTuple, Protocol

from proxy.runtime.frozen import frozen
from proxy.types import Call


class Facts(NamedTuple):
    """The facts of a call and of one of its models. ``names`` are all names that may mean the
    model. ``received_at`` is in UTC."""

    key: str
    dialect: str
    endpoint: str
    names: frozenset[str]
    stream: bool
    tags: Mapping[str, str]
    headers: Mapping[str, str]
    at: datetime


Test = Callable[[Facts], bool]
Fact = Literal["key", "dialect", "endpoint", "model", "tag", "header", "stream", "time"]
NAMELESS: frozenset[str] = frozenset()


def facts_of(key: str, call: Call, tags: Mapping[str, str]) -> Facts:
    """Return the facts of a call, without the names of a model."""
    head = call.head
    return Facts(
        key=key,
        dialect=head.dialect,
        endpoint=head.endpoint,
        names=NAMELESS,
        stream=call.stream,
        tags=tags,
        headers=head.headers,
        at=head.received_at,
    )


@frozen
class KnownFacts:
    """Facts that all calls of a key to a deployment share. Clients may add the ``open`` tags, but
    may not change ``tags``."""

    key: str
    tags: Mapping[str, str]
    open: frozenset[str]


class Condition:
    """A condition on the facts of a call."""

    __slots__ = ()

    def test(self) -> Test:
        """Return a function that is created once and evaluated for each call."""
        raise NotImplementedError

    def fixed(self, known: KnownFacts) -> bool | None:
        """Return the result if ``known`` determines it, otherwise None."""
        return None

    def why_not(self, facts: Facts) -> str:
        """Return the mismatch in a few words, for facts that do not match."""
        raise NotImplementedError


class Values(Protocol):
    """Allowed values: ``OneOf``, ``Both`` or a ``Glob``. ``allow`` returns a membership test."""

    @property
    def text(self) -> str: ...

    def allow(self) -> Callable[[str], bool]: ...


@frozen
class OneOf:
    """Listed values."""

    values: frozenset[str]

    @property
    def text(self) -> str:
        return " or ".join(sorted(self.values))

    def allow(self) -> Callable[[str], bool]:
        return self.values.__contains__


@frozen
class Both:
    """Values that are in several sets."""

    parts: tuple[Values, ...]

    @property
    def text(self) -> str:
        return " and ".join(part.text for part in self.parts)

    def allow(self) -> Callable[[str], bool]:
        tests = [part.allow() for part in self.parts]
        return lambda value: all(test(value) for test in tests)


@frozen
class Compare(Condition):
    """A comparison of a fact. ``name`` is that of a tag or a header.

    Of a model any of its names may match. Header values belong to the client and are never shown.
    """

    fact: Fact
    values: Values
    name: str = ""

    def test(self) -> Test:
        name, allow = self.name, self.values.allow()
        if self.fact == "model":
            return lambda facts: any(map(allow, facts.names))
        if self.fact == "tag":
            return lambda facts: (value := facts.tags.get(name)) is not None and allow(value)
        if self.fact == "header":
            return lambda facts: (value := facts.headers.get(name)) is not None and allow(value)
        read: Callable[[Facts], str] = attrgetter(self.fact)
        return lambda facts: allow(read(facts))

    def fixed(self, known: KnownFacts) -> bool | None:
        if self.fact == "key":
            return self.values.allow()(known.key)
        if self.fact != "tag" or self.name in known.open - known.tags.keys():
            return None
        return self.name in known.tags and self.values.allow()(known.tags[self.name])

    def why_not(self, facts: Facts) -> str:
        expected = f"expected {self.values.text}"
        if self.fact == "model":
            return f"model is {' or '.join(sorted(facts.names))}, {expected}"
        if self.fact not in ("tag", "header"):
            return f"{self.fact} is {getattr(facts, self.fact)}, {expected}"
        if self.name not in (facts.tags if self.fact == "tag" else facts.headers):
            return f"{self.fact} {self.name} is not set"
        value = f"is {facts.tags[self.name]}" if self.fact == "tag" else "has another value"
        return f"{self.fact} {self.name} {value}, {expected}"


@frozen
class Streamed(Condition):
    """Whether the response is streamed."""

    stream: bool

    def test(self) -> Test:
        stream = self.stream
        return lambda facts: facts.stream is stream

    def why_not(self, facts: Facts) -> str:
        return "the call is streamed" if facts.stream else "the call is not streamed"


@frozen
class Between(Condition):
    """A time of day in minutes, on days of the week (Monday is 0) in a time zone.

    A span past midnight belongs to the day on which it begins.
    """

    begin: int
    end: int
    days: frozenset[int]
    zone: tzinfo
    text: str

    def test(self) -> Test:
        return self._matches

    def _matches(self, facts: Facts) -> bool:
        local = facts.at.astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end and local.weekday() in self.days
        if minute >= self.begin:
            return local.weekday() in self.days
        yesterday = local.replace(tzinfo=None) - timedelta(days=1)
        return minute < self.end and yesterday.weekday() in self.days

    def why_not(self, facts: Facts) -> str:
        local = facts.at.astimezone(self.zone)
        return f"the call arrived at {local:%a %H:%M}, expected {self.text}"


@frozen
class All(Condition):
    """All of several conditions. Without parts it matches every call."""

    parts: tuple[Condition, ...]

    def test(self) -> Test:
        tests = [part.test() for part in self.parts]
        if len(tests) == 2:  # the usual number, faster without a loop
            one, other = tests
            return lambda facts: one(facts) and other(facts)
        return lambda facts: all(test(facts) for test in tests)

    def fixed(self, known: KnownFacts) -> bool | None:
        results = [part.fixed(known) for part in self.parts]
        if False in results:
            return False
        return None if None in results else True

    def why_not(self, facts: Facts) -> str:
        return next(reason for part in self.parts if (reason := missed(part, facts)))


@frozen
class AtLeastOne(Condition):
    """At least one of several conditions."""

    parts: tuple[Condition, ...]

    def test(self) -> Test:
        tests = [part.test() for part in self.parts]
        return lambda facts: any(test(facts) for test in tests)

    def fixed(self, known: KnownFacts) -> bool | None:
        results = [part.fixed(known) for part in self.parts]
        if True in results:
            return True
        return None if None in results else False

    def why_not(self, facts: Facts) -> str:
        return f"no alternative matches: {'; '.join(part.why_not(facts) for part in self.parts)}"


@frozen
class Not(Condition):
    """A condition that must not match. ``text`` is the condition in YAML."""

    part: Condition
    text: str

    def test(self) -> Test:
        test = self.part.test()
        return lambda facts: not test(facts)

    def fixed(self, known: KnownFacts) -> bool | None:
        result = self.part.fixed(known)
        return None if result is None else not result

    def why_not(self, facts: Facts) -> str:
        return f"an excluded condition matches: {self.text}"


ALWAYS = All(())


def missed(condition: Condition, facts: Facts) -> str | None:
    """Return the mismatch of a condition in a few words, or None if it matches."""
    return None if condition.test()(facts) else condition.why_not(facts)


def facts_read(condition: Condition) -> Iterator[Fact]:
    """Yield the facts that a condition depends on."""
    if isinstance(condition, All | AtLeastOne):
        for part in condition.parts:
            yield from facts_read(part)
    elif isinstance(condition, Not):
        yield from facts_read(condition.part)
    elif isinstance(condition, Compare):
        yield condition.fact
    else:
        yield "time" if isinstance(condition, Between) else "stream"
