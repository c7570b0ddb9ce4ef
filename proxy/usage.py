"""What a call used and what it cost: disjoint token counts, dated prices, exact money.

A price is USD per million tokens, which is the same number as micro-USD per token, so a cost is
a sum of products and no division loses anything. Unknown is None, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Literal

Source = Literal["provider", "partial_estimate", "none"]
MAX_TOKENS = 2**53
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counts that do not overlap: their sum is what was billed.

    ``input`` are text tokens that no cache served; ``output`` leaves reasoning and audio out.
    """

    input: int = 0
    cached_input: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0

    @property
    def prompt_total(self) -> int:
        return self.input + self.cached_input + self.cache_write + self.audio_input

    @property
    def completion_total(self) -> int:
        return self.output + self.reasoning + self.audio_output

    @property
    def total(self) -> int:
        return self.prompt_total + self.completion_total

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*(getattr(self, n) + getattr(other, n) for n in TOKEN_TYPES))


TOKEN_TYPES: tuple[str, ...] = tuple(field.name for field in fields(Tokens))


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and how they are known: reported, estimated, or none because nothing was accepted."""

    tokens: Tokens
    source: Source


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    details = usage.get(name)
    return details if isinstance(details, dict) else {}


def _split(total: int, *parts: Any) -> list[int]:
    """Give the parts, clamped one after the other so that with the rest they make the total."""
    left, counts = total, []
    for part in parts:
        counts.append(min(_count(part) or 0, left))
        left -= counts[-1]
    return [left, *counts]


def read_usage(usage: Any) -> Tokens | None:
    """Read an OpenAI-shaped ``usage``; None when it cannot be trusted. Zero is a value."""
    if not isinstance(usage, dict):
        return None
    prompt = _count(usage.get("prompt_tokens"))
    if prompt is None:
        return None
    completion = _completion(usage, prompt)
    if completion is None:
        return None
    inside = _details(usage, "prompt_tokens_details")
    text, cached, written, heard = _split(
        prompt,
        inside.get("cached_tokens"),
        inside.get("cache_write_tokens"),
        inside.get("audio_tokens"),
    )
    made = _details(usage, "completion_tokens_details")
    said, reasoned, spoken = _split(
        completion, made.get("reasoning_tokens"), made.get("audio_tokens")
    )
    return Tokens(text, cached, written, said, reasoned, heard, spoken)


def _completion(usage: Mapping[str, Any], prompt: int) -> int | None:
    """Embeddings and some providers leave the completion out: then it is what the total adds."""
    if usage.get("completion_tokens") is not None:
        return _count(usage["completion_tokens"])
    total = usage.get("total_tokens")
    if total is None:
        return 0
    total = _count(total)
    return None if total is None else max(0, total - prompt)


@dataclass(frozen=True, slots=True)
class Tier:
    """Other prices for prompts of more than ``above`` tokens; None keeps the usual one."""

    above: int
    input: Decimal | None = None
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    output: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens, by type, in force from ``since`` on.

    What has no price of its own costs as the text it stands for: cached input, cache writes and
    audio input like input, reasoning and audio output like output.
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

    def cost(self, tokens: Tokens) -> Decimal | None:
        """Give the exact cost in micro-USD, None when a type that was used has no price."""
        price = self._at(tokens.prompt_total)
        total = Decimal(0)
        for name, stands_for in STANDS_FOR:
            count = getattr(tokens, name)
            if not count:  # most answers use two types of the seven
                continue
            rate = getattr(price, name)
            if rate is None:
                rate = getattr(price, stands_for)
            if rate is None:
                return None
            total += count * rate
        return total

    def parts(self, tokens: Tokens) -> dict[str, int]:
        """Give the cost in whole micro-USD by what it is for; together they are all of it, rounded.

        Only for tokens whose cost is known.
        """
        price, parts = self._at(tokens.prompt_total), dict.fromkeys(COST_TYPES.values(), 0)
        before, total = 0, Decimal(0)
        for name, stands_for in STANDS_FOR:
            count = getattr(tokens, name)
            if count:
                own = getattr(price, name)
                total += count * (own if own is not None else getattr(price, stands_for))
                upto, kind = micro_usd(total), COST_TYPES[name]
                parts[kind] += upto - before
                before = upto
        return {kind: part for kind, part in parts.items() if part}

    def _at(self, prompt: int) -> Price:
        """Give the prices that hold for a prompt of this size."""
        if not self.tiers:
            return self
        reached = [tier for tier in self.tiers if prompt > tier.above]
        if not reached:
            return self
        tier = max(reached, key=lambda each: each.above)
        return Price(
            input=_or(tier.input, self.input),
            output=_or(tier.output, self.output),
            cached_input=_or(tier.cached_input, self.cached_input),
            cache_write=_or(tier.cache_write, self.cache_write),
            reasoning=self.reasoning,
            audio_input=self.audio_input,
            audio_output=self.audio_output,
        )


STANDS_FOR = (
    ("input", "input"),
    ("cached_input", "input"),
    ("cache_write", "input"),
    ("output", "output"),
    ("reasoning", "output"),
    ("audio_input", "input"),
    ("audio_output", "output"),
)
"""Each type of tokens, and the one as whose it costs where it has no price of its own."""

COST_TYPES = {
    "input": "input",
    "cached_input": "cached",
    "cache_write": "other",
    "output": "output",
    "reasoning": "output",
    "audio_input": "other",
    "audio_output": "other",
}


def _or(own: Decimal | None, other: Decimal | None) -> Decimal | None:
    return other if own is None else own


def in_force(prices: Sequence[Price], on: date) -> Price | None:
    """Give the price of a day: the latest that had begun."""
    if len(prices) == 1 and prices[0].since is None:
        return prices[0]
    begun = [price for price in prices if price.since is None or price.since <= on]
    return max(begun, key=lambda price: price.since or date.min, default=None)


def listed(names: Iterable[str], model: str) -> str | None:
    """Find a model in a table: by its very name, else by the longest ``prefix*``."""
    known = list(names)
    if model in known:
        return model
    prefixes = (name for name in known if name.endswith("*") and model.startswith(name[:-1]))
    return max(prefixes, key=len, default=None)


def micro_usd(cost: Decimal) -> int:
    """Round a cost to whole micro-USD, once, half to even."""
    return int(cost.to_integral_value(ROUND_HALF_EVEN))


def text_length(value: Any) -> int:
    """Count the characters of all strings in a JSON value; a token id counts as one token."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(text_length, value.values()))
    if isinstance(value, list):
        return sum(map(text_length, value))
    return CHARS_PER_TOKEN if type(value) is int else 0


def prompt_length(body: Mapping[str, Any]) -> int:
    """Count the characters of a request that a model has to read."""
    return sum([text_length(body[name]) for name in READ if name in body])


READ = ("prompt", "messages", "input", "suffix", "tools", "functions")
SPOKEN = ("content", "text", "reasoning_content", "refusal", "function_call")


def _said(by: Mapping[str, Any]) -> int:
    """Count what a model wrote. Some servers say the reasoning twice, under its two names."""
    length = 0
    for name in SPOKEN:
        text = by.get(name)
        if text is not None:
            length += len(text) if isinstance(text, str) else text_length(text)
    if by.get("reasoning") and not by.get("reasoning_content"):
        length += text_length(by["reasoning"])
    calls = by.get("tool_calls")
    return length + sum(map(_called, calls)) if isinstance(calls, list) else length


def _called(call: Any) -> int:
    """Count a tool's name and arguments; the ids and numbers around them no model wrote."""
    return text_length([call.get("function"), call.get("custom")]) if isinstance(call, dict) else 0


class Meter:
    """Counts one leg's answer while it passes. Moments are monotonic seconds.

    ``usage`` in streams is cumulative, so the last valid one counts and none are added up.
    """

    __slots__ = (
        "answer_id",
        "answer_model",
        "finish_reasons",
        "first_token_at",
        "invalid_usage",
        "last_token_at",
        "output_chars",
        "reported",
    )

    def __init__(self) -> None:
        self.answer_id: object = None
        self.answer_model: object = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None
        self.output_chars = 0
        self.reported: Tokens | None = None
        self.invalid_usage = 0
        self.finish_reasons: dict[int, str] = {}

    def feed(self, data: Mapping[str, Any] | None, now: float) -> None:
        """Take one answer or stream event in OpenAI's form."""
        if data is None:
            return
        if self.answer_id is None:
            self.answer_id, self.answer_model = data.get("id"), data.get("model")
        usage = data.get("usage")
        if usage is not None:
            tokens = read_usage(usage)
            self.invalid_usage += tokens is None
            self.reported = tokens or self.reported
        choices = data.get("choices")
        if choices and isinstance(choices, list):
            said = sum([self._choice(choice) for choice in choices])
            if said:
                self.output_chars += said
                self.last_token_at = now
                if self.first_token_at is None:
                    self.first_token_at = now

    def _choice(self, choice: Any) -> int:
        """Give the characters that a choice says, and note how it finished."""
        if not isinstance(choice, dict):
            return 0
        finish = choice.get("finish_reason")
        if isinstance(finish, str):
            index = choice.get("index")
            self.finish_reasons[index if type(index) is int else 0] = finish
        said = choice.get("delta") or choice.get("message") or choice
        return _said(said) if isinstance(said, dict) else 0

    def settle(self, prompt_chars: Callable[[], int]) -> Usage:
        """Give what was used: as reported, else a quarter of the characters, rounded up."""
        if self.reported is not None:
            return Usage(self.reported, "provider")
        guess = Tokens(
            input=-(-prompt_chars() // CHARS_PER_TOKEN),
            output=-(-self.output_chars // CHARS_PER_TOKEN),
        )
        return Usage(guess, "partial_estimate")
