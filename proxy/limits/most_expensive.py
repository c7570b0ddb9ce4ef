"""The most that a call may cost, whatever type its tokens turn out to be of.

An upstream says only afterwards how many tokens were text, audio or reasoning, were written to a
cache, or fell in a tier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from proxy.types.limit import MOST, CallSize
from proxy.types.reasoning import may_reason
from proxy.usage import Price, Tokens, in_force, nano_usd

_PROMPT = ("cached_input", "cache_write")
_WISHES = ("modalities", "response_modalities", "output_modalities")
_ASKED_IN = ("messages", "input", "prompt")
_RECORDED = ("audio", "video", "file", "media", "document")
"""Words in the names of parts that a model may hear, files of an unknown kind among them."""


def highest_cost(sizes: Sequence[CallSize], day: date) -> int | None:
    """Return the nano-USD of the most expensive target; None where no target has a known price."""
    costs = [_cost_of(size, day) for size in sizes]
    return max([cost for cost in costs if cost is not None], default=None)


def _cost_of(size: CallSize, day: date) -> int | None:
    price = in_force(size.target.prices, day)
    if price is None:
        return None
    cost = most_cost(price, size.prompt, size.answers, size.target.model, size.body)
    return None if cost is None else min(cost, MOST)


def most_cost(
    price: Price, prompt: int, answer: int, model: str, body: Mapping[str, Any]
) -> int | None:
    """Return the most nano-USD of a call for so many tokens at most, by the body that a model gets;
    None where text has no price."""
    text = price.cost(Tokens(input=prompt, output=answer))
    if text is None:
        return None
    heard = ("audio_input",) if price.audio_input is not None and _brings_audio(body) else ()
    prompts = ("input", *_priced(price, _PROMPT), *heard)
    answers = ("output", *_priced(price, _answer_types(model, body)))
    if len(prompts) == len(answers) == 1 and not price.tiers:
        return text
    most, reached = text, [tiered for above, tiered in price.steps if prompt > above]
    for each in [price, *reached]:
        asked, answered = _highest(each, prompts, prompt), _highest(each, answers, answer)
        if asked is not None and answered is not None:
            most = max(most, nano_usd(asked + answered))
    return most


def _highest(price: Price, types: Sequence[str], count: int) -> Decimal | None:
    """Return the most micro-USD of so many tokens of one of some types; None where none of these
    has a price."""
    rates = [rate for name in types if (rate := price.rate(name)) is not None]
    return count * max(rates) if rates else None if count else Decimal(0)


def _priced(price: Price, types: tuple[str, ...]) -> list[str]:
    """Return the types that have a price of their own, be it in a tier, which has none for audio
    and reasoning."""
    priced: list[str] = []
    for name in types:
        tiers = [tier for tier in price.tiers if getattr(tier, name, None) is not None]
        if tiers or getattr(price, name) is not None:
            priced.append(name)
    return priced


def _answer_types(model: str, body: Mapping[str, Any]) -> tuple[str, ...]:
    reasoning = ("reasoning",) if may_reason(model, body) else ()
    return (*reasoning, "audio_output") if _wants_audio(body) else reasoning


def _wants_audio(body: Mapping[str, Any]) -> bool:
    """True if the answer may be spoken."""
    spoken = any("audio" in str(body[name]).lower() for name in _WISHES if name in body)
    return spoken or body.get("audio") is not None


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
