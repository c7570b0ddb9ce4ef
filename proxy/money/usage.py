"""Token counts, dated prices and exact costs.

A price in USD per million tokens equals the same number of micro-USD per token. A cost is a sum of
products, rounded once to whole nano-USD. An unknown cost is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Any, Literal

from proxy.runtime.frozen import empty_cache_field, frozen

NANO_PER_USD = 1_000_000_000  # nano-USD per USD
Json = Mapping[str, Any]
Source = Literal["provider", "partial_estimate", "unknown", "none"]
UNCOUNTED_SOURCES: frozenset[Source] = frozenset({"unknown", "none"})
"""Sources without token counts."""
MAX_TOKENS = 10**9  # of a prompt or a response; at any allowed price, costs stay exact integers


@frozen
class Tokens:
    """Disjoint token counts, whose sum is the number of billed tokens.

    The last four counts are not part of the sum.

    Attributes:
        input: Uncached text tokens of the prompt.
        output: Tokens of the completion, without reasoning and audio.
        cache_write_1h: Part of ``cache_write`` that is cached for one hour, at another price.
        web_searches: Number of searches, which have their own price.
        image_input: Part of the prompt. Does not change the cost.
        image_output: Part of the completion. Does not change the cost.
    """

    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0
    cache_write_1h: int = 0
    web_searches: int = 0
    image_input: int = 0
    image_output: int = 0

    @property
    def prompt_total(self) -> int:
        return self.input + self.cached_input + self.cache_write + self.audio_input

    @property
    def completion_total(self) -> int:
        return self.output + self.reasoning + self.audio_output

    @property
    def total(self) -> int:
        return self.prompt_total + self.completion_total

    def list_counts_by_type(self) -> tuple[int, ...]:
        """Return the counts in the order of ``TOKEN_TYPES``."""
        return (
            self.input, self.cached_input, self.cache_write, self.output, self.reasoning,
            self.audio_input, self.audio_output,
        )  # fmt: skip

    def list_extra_billed_counts(self) -> dict[str, int]:
        """Return the counts in ``EXTRA_COUNTS`` that are not 0, by name."""
        return {name: count for name in EXTRA_COUNTS if (count := getattr(self, name))}

    def list_billed_counts(self) -> tuple[int, ...]:
        """Return the billed counts in the order of ``BILLED_COUNTS``."""
        return (
            self.input, self.cached_input, self.cache_write - self.cache_write_1h, self.output,
            self.reasoning, self.audio_input, self.audio_output, self.cache_write_1h,
            self.web_searches,
        )  # fmt: skip

    def with_at_least(self, prompt: int, completion: int) -> Tokens:
        """Return counts with at least this many prompt and completion tokens.

        Missing tokens are added as text tokens.
        """
        return replace(
            self,
            input=self.input + max(0, prompt - self.prompt_total),
            output=self.output + max(0, completion - self.completion_total),
        )

    def __add__(self, addend: Tokens) -> Tokens:
        return Tokens(**{name: getattr(self, name) + getattr(addend, name) for name in _COUNTS})


_COUNTS = tuple(f.name for f in fields(Tokens))
EXTRA_COUNTS = ("cache_write_1h", "web_searches")
"""Billed counts that are not token types."""
USAGE_GROUPS = ("cache_creation", "server_tool_use")
"""Groups of counts that have the same names in chat and in Messages."""
IMAGE_COUNTS = ("image_input", "image_output")
"""Tokens of images, which are priced and counted as input and output."""
TOKEN_TYPES = tuple(name for name in _COUNTS if name not in EXTRA_COUNTS + IMAGE_COUNTS)
BILLED_COUNTS = (*TOKEN_TYPES, *EXTRA_COUNTS)


@frozen
class Usage:
    """Token counts and their source.

    The source is the provider, an estimate of at least a part, unknown if the response was not
    read, or none if the upstream accepted no request.
    """

    tokens: Tokens
    source: Source


def _parse_count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


PROMPT_PARTS = (
    ("cached_input", "cached_tokens"),
    ("cache_write", "cache_write_tokens"),
    ("audio_input", "audio_tokens"),
)
CACHED_COUNT_MEMBERS = (
    ("cached_tokens", "prompt_cache_hit_tokens"),  # DeepSeek
    ("cached_tokens", "cached_tokens"),  # Together, Moonshot
    ("cached_tokens", "cache_read_input_tokens"),  # gateways before Anthropic
    ("cache_write_tokens", "cache_creation_input_tokens"),
)
"""Members of ``usage`` in which some providers report cached tokens, and the matching detail."""
_CACHED_COUNT_NAMES = frozenset(name for _, name in CACHED_COUNT_MEMBERS)
_ANTHROPIC_NAMES = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens"})
COMPLETION_PARTS = (("reasoning", "reasoning_tokens"), ("audio_output", "audio_tokens"))


def _split_total(
    counts: dict[str, int], total: str, details: Any, parts: Sequence[tuple[str, str]]
) -> None:
    """Subtract the counts in ``details`` from ``counts[total]``, and set them by token type."""
    if type(details) is not dict:
        return
    for token_type, name in parts:
        if details.get(name):
            counts[token_type] = part = min(_parse_count(details[name]) or 0, counts[total])
            counts[total] -= part


def _add_image_count(counts: dict[str, int], name: str, details: Any, total: int) -> None:
    if type(details) is dict and details.get("image_tokens"):
        counts[name] = min(_parse_count(details["image_tokens"]) or 0, total)


def read_chat_usage(usage: Any) -> Tokens | None:
    """Return the counts of ``usage`` in OpenAI's format, or None if they are invalid.

    If the total exceeds prompt plus completion, the difference is reasoning or cached input. xAI
    and Gemini exclude reasoning from the completion. Other providers exclude cached input from the
    prompt.
    """
    if type(usage) is not dict:
        return None
    prompt = _parse_count(usage.get("prompt_tokens"))
    completion = None if prompt is None else _read_completion_tokens(usage, prompt)
    if prompt is None or completion is None:
        return None
    details = usage.get("prompt_tokens_details")
    counts = {"input": prompt, "output": completion}
    total = prompt + completion
    if usage.get("total_tokens", total) != total or not _CACHED_COUNT_NAMES.isdisjoint(usage):
        details = _read_prompt_details(usage, details)
        _add_rest_of_total(counts, usage, details)
    if details is not None:
        _split_total(counts, "input", details, PROMPT_PARTS)
        _add_image_count(counts, "image_input", usage.get("prompt_tokens_details"), prompt)
    if "completion_tokens_details" in usage:
        _split_total(counts, "output", usage["completion_tokens_details"], COMPLETION_PARTS)
        _add_image_count(counts, "image_output", usage["completion_tokens_details"], completion)
    if "cache_creation" in usage or "server_tool_use" in usage:
        counts |= _read_extra_counts(usage, counts.get("cache_write", 0))
    return Tokens(**counts)


def _read_completion_tokens(usage: Json, prompt: int) -> int | None:
    """Return ``completion_tokens``, or the total minus the prompt if it is missing."""
    completion = usage.get("completion_tokens")
    if completion is not None:
        return _parse_count(completion)
    total = usage.get("total_tokens")
    total = prompt if total is None else _parse_count(total)
    return None if total is None else max(0, total - prompt)


def _read_prompt_details(usage: Json, details: Any) -> dict[str, int]:
    """Return the details of the prompt tokens. Other members of ``usage`` supply missing ones."""
    details = details if type(details) is dict else {}
    counts = {name: count for _, name in PROMPT_PARTS if (count := _parse_count(details.get(name)))}
    for name, elsewhere in CACHED_COUNT_MEMBERS:
        if name not in counts and (count := _parse_count(usage.get(elsewhere))):
            counts[name] = count
    return counts


def _add_rest_of_total(counts: dict[str, int], usage: Json, details: Mapping[str, int]) -> None:
    """Add the tokens by which a reported total exceeds input plus output.

    They are input if they equal the cached tokens in Anthropic's members, whose input excludes
    cached tokens, otherwise output.
    """
    difference = (_parse_count(usage.get("total_tokens")) or 0) - counts["input"] - counts["output"]
    if difference > 0:
        cached = details.get("cached_tokens", 0) + details.get("cache_write_tokens", 0)
        is_cached = difference == cached and not _ANTHROPIC_NAMES.isdisjoint(usage)
        counts["input" if is_cached else "output"] += difference


def _read_extra_counts(usage: Json, cache_write: int) -> dict[str, int]:
    writes = _read_nested_count(usage, "cache_creation", "ephemeral_1h_input_tokens")
    counts = {
        "cache_write_1h": min(writes, cache_write),
        "web_searches": _read_nested_count(usage, "server_tool_use", "web_search_requests"),
    }
    return {name: count for name, count in counts.items() if count}


def _read_nested_count(usage: Json, name: str, member: str) -> int:
    group = usage.get(name)
    return (_parse_count(group.get(member)) or 0) if type(group) is dict else 0


@frozen
class Tier:
    """Prices for prompts of more than ``above`` tokens. None means the base price."""

    above: int
    input: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    output: Decimal | None = None
    cache_write_1h: Decimal | None = None


@frozen
class Price:
    """USD per million tokens by type, from the day ``since``. ``web_search`` is USD per thousand.

    A type without a price has the price of its type in ``FALLBACK_TYPES``. A one-hour cache write
    without a price has the price of any cache write.

    Attributes:
        rates: Base price of one unit of each count in ``BILLED_COUNTS``, in 1/``unit`` nano-USD.
        tier_prices: Bound and price of each tier, the highest bound first.
        highest: Cache of the highest rates of an input and an output token whose type is unknown.
    """

    input: Decimal | None
    output: Decimal | None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None
    audio_input: Decimal | None = None
    audio_output: Decimal | None = None
    tiers: tuple[Tier, ...] = ()
    since: date | None = None
    cache_write_1h: Decimal | None = None
    web_search: Decimal | None = None
    rates: tuple[int | None, ...] = field(init=False, repr=False, compare=False)
    unit: int = field(init=False, repr=False, compare=False)
    tier_prices: tuple[tuple[int, Price], ...] = field(init=False, repr=False, compare=False)
    highest: dict[tuple[bool, ...], tuple[int | None, int | None]] = empty_cache_field(dict)

    def __post_init__(self) -> None:
        one_hour = self.cache_write_1h
        one_hour = self.get_rate("cache_write") if one_hour is None else one_hour
        prices = [*map(self.get_rate, TOKEN_TYPES), one_hour]
        exact = [None if price is None else Fraction(price) * 1000 for price in prices]
        exact.append(
            None if self.web_search is None else Fraction(self.web_search) * NANO_PER_USD / 1000
        )
        unit = lcm(*[rate.denominator for rate in exact if rate is not None])
        rates = tuple(None if rate is None else int(rate * unit) for rate in exact)
        tiers = sorted(self.tiers, key=lambda tier: -tier.above)
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(
            self, "tier_prices", tuple((tier.above, self.with_tier(tier)) for tier in tiers)
        )

    def compute_cost(self, tokens: Tokens) -> int | None:
        """Return the cost in nano-USD, or None if a type with tokens has no price."""
        parts = self.compute_cost_by_type(tokens)
        return None if parts is None else sum(parts.values())

    @property
    def is_free(self) -> bool:
        """True if all prices are 0."""
        tiers = [price.rates for _, price in self.tier_prices]
        return self.input == 0 and not any(map(any, (self.rates, *tiers)))

    def get_rate(self, token_type: str) -> Decimal | None:
        """Return the base price in USD of a million tokens of a type."""
        price: Decimal | None = getattr(self, token_type)
        return price if price is not None else getattr(self, FALLBACK_TYPES[token_type])

    def compute_cost_by_type(self, tokens: Tokens) -> dict[str, int] | None:
        """Return the cost in nano-USD by the types of ``COST_TYPES``, without zeros.

        Return None if a type with tokens has no price.
        """
        price = self._get_price_for_prompt(tokens) if self.tier_prices else self
        parts: dict[str, int] = {}
        total = running_cost = 0
        for index, count in enumerate(tokens.list_billed_counts()):
            if count:
                kind, rate = _KINDS[index], price.rates[index]
                if rate is None:
                    return None
                total += count * rate
                cost = total if price.unit == 1 else _divide_half_even(total, price.unit)
                if cost > running_cost:
                    parts[kind] = parts.get(kind, 0) + cost - running_cost
                    running_cost = cost
        return parts

    def _get_price_for_prompt(self, tokens: Tokens) -> Price:
        prompt = tokens.prompt_total
        for threshold, price in self.tier_prices:
            if prompt > threshold:
                return price
        return self

    def with_tier(self, tier: Tier) -> Price:
        prices = {f.name: getattr(tier, f.name) for f in fields(tier) if f.name != "above"}
        known = {name: price for name, price in prices.items() if price is not None}
        return replace(self, tiers=(), **known)


FALLBACK_TYPES = dict.fromkeys(TOKEN_TYPES, "input") | dict.fromkeys(
    ("output", "reasoning", "audio_output"), "output"
)
"""The type whose price applies if a type has none."""
COST_TYPES = dict.fromkeys(BILLED_COUNTS, "other") | {
    **{"input": "input", "cached_input": "cached", "output": "output", "reasoning": "output"}
}
_KINDS = tuple(COST_TYPES.values())


def _divide_half_even(total: int, unit: int) -> int:
    quotient, remainder = divmod(total, unit)
    return quotient + (2 * remainder > unit or (2 * remainder == unit and quotient % 2 == 1))


def find_price_on(prices: Sequence[Price], day: date) -> Price | None:
    """Return the price with the latest start on or before ``day``, None if there is none."""
    if len(prices) == 1 and prices[0].since is None:
        return prices[0]
    started = [price for price in prices if price.since is None or price.since <= day]
    return max(started, key=lambda price: price.since or date.min, default=None)


def find_exact_or_wildcard_name(names: Iterable[str], model: str) -> str | None:
    """Return the name that equals a model, otherwise the longest ``prefix*`` that matches it."""
    names = list(names)
    if model in names:
        return model
    prefixes = (name for name in names if name.endswith("*") and model.startswith(name[:-1]))
    return max(prefixes, key=len, default=None)


def format_usd(nano: int) -> str:
    """Return nano-USD as exact decimal USD."""
    if nano < 0:
        return f"-{format_usd(-nano)}"
    dollars, fraction = divmod(nano, NANO_PER_USD)
    return f"{dollars}.{fraction:09}".rstrip("0") if fraction else f"{dollars}"
