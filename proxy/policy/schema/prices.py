"""The sections ``prices`` and ``price_table``, and prices of a target's own."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from proxy.config.scalars import Day, Section, Usd
from proxy.config.shapes import Requirement, has, some

LEAST_USD = Decimal("0.001")
MOST_USD = Decimal(4000)  # at which the most tokens that are believed cost what can be kept
AT_LEAST_A_THOUSANDTH = r"(?=\d*[1-9]|\d+\.0{0,2}[1-9])\d+(?:\.\d+)?"
AT_MOST_4000 = r"(?=0*(?:[0-3]?\d{1,3}(?:\.\d+)?|4000(?:\.0+)?)$)"
IN_RANGE = AT_MOST_4000 + AT_LEAST_A_THOUSANDTH


def _per_million(value: Decimal) -> Decimal:
    """Refuse what can only be meant per token, or per billion: no model costs so little per
    million, or so much."""
    if 0 < value < LEAST_USD:
        dollars = f"{(value * 1_000_000).normalize():f}"
        raise ValueError(f"must be USD per million tokens: {dollars}, if that is per token")
    if value > MOST_USD:
        raise ValueError(f"must be USD per million tokens, at most {MOST_USD}")
    return value


PerMillion = Annotated[
    Usd,
    AfterValidator(_per_million),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": 0},
                {"type": "number", "minimum": float(LEAST_USD), "maximum": float(MOST_USD)},
                {"type": "string", "pattern": rf"^(?:0+(?:\.0+)?|{IN_RANGE})$"},
            ]
        }
    ),
]


class TierConfig(Section):
    """Other prices for prompts above a number of tokens."""

    above: Annotated[int, Field(gt=0)]
    input: PerMillion | None = None
    cached_input: PerMillion | None = None
    cache_write: PerMillion | None = None
    cache_write_1h: PerMillion | None = None
    output: PerMillion | None = None


OF_TOKENS = (
    *("input", "output", "cached_input", "cache_write", "reasoning"),
    *("audio_input", "audio_output"),
)


class PriceConfig(Section):
    """USD per million tokens, from a day on."""

    # An empty price would make every call unpriced: leaving it out says that plainly.
    REQUIREMENTS = (
        Requirement(some(*map(has, OF_TOKENS)), "must say a price, such as input: 0.15"),
    )

    since: Day = Field(None, alias="from")
    """The day from which it counts."""
    input: PerMillion | None = None
    output: PerMillion | None = None
    cached_input: PerMillion | None = None
    cache_write: PerMillion | None = None
    cache_write_1h: PerMillion | None = None
    """What is kept for an hour; it costs as any other write where this is not said."""
    reasoning: PerMillion | None = None
    audio_input: PerMillion | None = None
    audio_output: PerMillion | None = None
    web_search: Usd | None = None
    """USD per thousand searches that the provider makes in the web."""
    tiers: list[TierConfig] = Field(default_factory=list)


class PriceTable(Section):
    """What is to be known of the prices as a whole."""

    as_of: Day = None
    """The day on which they were taken, for an alert on old ones."""
