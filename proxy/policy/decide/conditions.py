"""When a rule holds. The objects that answer for calls also say, for ``explain``, why they do not.

Every condition is a pure function of the facts of a call. A fact that is not there (a tag that is
not set, a header that did not come) matches nothing, so only ``not`` holds for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple, Protocol

from proxy.frozen import frozen
from proxy.policy.schema.patterns import Glob
from proxy.types import Call


class Facts(NamedTuple):
    """What rules may know of a call, and of a model that it asks for: all ``names`` by which that
    may be meant. ``at`` is in UTC."""

    key: str
    dialect: str
    endpoint: str
    names: frozenset[str]
    stream: bool
    tags: Mapping[str, str]
    headers: Mapping[str, str]
    at: datetime


TWO = 2
NAMELESS: frozenset[str] = frozenset()
FIELDS = ("key", "dialect", "endpoint")


def facts_of(key: str, call: Call, tags: Mapping[str, str]) -> Facts:
    """Return what rules may know of a call, but for the names of the model that is asked."""
    head = call.head
    return Facts(
        key=key,
        dialect=head.dialect,
        endpoint=head.endpoint,
        names=NAMELESS,
        stream=call.stream,
        tags=tags,
        headers=head.headers,
        at=head.at,
    )


Test = Callable[[Facts], bool]


@frozen
class KnownFacts:
    """What is the same for all calls of one key to one deployment: ``tags`` no caller can change;
    of the others they may set those that are ``open``."""

    key: str
    tags: Mapping[str, str]
    open: frozenset[str]


class Condition(Protocol):
    """``test`` gives a function that says whether it holds, made once and called for every call;
    ``fixed`` says it where what is known decides, and None where the call does. ``why_not`` says
    in a few words why it does not hold, and is only asked then."""

    def test(self) -> Test: ...

    def fixed(self, known: KnownFacts) -> bool | None: ...

    def why_not(self, facts: Facts) -> str: ...


class Values(Protocol):
    """What a value must be. ``says`` puts it into words, ``allow`` gives a function that tells."""

    @property
    def says(self) -> str: ...

    def allow(self) -> Callable[[str], bool]: ...


@frozen
class OneOf:
    """One of a few values."""

    values: frozenset[str]

    @property
    def says(self) -> str:
        return " or ".join(sorted(self.values))

    def allow(self) -> Callable[[str], bool]:
        return self.values.__contains__


@frozen
class Like:
    """A value of a form."""

    pattern: Glob

    @property
    def says(self) -> str:
        return self.pattern.text

    def allow(self) -> Callable[[str], bool]:
        return self.pattern.fits


@frozen
class Both:
    """A value that fits several descriptions at once."""

    parts: tuple[Values, ...]

    @property
    def says(self) -> str:
        return " and ".join(part.says for part in self.parts)

    def allow(self) -> Callable[[str], bool]:
        several = [part.allow() for part in self.parts]
        return lambda value: all(allow(value) for allow in several)


@frozen
class Of:
    """A fact that every call has as text, by its place in ``FIELDS``."""

    index: int
    values: Values

    def test(self) -> Test:
        index, allow = self.index, self.values.allow()
        return lambda facts: allow(facts[index])  # type: ignore[arg-type]  # FIELDS are texts

    def fixed(self, known: KnownFacts) -> bool | None:
        return self.values.allow()(known.key) if FIELDS[self.index] == "key" else None

    def why_not(self, facts: Facts) -> str:
        return f"{FIELDS[self.index]} is {facts[self.index]}, expected {self.values.says}"


@frozen
class OfModel:
    """The model that is asked: one of its names is enough."""

    values: Values

    def test(self) -> Test:
        allow = self.values.allow()
        return lambda facts: any(map(allow, facts.names))

    def fixed(self, known: KnownFacts) -> bool | None:
        return None

    def why_not(self, facts: Facts) -> str:
        return f"model is {' or '.join(sorted(facts.names))}, expected {self.values.says}"


@frozen
class OfTag:
    """A tag's value."""

    name: str
    values: Values

    def test(self) -> Test:
        name, allow = self.name, self.values.allow()
        return lambda facts: (value := facts.tags.get(name)) is not None and allow(value)

    def fixed(self, known: KnownFacts) -> bool | None:
        if self.name in known.tags:
            return self.values.allow()(known.tags[self.name])
        return None if self.name in known.open else False

    def why_not(self, facts: Facts) -> str:
        if self.name not in facts.tags:
            return f"tag {self.name} is not set"
        return f"tag {self.name} is {facts.tags[self.name]}, expected {self.values.says}"


@frozen
class OfHeader:
    """A header's value, which is the client's own and is never shown."""

    name: str
    values: Values

    def test(self) -> Test:
        name, allow = self.name, self.values.allow()
        return lambda facts: (value := facts.headers.get(name)) is not None and allow(value)

    def fixed(self, known: KnownFacts) -> bool | None:
        return None

    def why_not(self, facts: Facts) -> str:
        if self.name not in facts.headers:
            return f"header {self.name} is not set"
        return f"header {self.name} has another value, expected {self.values.says}"


@frozen
class Streamed:
    """Whether the answer is to be streamed."""

    stream: bool

    def test(self) -> Test:
        stream = self.stream
        return lambda facts: facts.stream is stream

    def fixed(self, known: KnownFacts) -> bool | None:
        return None

    def why_not(self, facts: Facts) -> str:
        return "the call is streamed" if facts.stream else "the call is not streamed"


@frozen
class Between:
    """A time of day, in minutes, on days of the week (Monday is 0) in a zone.

    A span past midnight belongs to the day on which it begins.
    """

    begin: int
    end: int
    days: frozenset[int]
    zone: tzinfo
    says: str

    def test(self) -> Test:
        return self._holds

    def _holds(self, facts: Facts) -> bool:
        local = facts.at.astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end and local.weekday() in self.days
        if minute >= self.begin:
            return local.weekday() in self.days
        yesterday = local.replace(tzinfo=None) - timedelta(days=1)
        return minute < self.end and yesterday.weekday() in self.days

    def fixed(self, known: KnownFacts) -> bool | None:
        return None

    def why_not(self, facts: Facts) -> str:
        local = facts.at.astimezone(self.zone)
        return f"the call arrived at {local:%a %H:%M}, expected {self.says}"


@frozen
class All:
    """Every one of several conditions."""

    parts: tuple[Condition, ...]

    def test(self) -> Test:
        tests = [part.test() for part in self.parts]
        if len(tests) == TWO:  # most have two, and a loop costs as much as both
            one, other = tests
            return lambda facts: one(facts) and other(facts)
        return lambda facts: all(test(facts) for test in tests)

    def fixed(self, known: KnownFacts) -> bool | None:
        found = [part.fixed(known) for part in self.parts]
        if False in found:
            return False
        return None if None in found else True

    def why_not(self, facts: Facts) -> str:
        return next(why for part in self.parts if (why := missed(part, facts)))


@frozen
class AtLeastOne:
    """At least one of several conditions."""

    parts: tuple[Condition, ...]

    def test(self) -> Test:
        tests = [part.test() for part in self.parts]
        return lambda facts: any(test(facts) for test in tests)

    def fixed(self, known: KnownFacts) -> bool | None:
        found = [part.fixed(known) for part in self.parts]
        if True in found:
            return True
        return None if None in found else False

    def why_not(self, facts: Facts) -> str:
        return f"no alternative matches: {'; '.join(part.why_not(facts) for part in self.parts)}"


@frozen
class Not:
    """A condition that must not hold. ``says`` is how it was written."""

    part: Condition
    says: str

    def test(self) -> Test:
        test = self.part.test()
        return lambda facts: not test(facts)

    def fixed(self, known: KnownFacts) -> bool | None:
        found = self.part.fixed(known)
        return None if found is None else not found

    def why_not(self, facts: Facts) -> str:
        return f"an excluded condition matches: {self.says}"


@frozen
class Always:
    """No condition at all."""

    def test(self) -> Test:
        return lambda facts: True

    def fixed(self, known: KnownFacts) -> bool | None:
        return True

    def why_not(self, facts: Facts) -> str:
        return ""


ALWAYS = Always()


def missed(condition: Condition, facts: Facts) -> str | None:
    """Return why a condition does not hold, in a few words; None where it does."""
    return None if condition.test()(facts) else condition.why_not(facts)


def reads(condition: Condition, *kinds: type[Condition]) -> bool:
    """True if it depends on what a condition of one of these kinds looks at."""
    return any(isinstance(each, kinds) for each in _innermost(condition))


def reads_key(condition: Condition) -> bool:
    """True if it depends on which key calls."""
    return any(
        isinstance(each, Of) and FIELDS[each.index] == "key" for each in _innermost(condition)
    )


def _innermost(condition: Condition) -> Iterator[Condition]:
    """Yield the conditions that it is put together from."""
    if isinstance(condition, All | AtLeastOne):
        for part in condition.parts:
            yield from _innermost(part)
    elif isinstance(condition, Not):
        yield from _innermost(condition.part)
    else:
        yield condition
