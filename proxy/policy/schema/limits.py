"""Limits, under ``limits`` of policies and deployments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    create_model,
)

from proxy.config import units
from proxy.config.scalars import Name, Section, Zone, listed, one_or_several
from proxy.config.shapes import Requirement, ShapeCondition, each, has, needs, no, one, some
from proxy.limits.kinds import KINDS
from proxy.types.limit import Counting, LimitKind

PER = r"^(key|deployment|model|user|tag\.[a-z][a-z0-9_]{0,63})$"


def _per(value: str) -> str:
    if not re.fullmatch(PER, value):
        raise ValueError("must be key, deployment, model, user or tag.NAME")
    return value


Per = Annotated[str, AfterValidator(_per), WithJsonSchema({"type": "string", "pattern": PER})]
Rate = Annotated[
    tuple[int, int],
    BeforeValidator(units.rate),
    PlainSerializer(units.rate_text),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{units.RATE}$", "examples": ["600 per minute"]}
    ),
]
Budget = Annotated[
    tuple[int, str],
    BeforeValidator(units.budget),
    PlainSerializer(units.budget_text),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^{units.AT_MOST}{units.BUDGET}$",
            "examples": ["500 per month"],
        }
    ),
]
Count = Annotated[
    int,
    BeforeValidator(units.count),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": f"^{units.COUNT}$"},
            ]
        }
    ),
]
Share = Annotated[
    float,
    BeforeValidator(units.share),
    WithJsonSchema({"type": "string", "pattern": f"^(?:{units.SHARE})%$", "examples": ["80%"]}),
]


def may_be_caller_set(per: list[str]) -> bool:
    """True if a caller may have a say in whose counter a limit has: by its user or a tag."""
    return any(name == "user" or name.startswith("tag.") for name in per)


def _per_what_callers_set() -> ShapeCondition:
    return _listed(may_be_caller_set, r"^(user|tag\..*)$")


def _per_key() -> ShapeCondition:
    return _listed(lambda per: "key" in per, "^key$")


def _listed(test: Callable[[list[str]], bool], pattern: str) -> ShapeCondition:
    """True if what a limit is per, one or several, has a name of a pattern."""
    name = {"type": "string", "pattern": pattern}
    found = {"anyOf": [name, {"type": "array", "contains": name}]}
    schema = {"required": ["per"], "properties": {"per": found}}
    return ShapeCondition(lambda limit: test(cast("LimitConfig", limit).per), lambda _: schema)


def _once(value: list[str]) -> list[str]:
    if len(set(value)) < len(value):
        raise ValueError("must name each once")
    return value


AMOUNTS: dict[Counting, Any] = {"rate": Rate, "budget": Budget, "lease": Count}


def _only_for(key: str, called: str, counting: Counting) -> Requirement:
    kinds = [name for name, kind in KINDS.items() if kind.counting == counting]
    condition = needs(has(key), some(*map(has, kinds)) if kinds[1:] else has(kinds[0]))
    return Requirement(condition, f"must not say {called} but for {' or '.join(kinds)}")


class _Named(Section):
    name: Name
    """Its name, one of its own in the whole folder: counters, metrics and refusals go by it."""


_FIELDS: dict[str, Any] = {
    name: (AMOUNTS[kind.counting] | None, Field(None, description=kind.__doc__))
    for name, kind in KINDS.items()
}
_Amounts = create_model("_Amounts", __base__=_Named, **_FIELDS)


class LimitConfig(_Amounts):
    """How much may be used: requests, tokens, calls at once, or money."""

    REQUIREMENTS = (
        Requirement(one(*map(has, KINDS)), f"must say one of {', '.join(KINDS)}"),
        _only_for("burst", "a burst", "rate"),
        _only_for("zone", "a zone", "budget"),
        _only_for("unpriced", "unpriced", "budget"),
        Requirement(
            needs(has("across"), each(_per_what_callers_set(), no(_per_key()))),
            "must not say across but per user or tag, without key",
        ),
    )

    per: Annotated[
        list[Per],
        BeforeValidator(listed),
        AfterValidator(_once),
        WithJsonSchema(one_or_several({"type": "string", "pattern": PER}, uniqueItems=True)),
    ] = Field(default_factory=list)
    """Whose it is: each key, deployment, model, user, tag.NAME, or mix of them has its own. What a
    caller says itself, its user or a tag with `caller: true`, counts within its key."""
    across: Literal["keys"] | None = None
    """`keys`: what callers say themselves counts for all keys together."""
    burst: Count | None = None
    """How much of a rate may be used at once; as much as a whole time's."""
    zone: Zone | None = None
    """The time zone of the calendar; UTC."""
    warn_at: Share | None = None
    """The share at which an event is logged and counted."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """`shadow` counts what it would refuse, and refuses nothing."""
    unpriced: Literal["refuse", "allow"] | None = None
    """Of a limit of money: targets without a known price are an error; `allow` serves them, and
    counts 0 for them."""
    on_store_error: Literal["local", "open", "closed"] = "local"
    """Without its store: count in this process alone, let all pass, or refuse all."""

    @property
    def kind(self) -> LimitKind:
        """What it counts: the one of the kinds that it says."""
        return next(kind for name, kind in KINDS.items() if getattr(self, name) is not None)

    @property
    def amount(self) -> tuple[int, Any]:
        """How much of that, and in which time: whole seconds, a unit of the calendar, or None."""
        value = getattr(self, self.kind.name)
        return value if isinstance(value, tuple) else (value, None)
