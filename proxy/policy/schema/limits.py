"""Limits, under ``limits`` of policies and deployments."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)

from proxy.policy import units
from proxy.policy.schema.scalars import Name, Section, listed

KINDS = ("requests", "tokens", "concurrency", "usd")
PER = r"^(key|deployment|model|user|tag\.[a-z][a-z0-9_]{0,63})$"


def _per(value: str) -> str:
    if not re.fullmatch(PER, value):
        raise ValueError("must be key, deployment, model, user or tag.NAME")
    return value


Per = Annotated[str, AfterValidator(_per), WithJsonSchema({"type": "string", "pattern": PER})]
Rate = Annotated[
    tuple[int, int],
    BeforeValidator(units.rate),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{units.RATE}$", "examples": ["600 per minute"]}
    ),
]
Budget = Annotated[
    tuple[int, str],
    BeforeValidator(units.budget),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{units.BUDGET}$", "examples": ["500 per month"]}
    ),
]
Count = Annotated[
    int, BeforeValidator(units.count), WithJsonSchema({"type": ["integer", "string"]})
]
Share = Annotated[
    float,
    BeforeValidator(units.share),
    WithJsonSchema({"type": "string", "pattern": r"^\d{1,3}%$", "examples": ["80%"]}),
]


def _once(value: list[str]) -> list[str]:
    if len(set(value)) < len(value):
        raise ValueError("must name each once")
    return value


class Limit(Section):
    """How much may be used: requests, tokens, calls at once, or money."""

    name: Name
    """Its name, one of its own in the whole folder: counters, metrics and refusals go by it."""
    requests: Rate | None = None
    """Calls per time."""
    tokens: Rate | None = None
    """Tokens per time, of prompts and answers."""
    concurrency: Count | None = None
    """Calls at once."""
    usd: Budget | None = None
    """Money in each second, minute, hour, day, week or month of the calendar."""
    per: Annotated[
        list[Per],
        BeforeValidator(listed),
        AfterValidator(_once),
        WithJsonSchema(
            {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
        ),
    ] = Field(default_factory=list)
    """Whose it is: each key, deployment, model, user, tag.NAME, or mix of them has its own."""
    burst: Count | None = None
    """How much of a rate may be used at once; as much as a whole time's."""
    zone: str | None = None
    """The time zone of the calendar; UTC."""
    warn_at: Share | None = None
    """The share at which an event is logged and counted."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """`shadow` counts what it would refuse, and refuses nothing."""
    on_store_error: Literal["local", "open", "closed"] = "local"
    """Without its store: count in this process alone, let all pass, or refuse all."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        said = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(said) != 1:
            raise ValueError(f"must say one of {', '.join(KINDS)}")
        if self.burst is not None and said[0] not in ("requests", "tokens"):
            raise ValueError("must not say a burst but for requests or tokens")
        if self.zone is not None and said[0] != "usd":
            raise ValueError("must not say a zone but for usd")
        return self
