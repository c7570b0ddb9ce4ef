"""Sections ``prices`` and ``price_table``, and prices of targets."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from proxy.config.scalars import Day, Section, Usd, number_or_text
from proxy.config.shapes import Requirement, any_of, is_not_null

MIN_PRICE_USD = Decimal("0.001")
MAX_PRICE_USD = Decimal(4000)  # at this price, the cost of MAX_TOKENS is still an exact integer
_MIN_PRICE_PATTERN = r"(?=\d*[1-9]|\d+\.0{0,2}[1-9])\d+(?:\.\d+)?"
_MAX_PRICE_PATTERN = r"(?=0*(?:[0-3]?\d{1,3}(?:\.\d+)?|4000(?:\.0+)?)$)"
_PRICE_PATTERN = _MAX_PRICE_PATTERN + _MIN_PRICE_PATTERN


def _check_price_range(value: Decimal) -> Decimal:
    """Reject values that can only be per token or per billion tokens."""
    if 0 < value < MIN_PRICE_USD:
        dollars = f"{(value * 1_000_000).normalize():f}"
        raise ValueError(f"must be USD per million tokens: {dollars} if this price is per token")
    if value > MAX_PRICE_USD:
        raise ValueError(f"must be USD per million tokens, at most {MAX_PRICE_USD}")
    return value


UsdPerMillion = Annotated[
    Usd,
    AfterValidator(_check_price_range),
    number_or_text(
        rf"0+(?:\.0+)?|{_PRICE_PATTERN}",
        maximum=float(MAX_PRICE_USD),
        anyOf=[{"const": 0}, {"minimum": float(MIN_PRICE_USD)}],
    ),
]


class TokenPrices(Section):
    """Prices of tokens in USD per million."""

    input: UsdPerMillion | None = None
    """Price of prompt tokens. All prices of tokens are in USD per million."""
    cached_input: UsdPerMillion | None = None
    """Price of prompt tokens that the provider reads from its cache. Default: input; in a tier, the
    price without tiers."""
    cache_write: UsdPerMillion | None = None
    """Price of prompt tokens that the provider writes to its cache. Default: input; in a tier, the
    price without tiers."""
    cache_write_1h: UsdPerMillion | None = None
    """Price of cache writes that last one hour. Default: cache_write; in a tier, the price without
    tiers."""
    output: UsdPerMillion | None = None
    """Price of output tokens."""


class TierConfig(TokenPrices):
    """Prices for prompts above a number of tokens."""

    above: Annotated[int, Field(gt=0)]
    """Number of prompt tokens above which these prices apply to all tokens of the call."""


TOKEN_PRICES = (
    *("input", "output", "cached_input", "cache_write", "reasoning"),
    *("audio_input", "audio_output"),
)


class PriceConfig(TokenPrices):
    """Prices in USD per million tokens, from a start day."""

    # An empty price would make every call unpriced.
    REQUIREMENTS = (
        Requirement(
            any_of(*map(is_not_null, TOKEN_PRICES)),
            "must have at least one price, such as input: 0.15",
        ),
    )

    FORM_MESSAGE = "must be USD per million tokens, such as {input: 0.15, output: 0.6}"

    since: Day = Field(None, alias="from")
    """First day on which the prices apply."""
    reasoning: UsdPerMillion | None = None
    """Price of reasoning tokens. Default: output."""
    audio_input: UsdPerMillion | None = None
    """Price of audio tokens in prompts. Default: input."""
    audio_output: UsdPerMillion | None = None
    """Price of audio tokens in responses. Default: output."""
    web_search: Usd | None = None
    """USD per thousand web searches of the provider."""
    tiers: list[TierConfig] = Field(default_factory=list)
    """Other prices for calls with long prompts. Default of each: the price without tiers."""


def iter_price_rows(value: Any) -> Iterator[PriceConfig | ValidationError]:
    """Yield the rows of a name in the price table, or the error of a row that is invalid."""
    for row in value if isinstance(value, list) else [value]:
        try:
            yield PriceConfig.model_validate(row)
        except ValidationError as error:
            yield error


class PriceTableConfig(Section):
    """Properties of the price table."""

    as_of: Day = None
    """Day of the prices, for an alert on old prices."""
