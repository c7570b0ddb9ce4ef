"""When a rule holds. The objects that answer for calls also say, for ``explain``, why they do not.

Every condition is a pure function of the facts of a call. A fact that is not there (a tag that is
not set, a header that did not come) matches nothing, so only ``not`` holds for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple, Protocol

from proxy.policy.patterns import Glob


class Facts(NamedTuple):
    """What rules may know of one leg of a call. ``at`` is in UTC."""

    key: str
    dialect: str
    endpoint: str
    model: str
    stream: bool
    tags: Mapping[str, str]
    headers: Mapping[str, str]
    at: datetime


FIELDS = ("key", "dialect", "endpoint", "model")


class Condition(Protocol):
    """``holds`` says whether; ``missed`` says why not, in a few words, or nothing when it holds."""

    def holds(self, facts: Facts) -> bool: ...

    def missed(self, facts: Facts) -> str | None: ...


class Values(Protocol):
    """What a value must be. ``says`` puts it into words."""

    @property
    def says(self) -> str: ...

    def allow(self, value: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few values."""

    values: frozenset[str]

    @property
    def says(self) -> str:
        return " or ".join(sorted(self.values))

    def allow(self, value: str) -> bool:
        return value in self.values


@dataclass(frozen=True, slots=True)
class Like:
    """A value of a form."""

    pattern: Glob

    @property
    def says(self) -> str:
        return f"like {self.pattern.text}"

    def allow(self, value: str) -> bool:
        return self.pattern.fits(value)


@dataclass(frozen=True, slots=True)
class Both:
    """A value that fits several descriptions at once."""

    parts: tuple[Values, ...]

    @property
    def says(self) -> str:
        return " and ".join(part.says for part in self.parts)

    def allow(self, value: str) -> bool:
        return all(part.allow(value) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Of:
    """A fact that every call has as text, by its place in ``FIELDS``."""

    index: int
    values: Values

    def holds(self, facts: Facts) -> bool:
        return self.values.allow(facts[self.index])  # type: ignore[arg-type]  # FIELDS are texts

    def missed(self, facts: Facts) -> str | None:
        if self.holds(facts):
            return None
        return f"{FIELDS[self.index]} is {facts[self.index]}, not {self.values.says}"


@dataclass(frozen=True, slots=True)
class Named:
    """A tag or a header."""

    kind: str
    name: str
    values: Values

    def holds(self, facts: Facts) -> bool:
        value = (facts.tags if self.kind == "tag" else facts.headers).get(self.name)
        return value is not None and self.values.allow(value)

    def missed(self, facts: Facts) -> str | None:
        if self.holds(facts):
            return None
        value = (facts.tags if self.kind == "tag" else facts.headers).get(self.name)
        if value is None:
            return f"{self.kind} {self.name} is not set"
        shown = f" is {value}," if self.kind == "tag" else " is"  # a header's value is the client's
        return f"{self.kind} {self.name}{shown} not {self.values.says}"


@dataclass(frozen=True, slots=True)
class Streamed:
    """Whether the answer is to be streamed."""

    stream: bool

    def holds(self, facts: Facts) -> bool:
        return facts.stream is self.stream

    def missed(self, facts: Facts) -> str | None:
        if self.holds(facts):
            return None
        return "the answer is streamed" if facts.stream else "the answer is not streamed"


@dataclass(frozen=True, slots=True)
class Between:
    """A time of day, in minutes, on days of the week (Monday is 0) in a zone.

    A span past midnight belongs to the day on which it begins.
    """

    begin: int
    end: int
    days: frozenset[int]
    zone: tzinfo
    says: str

    def holds(self, facts: Facts) -> bool:
        local = facts.at.astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end and local.weekday() in self.days
        if minute >= self.begin:
            return local.weekday() in self.days
        yesterday = local.replace(tzinfo=None) - timedelta(days=1)
        return minute < self.end and yesterday.weekday() in self.days

    def missed(self, facts: Facts) -> str | None:
        if self.holds(facts):
            return None
        local = facts.at.astimezone(self.zone)
        return f"it came at {local:%a %H:%M}, not {self.says}"


@dataclass(frozen=True, slots=True)
class All:
    """Every one of several conditions."""

    parts: tuple[Condition, ...]

    def holds(self, facts: Facts) -> bool:
        for part in self.parts:  # noqa: SIM110  # a loop is half the cost of all() here
            if not part.holds(facts):
                return False
        return True

    def missed(self, facts: Facts) -> str | None:
        return next((why for part in self.parts if (why := part.missed(facts))), None)


@dataclass(frozen=True, slots=True)
class AtLeastOne:
    """At least one of several conditions."""

    parts: tuple[Condition, ...]

    def holds(self, facts: Facts) -> bool:
        return any(part.holds(facts) for part in self.parts)

    def missed(self, facts: Facts) -> str | None:
        if self.holds(facts):
            return None
        return "none of these holds: " + "; ".join(part.missed(facts) or "" for part in self.parts)


@dataclass(frozen=True, slots=True)
class Not:
    """A condition that must not hold. ``says`` is how it was written."""

    part: Condition
    says: str

    def holds(self, facts: Facts) -> bool:
        return not self.part.holds(facts)

    def missed(self, facts: Facts) -> str | None:
        return None if self.holds(facts) else f"what it excludes holds: {self.says}"


ALWAYS = All(())
