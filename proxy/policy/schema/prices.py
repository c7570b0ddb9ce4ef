"""The sections ``prices`` and ``price_table``, and prices of a target's own."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from proxy.policy.schema.scalars import Day, Section, Usd


class Tier(Section):
    """Other prices for prompts above a number of tokens."""

    above: Annotated[int, Field(gt=0)]
    input: Usd | None = None
    cached_input: Usd | None = None
    cache_write: Usd | None = None
    output: Usd | None = None


class Price(Section):
    """USD per million tokens, from a day on."""

    since: Day = Field(None, alias="from")
    """The day from which it counts."""
    input: Usd | None = None
    output: Usd | None = None
    cached_input: Usd | None = None
    cache_write: Usd | None = None
    reasoning: Usd | None = None
    audio_input: Usd | None = None
    audio_output: Usd | None = None
    tiers: list[Tier] = Field(default_factory=list)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        """An empty price would make every call unpriced: leaving it out says that plainly."""
        if not self.model_dump(exclude={"since", "tiers"}, exclude_none=True):
            raise ValueError("must say a price, such as input: 0.15")
        return self


class PriceTable(Section):
    """What is to be known of the prices as a whole."""

    as_of: Day = None
    """The day on which they were taken, for an alert on old ones."""
