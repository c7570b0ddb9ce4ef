"""The most that a call may cost, whatever type its tokens turn out to be of.

An upstream says only afterwards how many tokens were text, audio or reasoning, were written to a
cache, or fell in a tier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

from proxy.money.usage import BILLED_COUNTS, Price, price_on
from proxy.types.limit import MAX_AMOUNT, CallSize
from proxy.types.reasoning import may_reason

INPUT, OUTPUT = BILLED_COUNTS.index("input"), BILLED_COUNTS.index("output")
_WISHES = ("modalities", "response_modalities", "output_modalities")
_ASKED_IN = ("messages", "input", "prompt")
_RECORDED = ("audio", "video", "file", "media", "document")
"""Words in the names of parts that a model may hear, files of an unknown kind among them."""


def highest_cost(sizes: Sequence[CallSize], day: date) -> int | None:
    """Return the nano-USD of the most expensive target; None where no target has a known price."""
    highest: int | None = None
    for target, prompt, answers, body, cost in sizes:
        price = price_on(target.prices, day)
        if price is not None and (cost is None or price.is_free):
            cost = most_cost(price, prompt, answers, target.model, body)  # noqa: PLW2901
        if cost is not None and (highest is None or cost > highest):
            highest = cost
    return None if highest is None else min(highest, MAX_AMOUNT)


def most_cost(
    price: Price, prompt: int, answer: int, model: str, body: Mapping[str, Any]
) -> int | None:
    """Return the most nano-USD of a call for so many tokens at most, by the body that a model gets;
    None where text has no price."""
    steps = (
        [each for above, each in price.tier_prices if prompt > above] if price.tier_prices else []
    )
    counts = steps[0] if steps else price
    if (prompt and counts.rates[INPUT] is None) or (answer and counts.rates[OUTPUT] is None):
        return None
    heard = price.audio_input is not None and _brings_audio(body)
    thought = price.reasoning is not None and may_reason(model, body)
    spoken = price.audio_output is not None and _wants_audio(body)
    for_an_hour = price.cache_write_1h is not None and _is_kept_an_hour(body)
    most = 0
    types = heard, thought, spoken, for_an_hour
    for each in (price, *steps):
        if types not in each.highest:
            each.highest[types] = _highest(each, *types)
        asked, answered = each.highest[types]
        if (asked is not None or not prompt) and (answered is not None or not answer):
            units = prompt * (asked or 0) + answer * (
                answered or 0
            )  # of which ``unit`` are 1 nano-USD
            most = max(most, units if each.unit == 1 else round(Fraction(units, each.unit)))
    return most


def _highest(
    price: Price, heard: bool, thought: bool, spoken: bool, for_an_hour: bool
) -> tuple[int | None, int | None]:
    """Return what a token of the prompt and one of the answer cost at most, of the types that they
    may be; None where none of these has a price."""
    text, cached, written, output, reasoning, audio_in, audio_out, hourly, _ = price.rates
    prompts = text, cached, hourly if for_an_hour else written, audio_in if heard else text
    answers = output, reasoning if thought else output, audio_out if spoken else output
    return (
        max([rate for rate in prompts if rate is not None], default=None),
        max([rate for rate in answers if rate is not None], default=None),
    )


def _wants_audio(body: Mapping[str, Any]) -> bool:
    """True if the answer may be spoken."""
    spoken = any("audio" in str(body[name]).lower() for name in _WISHES if name in body)
    return spoken or body.get("audio") is not None


def _is_kept_an_hour(body: Mapping[str, Any]) -> bool:
    """True if a part of the prompt is to be kept for more than five minutes."""
    waiting: list[Any] = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("ttl") == "1h":
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def _brings_audio(body: Mapping[str, Any]) -> bool:
    """True if a part of the prompt may be heard."""
    waiting = [body[name] for name in _ASKED_IN if name in body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            names = f"{value.get('type')} {' '.join(value)}".lower()
            if any(word in names for word in _RECORDED):
                return True
            waiting += value.values()
        elif isinstance(value, str) and value.startswith("data:audio"):
            return True
    return False
