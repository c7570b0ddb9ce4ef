"""Limits, under ``limits`` of policies and deployments."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    create_model,
)

from proxy.config import units
from proxy.config.scalars import (
    ItemOrList,
    Name,
    Section,
    Zone,
    make_pattern_annotations,
    number_or_text,
    parse_text,
    require,
)
from proxy.config.shapes import (
    Requirement,
    ShapeCondition,
    all_of,
    any_of,
    if_then,
    is_not_null,
    not_,
    one_of,
)
from proxy.limits.kinds import KINDS
from proxy.types.limit import Counting, LimitKind

SCOPE_PATTERN = r"key|deployment|model|user|tag\.[a-z][a-z0-9_]{0,63}"
ScopePart = Annotated[
    str,
    *make_pattern_annotations(
        SCOPE_PATTERN, "must be key, deployment, model, user or tag.NAME", "key"
    ),
]
Rate = Annotated[
    tuple[int, int],
    *parse_text(units.parse_rate, units.RATE_PATTERN, "600 per minute"),
    PlainSerializer(units.format_rate),
]
BUDGET_PATTERN = units.MAX_USD_CHECK + units.BUDGET_PATTERN
Budget = Annotated[
    tuple[int, str],
    *parse_text(units.parse_budget, BUDGET_PATTERN, "500 per month"),
    PlainSerializer(units.format_budget),
]
Count = Annotated[
    int,
    BeforeValidator(units.parse_count),
    number_or_text(units.COUNT_PATTERN, type="integer", minimum=1),
]
PERCENTAGE_PATTERN = f"(?:{units.PERCENT_PATTERN})%"
Percentage = Annotated[float, *parse_text(units.parse_percent, PERCENTAGE_PATTERN, "80%")]


def _build_scope_part_condition(pattern: str) -> ShapeCondition:
    name = {"type": "string", "pattern": pattern}
    per = {"anyOf": [name, {"type": "array", "contains": name}]}
    return ShapeCondition(
        lambda limit: any(re.match(pattern, name) for name in cast("LimitConfig", limit).per),
        lambda _: {"required": ["per"], "properties": {"per": per}},
    )


AMOUNT_TYPES: dict[Counting, Any] = {"rate": Rate, "budget": Budget, "lease": Count}


def _require_counter_type(key: str, counting: Counting) -> Requirement:
    kinds = [name for name, kind in KINDS.items() if kind.counter_type == counting]
    condition = if_then(
        is_not_null(key), any_of(*map(is_not_null, kinds)) if kinds[1:] else is_not_null(kinds[0])
    )
    return Requirement(condition, f"{key} requires {' or '.join(kinds)}")


class _NamedConfig(Section):
    name: Name
    """Name, unique in the folder. Used in counters, metrics and errors."""


_FIELDS: dict[str, Any] = {
    name: (AMOUNT_TYPES[kind.counter_type] | None, Field(None, description=kind.__doc__))
    for name, kind in KINDS.items()
}
_Amounts = create_model("_Amounts", __base__=_NamedConfig, **_FIELDS)


class LimitConfig(_Amounts):
    """A limit on requests, tokens, concurrent calls, or USD."""

    REQUIREMENTS = (
        Requirement(
            one_of(*map(is_not_null, KINDS)), f"must have exactly one of {', '.join(KINDS)}"
        ),
        _require_counter_type("burst", "rate"),
        _require_counter_type("zone", "budget"),
        _require_counter_type("unpriced", "budget"),
        Requirement(
            if_then(
                is_not_null("across"),
                all_of(
                    _build_scope_part_condition(r"^(user|tag\..*)$"),
                    not_(_build_scope_part_condition("^key$")),
                ),
            ),
            'across requires "user" or "tag.NAME" in per, and no "key" there',
        ),
    )

    per: Annotated[
        list[ScopePart],
        require(lambda names: len({*names}) == len(names), "must not contain a name twice"),
        ItemOrList(uniqueItems=True),
    ] = Field(default_factory=list)
    """Scope of the counter: key, deployment, model, user, tag.NAME, or a combination. Values that
    clients may set (user, tags with `caller: true`) are counted per key."""
    across: Literal["keys"] | None = None
    """`keys` shares counters of client-set values between all keys."""
    burst: Count | None = None
    """Amount that may be used at once. Default: the amount of one period."""
    zone: Zone | None = None
    """Time zone of the calendar window. Default UTC."""
    warn_at: Percentage | None = None
    """Percentage of the limit at which a warning is logged and counted."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """`shadow` counts calls that it would reject, without rejecting them."""
    unpriced: Literal["refuse", "allow"] | None = None
    """Targets without a known price under a limit in USD: `refuse` is a check error, `allow` serves
    them and counts 0 USD."""
    on_store_error: Literal["local", "open", "closed"] = "local"
    """If the store fails: `local` counts in this process, `open` admits, `closed` rejects."""

    @property
    def kind(self) -> LimitKind:
        return next(kind for name, kind in KINDS.items() if getattr(self, name) is not None)

    @property
    def amount_and_window(self) -> tuple[int, Any]:
        """Amount and window: whole seconds, a calendar unit, or None."""
        value = getattr(self, self.kind.name)
        return value if isinstance(value, tuple) else (value, None)
