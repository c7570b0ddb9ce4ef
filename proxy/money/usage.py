"""What a call used and what it cost: disjoint token counts, dated prices, exact money.

A price is USD per million tokens, the same number as micro-USD per token, so a cost is a sum of
products, rounded once, to whole nano-USD: no division loses anything. Unknown is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Any, Literal

from proxy.runtime.frozen import frozen, memo

NANO = 1_000_000_000  # in a USD
Json = Mapping[str, Any]
Source = Literal["provider", "partial_estimate", "unknown", "none"]
UNCOUNTED: frozenset[Source] = frozenset({"unknown", "none"})
"""Where there are no counts of tokens to be told."""
MAX_TOKENS = 10**9  # of a prompt or an answer; at any price the cost can be kept and added up


@frozen
class Tokens:
    """Counts that do not overlap: their sum is what was billed.

    ``input`` are text tokens that no cache served; ``output`` leaves reasoning and audio out.
    Beside them: of ``cache_write`` those that are kept for an hour, and how often the provider
    searched the web. Both change what is paid, and no sum of tokens. ``image_input`` and
    ``image_output`` are parts of the prompt and the completion, and change neither.
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

    def counts(self) -> tuple[int, ...]:
        """Return the counts in the order of ``TOKEN_TYPES``."""
        prompt = self.input, self.cached_input, self.cache_write
        return (*prompt, self.output, self.reasoning, self.audio_input, self.audio_output)

    def extra_counts(self) -> dict[str, int]:
        """Return what is counted beside tokens, but for what is zero."""
        return {name: count for name in BESIDE if (count := getattr(self, name))}

    def paid(self) -> tuple[int, ...]:
        """Return what is paid for, in the order of ``BILLED_COUNTS``; ``counts`` says the same
        where nothing is counted beside tokens."""
        shorter = replace(self, cache_write=self.cache_write - self.cache_write_1h)
        return (*shorter.counts(), self.cache_write_1h, self.web_searches)

    def at_least(self, prompt: int, completion: int) -> Tokens:
        """Return as many tokens, or so many where these are fewer: as text, which they may be."""
        return replace(
            self,
            input=self.input + max(0, prompt - self.prompt_total),
            output=self.output + max(0, completion - self.completion_total),
        )

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(**{name: getattr(self, name) + getattr(other, name) for name in _COUNTS})


_COUNTS = tuple(each.name for each in fields(Tokens))
BESIDE = ("cache_write_1h", "web_searches")
"""What is counted beside the types of tokens."""
IMAGES = ("image_input", "image_output")
"""Tokens of images, which are priced and counted as input and output."""
TOKEN_TYPES = tuple(name for name in _COUNTS if name not in BESIDE + IMAGES)
BILLED_COUNTS = (*TOKEN_TYPES, *BESIDE)
"""All that is paid for."""


@frozen
class Usage:
    """Tokens and how they are known: reported, estimated, unknown as an answer that is not read
    said nothing of them, or none because nothing was accepted."""

    tokens: Tokens
    source: Source


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


PROMPT_PARTS = (
    ("cached_input", "cached_tokens"),
    ("cache_write", "cache_write_tokens"),
    ("audio_input", "audio_tokens"),
)
CACHED_ELSEWHERE = (
    ("cached_tokens", "prompt_cache_hit_tokens"),  # DeepSeek
    ("cached_tokens", "cached_tokens"),  # Together, Moonshot
    ("cached_tokens", "cache_read_input_tokens"),  # gateways before Anthropic
    ("cache_write_tokens", "cache_creation_input_tokens"),
)
"""Names beside the counts under which some tell of the details of a prompt, and what each is."""
_ELSEWHERE = frozenset(name for _, name in CACHED_ELSEWHERE)
_ANTHROPICS = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens"})
COMPLETION_PARTS = (("reasoning", "reasoning_tokens"), ("audio_output", "audio_tokens"))


def _split(
    counts: dict[str, int], rest: str, details: Any, parts: Sequence[tuple[str, str]]
) -> None:
    """Take parts from the ``rest`` of the counts, which was their sum, one after the other."""
    if type(details) is not dict:
        return
    for token_type, name in parts:
        if details.get(name):
            counts[token_type] = part = min(_count(details[name]) or 0, counts[rest])
            counts[rest] -= part


def _note_images(counts: dict[str, int], name: str, details: Any, total: int) -> None:
    """Note the tokens of images among the ``total`` of a side."""
    if type(details) is dict and details.get("image_tokens"):
        counts[name] = min(_count(details["image_tokens"]) or 0, total)


def read_usage(usage: Any) -> Tokens | None:
    """Read an OpenAI-shaped ``usage``; None when it cannot be trusted. Zero is a value.

    What the total has beyond prompt and completion was written too: thoughts, which xAI and Gemini
    leave out of the completion; or read from a cache, where that much is told beside the counts.
    """
    if type(usage) is not dict:
        return None
    prompt = _count(usage.get("prompt_tokens"))
    completion = usage.get("completion_tokens")
    if prompt is None:
        return None
    completion = _added(usage, prompt) if completion is None else _count(completion)
    if completion is None:
        return None
    details = usage.get("prompt_tokens_details")
    counts = {"input": prompt, "output": completion}
    both = prompt + completion
    if usage.get("total_tokens", both) != both or not _ELSEWHERE.isdisjoint(usage):
        details = _details_elsewhere(usage, details)
        _add_beyond(counts, usage, details)
    if details is not None:
        _split(counts, "input", details, PROMPT_PARTS)
        _note_images(counts, "image_input", usage.get("prompt_tokens_details"), prompt)
    if "completion_tokens_details" in usage:
        _split(counts, "output", usage["completion_tokens_details"], COMPLETION_PARTS)
        _note_images(counts, "image_output", usage["completion_tokens_details"], completion)
    if "cache_creation" in usage or "server_tool_use" in usage:
        counts |= _beside(usage, counts.get("cache_write", 0))
    return Tokens(**counts)


def _details_elsewhere(usage: Json, details: Any) -> dict[str, int]:
    """Return the details of a prompt, with what is told beside the counts where they lack it."""
    given = details if type(details) is dict else {}
    found = {name: count for _, name in PROMPT_PARTS if (count := _count(given.get(name)))}
    for name, elsewhere in CACHED_ELSEWHERE:
        if name not in found and (count := _count(usage.get(elsewhere))):
            found[name] = count
    return found


def _add_beyond(counts: dict[str, int], usage: Json, details: Mapping[str, int]) -> None:
    """Add to counts what the total has beyond them: what caches were read and written, where that
    is as much and stands in Anthropic's words, whose input leaves it out; else what was written."""
    beyond = (_count(usage.get("total_tokens")) or 0) - counts["input"] - counts["output"]
    if beyond > 0:
        cached = details.get("cached_tokens", 0) + details.get("cache_write_tokens", 0)
        is_cached = beyond == cached and not _ANTHROPICS.isdisjoint(usage)
        counts["input" if is_cached else "output"] += beyond


def _beside(usage: Json, written: int) -> dict[str, int]:
    """Return what Anthropic counts beside tokens: those ``written`` for an hour, and searches."""
    found = {
        "cache_write_1h": _member(usage, "cache_creation", "ephemeral_1h_input_tokens"),
        "web_searches": _member(usage, "server_tool_use", "web_search_requests"),
    }
    found["cache_write_1h"] = min(found["cache_write_1h"], written)
    return {name: count for name, count in found.items() if count}


def _member(usage: Json, name: str, member: str) -> int:
    group = usage.get(name)
    return (_count(group.get(member)) or 0) if type(group) is dict else 0


def _added(usage: Json, prompt: int) -> int | None:
    """Return what the total adds: embeddings and some providers leave the completion out."""
    total = usage.get("total_tokens")
    if total is None:
        return 0
    total = _count(total)
    return None if total is None else max(0, total - prompt)


@frozen
class Tier:
    """Other prices for prompts of more than ``above`` tokens; None keeps the usual one."""

    above: int
    input: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    output: Decimal | None = None
    cache_write_1h: Decimal | None = None


@frozen
class Price:
    """USD per million tokens, by type, in force from ``since`` on; ``web_search`` is USD per
    thousand of them.

    What has no price of its own costs as the text it stands for: cached input, cache writes and
    audio input like input, reasoning and audio output like output; a write for an hour like any.

    ``rates`` are what one of each in ``BILLED_COUNTS`` costs, tiers aside, in whole numbers of
    which ``unit`` are a nano-USD. ``tier_prices`` are the prices for prompts of more than so many
    tokens, those for the longest first. ``highest`` are those of a token of the prompt and of the
    answer whose types are not known, by which they may be.
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
    highest: dict[tuple[bool, ...], tuple[int | None, int | None]] = memo(dict)

    def __post_init__(self) -> None:
        known = [*map(self.rate, TOKEN_TYPES), _or(self.cache_write_1h, self.rate("cache_write"))]
        exact = [None if rate is None else Fraction(rate) * 1000 for rate in known]
        exact.append(None if self.web_search is None else Fraction(self.web_search) * NANO / 1000)
        unit = lcm(*[rate.denominator for rate in exact if rate is not None])
        rates = tuple(None if rate is None else int(rate * unit) for rate in exact)
        tiers = sorted(self.tiers, key=lambda tier: -tier.above)
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(
            self, "tier_prices", tuple((tier.above, self.at(tier)) for tier in tiers)
        )

    def cost(self, tokens: Tokens) -> int | None:
        """Return the cost in nano-USD, None when a type that was used has no price."""
        price, total = self._for(tokens) if self.tier_prices else self, 0
        beside = tokens.cache_write_1h or tokens.web_searches
        counts = tokens.paid() if beside else tokens.counts()
        for rate, count in zip(price.rates, counts, strict=False):
            if count:
                if rate is None:
                    return None
                total += count * rate
        return total if price.unit == 1 else _rounded(total, price.unit)

    @property
    def is_free(self) -> bool:
        """True if nothing of it costs anything, however much is used."""
        tiers = [price.rates for _, price in self.tier_prices]
        return self.input == 0 and not any(map(any, (self.rates, *tiers)))

    def rate(self, token_type: str) -> Decimal | None:
        """Return what a million tokens of a type cost, tiers aside."""
        own: Decimal | None = getattr(self, token_type)
        return own if own is not None else getattr(self, STANDS_FOR[token_type])

    def parts(self, tokens: Tokens) -> dict[str, int]:
        """Return the cost in nano-USD by what it is for, of tokens whose cost is known."""
        price = self._for(tokens) if self.tier_prices else self
        parts: dict[str, int] = {}
        before = total = 0
        beside = tokens.cache_write_1h or tokens.web_searches
        counts = tokens.paid() if beside else tokens.counts()
        for kind, rate, count in zip(_KINDS, price.rates, counts, strict=False):
            if count and rate:
                total += count * rate
                upto = total if price.unit == 1 else _rounded(total, price.unit)
                if upto > before:
                    parts[kind] = parts.get(kind, 0) + upto - before
                    before = upto
        return parts

    def _for(self, tokens: Tokens) -> Price:
        """Return the prices that hold for a prompt of this size."""
        prompt = tokens.prompt_total
        for above, price in self.tier_prices:
            if prompt > above:
                return price
        return self

    def at(self, tier: Tier) -> Price:
        """Return the prices of a tier."""
        return replace(
            self,
            input=_or(tier.input, self.input),
            output=_or(tier.output, self.output),
            cached_input=_or(tier.cached_input, self.cached_input),
            cache_write=_or(tier.cache_write, self.cache_write),
            cache_write_1h=_or(tier.cache_write_1h, self.cache_write_1h),
            tiers=(),
        )


STANDS_FOR = {
    "input": "input",
    "cached_input": "input",
    "cache_write": "input",
    "output": "output",
    "reasoning": "output",
    "audio_input": "input",
    "audio_output": "output",
}
"""Each type of tokens, and the one as whose it costs where it has no price of its own."""

COST_TYPES = {
    "input": "input",
    "cached_input": "cached",
    "cache_write": "other",
    "output": "output",
    "reasoning": "output",
    "audio_input": "other",
    "audio_output": "other",
    "cache_write_1h": "other",
    "web_searches": "other",
}
_KINDS = tuple(COST_TYPES.values())


def _rounded(total: int, unit: int) -> int:
    """Return how many units a total is, rounded half to even."""
    whole, rest = divmod(total, unit)
    return whole + (2 * rest > unit or (2 * rest == unit and whole % 2 == 1))


def _or(own: Decimal | None, other: Decimal | None) -> Decimal | None:
    return other if own is None else own


def price_on(prices: Sequence[Price], on: date) -> Price | None:
    """Return the price of a day: the latest that had begun."""
    if len(prices) == 1 and prices[0].since is None:
        return prices[0]
    begun = [price for price in prices if price.since is None or price.since <= on]
    return max(begun, key=lambda price: price.since or date.min, default=None)


def find_listed(names: Iterable[str], model: str) -> str | None:
    """Find a model in a table: by its very name, else by the longest ``prefix*``."""
    known = list(names)
    if model in known:
        return model
    prefixes = (name for name in known if name.endswith("*") and model.startswith(name[:-1]))
    return max(prefixes, key=len, default=None)


def nano_usd(micro: Decimal) -> int:
    """Round an exact number of micro-USD to whole nano-USD, once, half to even."""
    return round(micro * 1000)


def usd_text(nano: int) -> str:
    """Return nano-USD as USD for whoever reads it, exactly."""
    if nano < 0:
        return f"-{usd_text(-nano)}"
    whole, part = nano // NANO, nano % NANO
    return f"{whole}.{part:09}".rstrip("0") if part else f"{whole}"
