"""The `economics` guard: limits the estimated cost of a call. The limiter checks the limit."""

from __future__ import annotations

from typing import Literal

from proxy.config.scalars import PositiveUsd, Section
from proxy.config.shapes import Requirement, any_of, is_present, not_
from proxy.guards.guard_kind import GuardContext, GuardKind, MostCost, only_under
from proxy.money.usage import NANO


class EconomicsConfig(Section):
    """Calls whose estimated maximum cost is too high. Allowed under `input` only."""

    REQUIREMENTS = (
        Requirement(
            not_(any_of(is_present("roles"), is_present("fields"), is_present("deadline"))),
            "must not set roles, fields or deadline, because it inspects no text",
        ),
    )

    action: Literal["block", "flag"] = "block"
    """Action on calls that may cost more: `block` or `flag`."""
    max_cost_usd: PositiveUsd
    """Maximum cost of a call in USD."""


def _make(keys: EconomicsConfig, context: GuardContext) -> MostCost:
    if context.stage == "output":
        raise ValueError(only_under("economics", "input"))
    return MostCost(int(keys.max_cost_usd * NANO))


KIND = GuardKind(EconomicsConfig, _make, example={"max_cost_usd": 1})
