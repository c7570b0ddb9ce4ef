"""What a call used and what it cost: disjoint token counts, dated prices, exact money.

A price is USD per million tokens, the same number as micro-USD per token, so a cost is a sum of
products, rounded once, to whole nano-USD: no division loses anything. Unknown is None, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from decimal import Decimal
from operator import add
from typing import Any, Literal

from proxy.estimate import text_quarters, value_quarters, whole_tokens
from proxy.frozen import frozen
from proxy.index import index_of
from proxy.words import MAX_ID, Word, word, word_of

NANO = 1_000_000_000  # in a USD
Json = Mapping[str, Any]
Source = Literal["provider", "partial_estimate", "none"]
MAX_FINISHES = 128  # choices of one answer whose ends are noted
MAX_TOKENS = 10**9  # of a prompt or an answer; at any price the cost can be kept and added up


@frozen
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

    def counts(self) -> tuple[int, ...]:
        """Return them in the order of ``TOKEN_TYPES``."""
        asked = self.input, self.cached_input, self.cache_write
        return (*asked, self.output, self.reasoning, self.audio_input, self.audio_output)

    def at_least(self, prompt: int, completion: int) -> Tokens:
        """Return as many tokens, or so many where these are fewer: as text, which they may be."""
        return replace(
            self,
            input=self.input + max(0, prompt - self.prompt_total),
            output=self.output + max(0, completion - self.completion_total),
        )

    def __add__(self, other: Tokens) -> Tokens:
        both = map(add, self.counts(), other.counts())
        return Tokens(**dict(zip(TOKEN_TYPES, both, strict=True)))


TOKEN_TYPES: tuple[str, ...] = tuple(field.name for field in fields(Tokens))


@frozen
class Usage:
    """Tokens and how they are known: reported, estimated, or none because nothing was accepted."""

    tokens: Tokens
    source: Source


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


PROMPT_PARTS = {
    "cached_input": "cached_tokens",
    "cache_write": "cache_write_tokens",
    "audio_input": "audio_tokens",
}
COMPLETION_PARTS = {"reasoning": "reasoning_tokens", "audio_output": "audio_tokens"}


def _split(counts: dict[str, int], rest: str, details: Any, parts: Mapping[str, str]) -> None:
    """Take parts from the ``rest`` of the counts, which was their sum, one after the other."""
    if details and isinstance(details, dict):
        for token_type, field in parts.items():
            counts[token_type] = min(_count(details.get(field)) or 0, counts[rest])
            counts[rest] -= counts[token_type]


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
    counts = {"input": prompt, "output": completion}
    _split(counts, "input", usage.get("prompt_tokens_details"), PROMPT_PARTS)
    _split(counts, "output", usage.get("completion_tokens_details"), COMPLETION_PARTS)
    return Tokens(**counts)


def _completion(usage: Json, prompt: int) -> int | None:
    """Embeddings and some providers leave the completion out: then it is what the total adds."""
    if usage.get("completion_tokens") is not None:
        return _count(usage["completion_tokens"])
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


@frozen
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

    def cost(self, tokens: Tokens) -> int | None:
        """Return the cost in nano-USD, None when a type that was used has no price."""
        price, total = self._for(tokens), Decimal(0)
        for name, count in zip(TOKEN_TYPES, tokens.counts(), strict=True):
            if count:  # most answers use two types of the seven
                rate = price.rate(name)
                if rate is None:
                    return None
                total += count * rate
        return nano_usd(total)

    def rate(self, token_type: str) -> Decimal | None:
        """Return what a million tokens of a type cost, tiers aside."""
        own: Decimal | None = getattr(self, token_type)
        return own if own is not None else getattr(self, STANDS_FOR[token_type])

    def parts(self, tokens: Tokens) -> dict[str, int]:
        """Return the cost in nano-USD by what it is for, of tokens whose cost is known."""
        price, parts = self._for(tokens), dict[str, int]()
        before, total = 0, Decimal(0)
        for name, count in zip(TOKEN_TYPES, tokens.counts(), strict=True):
            rate = price.rate(name) if count else None
            if rate is not None:
                total += count * rate
                upto, kind = nano_usd(total), COST_TYPES[name]
                if upto > before:
                    parts[kind] = parts.get(kind, 0) + upto - before
                before = upto
        return parts

    def _for(self, tokens: Tokens) -> Price:
        """Return the prices that hold for a prompt of this size."""
        if not self.tiers:
            return self
        prompt = tokens.prompt_total
        reached = [tier for tier in self.tiers if prompt > tier.above]
        return self.at(max(reached, key=lambda each: each.above)) if reached else self

    def at(self, tier: Tier) -> Price:
        """Return the prices of a tier."""
        return replace(
            self,
            input=_or(tier.input, self.input),
            output=_or(tier.output, self.output),
            cached_input=_or(tier.cached_input, self.cached_input),
            cache_write=_or(tier.cache_write, self.cache_write),
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
}


def _or(own: Decimal | None, other: Decimal | None) -> Decimal | None:
    return other if own is None else own


def in_force(prices: Sequence[Price], on: date) -> Price | None:
    """Return the price of a day: the latest that had begun."""
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


def nano_usd(micro: Decimal) -> int:
    """Round an exact number of micro-USD to whole nano-USD, once, half to even."""
    return round(micro * 1000)


def usd_text(nano: int) -> str:
    """Return nano-USD as USD for whoever reads it, exactly."""
    return f"{Decimal(nano).scaleb(-9):f}".rstrip("0").rstrip(".")


SPOKEN = ("content", "text", "reasoning_content", "refusal", "function_call")


def _message_quarters(message: Json) -> int:
    """Estimate what a model wrote, in quarters of a token. Some servers send the reasoning twice,
    under its two names."""
    quarters = 0
    for name in SPOKEN:
        text = message.get(name)
        if text is not None:
            quarters += text_quarters(text) if isinstance(text, str) else value_quarters(text)
    if message.get("reasoning") and not message.get("reasoning_content"):
        quarters += value_quarters(message["reasoning"])
    calls = message.get("tool_calls")
    return quarters + sum(map(_call_quarters, calls)) if isinstance(calls, list) else quarters


def _call_quarters(call: Any) -> int:
    """Estimate a tool's name and arguments; the ids and numbers around them no model wrote."""
    if not isinstance(call, dict):
        return 0
    return value_quarters([call.get("function"), call.get("custom")])


def answer_quarters(data: Mapping[str, Any]) -> int:
    """Estimate what an answer or a chunk says, in quarters of a token."""
    choices = data.get("choices")
    listed = choices if isinstance(choices, list) else []
    return sum([_choice_quarters(each) for each in listed if isinstance(each, dict)])


def _choice_quarters(choice: dict[str, Any]) -> int:
    message = choice.get("delta") or choice.get("message") or choice
    return _message_quarters(message) if isinstance(message, dict) else 0


class Meter:
    """Counts one leg's answer while it passes. Moments are monotonic seconds.

    ``usage`` in streams is cumulative, so the last valid one counts and none are added up. One that
    more text follows is not the last word.
    """

    __slots__ = (
        "answer_id",
        "answer_model",
        "finish_reasons",
        "first_token_at",
        "invalid_usage",
        "last_token_at",
        "output_quarters",
        "reported",
        "reported_quarters",
    )

    def __init__(self) -> None:
        self.answer_id: Word | None = None
        self.answer_model: Word | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None
        self.output_quarters = 0
        self.reported: Tokens | None = None
        self.reported_quarters = 0
        self.invalid_usage = 0
        self.finish_reasons: dict[int, Word] = {}

    def feed(self, data: Mapping[str, Any] | None, now: float, quarters: int | None = None) -> None:
        """Take one answer or stream event in OpenAI's form, with the estimate of what it says where
        that was made before."""
        if data is None:
            return
        if self.answer_id is None:
            self.answer_id = word_of(data.get("id"), MAX_ID)
            self.answer_model = word_of(data.get("model"), MAX_ID)
        choices = data.get("choices")
        if choices and isinstance(choices, list):
            size = sum([self._choice(each) for each in choices]) if quarters is None else quarters
            if quarters is not None:
                self._finish(choices)
            if size:
                self.output_quarters += size
                self.last_token_at = now
                if self.first_token_at is None:
                    self.first_token_at = now
        usage = data.get("usage")
        if usage is not None:
            self._report(read_usage(usage))

    def _report(self, tokens: Tokens | None) -> None:
        if tokens is None:
            self.invalid_usage += 1
        else:
            self.reported, self.reported_quarters = tokens, self.output_quarters

    def _choice(self, choice: Any) -> int:
        """Note how a choice finished, if it has, and return the estimate of what it says."""
        if not isinstance(choice, dict):
            return 0
        if choice.get("finish_reason") is not None:
            self._finish([choice])
        return _choice_quarters(choice)

    def _finish(self, choices: list[Any]) -> None:
        """Note how choices finished, of many only the first."""
        for choice in choices[:MAX_FINISHES]:
            finish = choice.get("finish_reason") if isinstance(choice, dict) else None
            if isinstance(finish, str):
                number = index_of(choice, 0)
                if number in self.finish_reasons or len(self.finish_reasons) < MAX_FINISHES:
                    self.finish_reasons[number] = word(finish)

    def settle(
        self,
        prompt_quarters: Callable[[], int],
        *,
        finished: bool,
        hidden_tokens: Callable[[], int] = lambda: 0,
    ) -> Usage:
        """Return what was used: as reported at the end of the answer, else by the estimate.

        Of an answer that was not read to its end it is the larger of both, and no less than what
        the model may have written without showing it, ``hidden_tokens``. What was reported before
        more text came is no more than a lower bound either; its 0 for the prompt is no report.
        """
        reported = self.reported
        if finished and reported is not None and self.reported_quarters >= self.output_quarters:
            return Usage(reported, "provider")
        completion = whole_tokens(self.output_quarters)
        if not finished:
            larger = (reported or Tokens()).at_least(
                whole_tokens(prompt_quarters()), min(max(completion, hidden_tokens()), MAX_TOKENS)
            )
            return Usage(larger, "partial_estimate")
        known = reported or Tokens()
        prompt = 0 if known.prompt_total else whole_tokens(prompt_quarters())
        larger = known.at_least(prompt, completion)
        return Usage(larger, "provider" if larger == reported else "partial_estimate")
