"""Budgets in USD per calendar window. A call claims the most that it may cost.

An upstream reports only afterwards how many tokens were text, audio or reasoning, were written to
a cache, or fell in a tier. The estimate takes the most expensive rate that may apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

from proxy.errors import BudgetExceeded
from proxy.money.usage import BILLED_COUNTS, NANO_PER_USD, Price, Tokens, find_price_on, format_usd
from proxy.types.limit import MAX_AMOUNT, CallSize, Limit, LimitKind, LimitRefusal
from proxy.types.providers import may_reason

INPUT_INDEX, OUTPUT_INDEX = BILLED_COUNTS.index("input"), BILLED_COUNTS.index("output")
MODALITY_FIELDS = ("modalities", "response_modalities", "output_modalities")
PROMPT_FIELDS = ("messages", "input", "prompt")
AUDIO_WORDS = ("audio", "video", "file", "media", "document")
"""Words in the types of content parts that may contain audio, including files."""


class UsdBudget(LimitKind):
    """USD per calendar second, minute, hour, day, week or month."""

    name = "usd"
    unit = "USD"
    counter_type = "budget"
    is_usage_based = True
    counter_prefix = "nano_usd"
    scale = NANO_PER_USD

    def estimate(self, sizes: Sequence[CallSize], day: date) -> int:
        return estimate_highest_cost(sizes, day) or 0

    def get_used_amount(self, tokens: Tokens | None, cost: int | None) -> int | None:
        return cost

    def format_number(self, amount: int) -> str:
        return f"{format_usd(amount)} USD"

    format_amount = format_number

    def describe(self, limit: Limit) -> str:
        return f"{self.format_number(limit.amount)} per {limit.calendar.unit}"

    def make_error(self, refusal: LimitRefusal, at_ms: int) -> BudgetExceeded:
        budget, remaining, limit = f"budget {refusal.description}", refusal.remaining, refusal.limit
        if refusal.retry_after_s is None:
            text = f"This call may cost more than the whole {budget}. Request fewer output tokens."
        else:
            left = "" if remaining is None else f" {self.format_number(remaining)} is left."
            reset = limit.calendar.get_next_window_start(at_ms).isoformat(timespec="seconds")
            text = f"This call may cost more than is left of {budget}.{left} It resets at {reset}."
        return BudgetExceeded(text, limit.name, "insufficient_quota", refusal.retry_after_s)


def estimate_highest_cost(sizes: Sequence[CallSize], day: date) -> int | None:
    """Return the nano-USD of the most expensive target, or None if no target has a price."""
    highest: int | None = None
    for target, prompt_tokens, output_tokens, body, fixed_cost in sizes:
        price, cost = find_price_on(target.prices, day), fixed_cost
        if price is not None and (cost is None or price.is_free):
            cost = estimate_max_cost(price, prompt_tokens, output_tokens, target.model, body)
        if cost is not None and (highest is None or cost > highest):
            highest = cost
    return None if highest is None else min(highest, MAX_AMOUNT)


def estimate_max_cost(
    price: Price, prompt_tokens: int, output_tokens: int, model: str, body: Mapping[str, Any]
) -> int | None:
    """Return the most nano-USD that a call may cost, or None if text has no price."""
    tiers = [tier for threshold, tier in price.tier_prices or () if prompt_tokens > threshold]
    text_rates = (tiers[0] if tiers else price).rates
    if (prompt_tokens and text_rates[INPUT_INDEX] is None) or (
        output_tokens and text_rates[OUTPUT_INDEX] is None
    ):
        return None
    token_types = (
        price.audio_input is not None and _may_contain_audio(body),
        price.reasoning is not None and may_reason(model, body),
        price.audio_output is not None and _requests_audio(body),
        price.cache_write_1h is not None and _caches_for_an_hour(body),
    )
    cost = 0
    for tier in (price, *tiers):
        if token_types not in tier.highest:
            tier.highest[token_types] = _find_highest_rates(tier, *token_types)
        input_rate, output_rate = tier.highest[token_types]
        if (input_rate is None and prompt_tokens) or (output_rate is None and output_tokens):
            continue
        units = prompt_tokens * (input_rate or 0) + output_tokens * (output_rate or 0)
        cost = max(cost, units if tier.unit == 1 else round(Fraction(units, tier.unit)))
    return cost


def _find_highest_rates(
    price: Price,
    has_audio: bool,
    has_reasoning: bool,
    requests_audio: bool,
    caches_for_an_hour: bool,
) -> tuple[int | None, int | None]:
    """Return the highest rates of an input and an output token, None if no type has a price."""
    text, cached, write, output, reasoning, audio_in, audio_out, write_1h, _ = price.rates
    written = write_1h if caches_for_an_hour else write
    inputs = (text, cached, written, audio_in if has_audio else text)
    audible = audio_out if requests_audio else output
    outputs = (output, reasoning if has_reasoning else output, audible)
    return (
        max([rate for rate in inputs if rate is not None], default=None),
        max([rate for rate in outputs if rate is not None], default=None),
    )


def _requests_audio(body: Mapping[str, Any]) -> bool:
    modalities = [str(body[name]).lower() for name in MODALITY_FIELDS if name in body]
    return any("audio" in text for text in modalities) or body.get("audio") is not None


def _caches_for_an_hour(body: Mapping[str, Any]) -> bool:
    """Return True if a part of the prompt requests the cache lifetime of one hour."""
    return any(isinstance(value, dict) and value.get("ttl") == "1h" for value in _walk_json(body))


def _may_contain_audio(body: Mapping[str, Any]) -> bool:
    """Return True if a part of the prompt may contain audio."""
    for value in _walk_json(*(body[name] for name in PROMPT_FIELDS if name in body)):
        if isinstance(value, dict):
            names = f"{value.get('type')} {' '.join(value)}".lower()
            if any(word in names for word in AUDIO_WORDS):
                return True
        elif isinstance(value, str) and value.startswith("data:audio"):
            return True
    return False


def _walk_json(*values: Any) -> Iterator[Any]:
    """Yield JSON values and all values in them."""
    pending = [*values]
    while pending:
        value = pending.pop()
        yield value
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
