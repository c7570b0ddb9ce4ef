"""No mix of tokens costs more than what a call claims for as many of them."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.limits.claims import estimate_claims
from proxy.limits.kinds.usd import max_cost
from proxy.money.usage import BILLED_COUNTS, IMAGES, TOKEN_TYPES, Price, Tier, Tokens
from proxy.policy.review.sample_call import sample_call
from proxy.types import ModelCall, ScopedLimit, Target
from tests.for_each import for_each
from tests.limits.test_claims import AT, MONEY, UP, plan

PLAIN = Price(Decimal(10), Decimal(20))


def own(**prices: Decimal) -> Price:
    """Return the price of text with these beside it."""
    return Price(PLAIN.input, PLAIN.output, **prices)  # type: ignore[arg-type]  # names of prices


OWN_VALUE = ("cached_input", "cache_write", "reasoning", "audio_input", "audio_output")
PRICES = {
    "text alone": PLAIN,
    **{f"dear {name}": own(**{name: Decimal(800)}) for name in OWN_VALUE},
    **{f"cheap {name}": own(**{name: Decimal(1)}) for name in OWN_VALUE},
    "all": own(**dict.fromkeys(OWN_VALUE, Decimal(300))),
    "a dearer tier": replace(PLAIN, tiers=(Tier(20, Decimal(90), output=Decimal(200)),)),
    "a cheaper tier": replace(PLAIN, tiers=(Tier(20, Decimal(1), output=Decimal(2)),)),
    "a tier of writes alone": replace(PLAIN, tiers=(Tier(20, cache_write=Decimal(400)),)),
    "tiers of writes": replace(
        PLAIN,
        cache_write=Decimal(40),
        tiers=(Tier(5, cache_write=Decimal(400)), Tier(20, cache_write=Decimal(50))),
    ),
}
WORDS = {"role": "user", "content": "x" * 400}
HEARD = {"type": "input_audio", "input_audio": {"data": "x" * 400, "format": "wav"}}
FILED = {"type": "file", "file": {"file_data": "data:audio/wav;base64," + "x" * 400}}
ASKS: dict[str, tuple[dict[str, Any], frozenset[str]]] = {
    "text": ({"messages": [WORDS]}, frozenset()),
    "an answer in audio": (
        {"messages": [WORDS], "modalities": ["text", "audio"], "audio": {"voice": "a"}},
        frozenset({"audio_output"}),
    ),
    "a question in audio": (
        {"messages": [WORDS, {"role": "user", "content": [HEARD]}]},
        frozenset({"audio_input"}),
    ),
    "a file": ({"messages": [{"role": "user", "content": [FILED]}]}, frozenset({"audio_input"})),
    "an answer before in audio": (
        {"messages": [{"role": "assistant", "audio": {"id": "a"}}, WORDS]},
        frozenset({"audio_input"}),
    ),
    "both": (
        {"messages": [{"role": "user", "content": [HEARD]}], "modalities": ["audio"]},
        frozenset({"audio_input", "audio_output"}),
    ),
}
AUDIO = frozenset({"audio_input", "audio_output"})
MAXIMUM = 40  # tokens of an answer


def claimed(price: Price, body: dict[str, Any], model: str = "m") -> int:
    call = sample_call(
        {"model": "m", "max_tokens": MAXIMUM, **body}, {}, AT, "/v1/chat/completions"
    )
    legs = (
        ModelCall(
            "m", (Target(replace(UP, accepts=frozenset({"audio.id"})), model, prices=(price,)),)
        ),
    )
    [claim] = estimate_claims(plan(ScopedLimit(MONEY), model_calls=legs), call)
    return claim.amount


def mixes(types: frozenset[str]) -> list[Tokens]:
    """Return what may be billed: the whole of a side as each of its types, and halves."""
    sides = [TOKEN_TYPES[:3] + TOKEN_TYPES[5:6], TOKEN_TYPES[3:5] + TOKEN_TYPES[6:]]
    requests, answered = ([name for name in side if name in types] for side in sides)
    return [
        Tokens(**{a: 50}) + Tokens(**{b: 50}) + Tokens(**{c: 20}) + Tokens(**{d: 20})
        for (a, b), (c, d) in product(product(requests, requests), product(answered, answered))
    ] + [Tokens(input=10, output=MAXIMUM), Tokens(input=15, output=MAXIMUM)]


def test_the_sides_hold_every_type_of_tokens() -> None:
    assert [field.name for field in fields(Tokens)] == [*BILLED_COUNTS, *IMAGES]
    assert {*OWN_VALUE, "input", "output"} == set(TOKEN_TYPES)


@for_each("asks", ASKS)
@for_each("price", PRICES)
def test_no_mix_of_tokens_costs_more_than_is_claimed(price: str, asks: str) -> None:
    body, audio = ASKS[asks]
    claim = claimed(PRICES[price], body)

    for tokens in mixes(frozenset(TOKEN_TYPES) - (AUDIO - audio)):
        cost = PRICES[price].cost(tokens)
        assert cost is not None
        assert claim >= cost, tokens


RATES = st.none() | st.decimals(0, 4000, places=6)
TIERS = st.builds(Tier, st.integers(0, 60), *[RATES] * 4)
EVERY_PRICE = st.builds(Price, *[RATES] * 7, st.lists(TIERS, max_size=3).map(tuple))
AMOUNTS = st.integers(0, 60)


@given(EVERY_PRICE, AMOUNTS, AMOUNTS, st.sampled_from(list(ASKS)))
def test_claims_the_most_expensive_mix(price: Price, prompt: int, answer: int, asks: str) -> None:
    body, audio = ASKS[asks]
    side = {"input", "cached_input", "cache_write"} | (audio & {"audio_input"})
    other_names = {"output", "reasoning"} | (audio & {"audio_output"})
    reached = [tier for tier in price.tiers if prompt > tier.above]
    item = [replace(price, tiers=()), *[replace(price, tiers=(tier,)) for tier in reached]]
    costs = [
        single_price.cost(Tokens(**{request: prompt, answered: answer}))
        for single_price, request, answered in product(item, side, other_names)
    ]
    of_text = price.cost(Tokens(input=prompt, output=answer))

    maximum = max_cost(price, prompt, answer, "m", body)

    assert maximum == (None if of_text is None else max(c for c in costs if c is not None))


@pytest.mark.parametrize("name", ["audio_input", "audio_output"])
def test_a_call_of_text_alone_claims_no_audio(name: str) -> None:
    dear = own(**{name: Decimal(800)})

    assert claimed(dear, ASKS["text"][0]) == claimed(PLAIN, ASKS["text"][0])


def test_what_is_to_be_kept_for_an_hour_is_claimed_at_its_price() -> None:
    dear, body = replace(PLAIN, cache_write_1h=Decimal(800)), ASKS["text"][0]
    stored = {
        "type": "text",
        "text": "x" * 400,
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
    }
    request = {"messages": [{"role": "user", "content": [stored]}]}
    written = Tokens(cache_write=50, cache_write_1h=50, output=MAXIMUM)

    assert claimed(dear, body) == claimed(PLAIN, body)
    assert claimed(dear, request) >= (dear.cost(written) or 0) > claimed(PLAIN, request)


def test_a_model_that_never_reasons_claims_no_reasoning_unless_it_is_asked_to() -> None:
    dear, body = replace(PLAIN, reasoning=Decimal(800)), ASKS["text"][0]

    assert claimed(dear, body, "m-non-thinking") == claimed(PLAIN, body)
    assert claimed(dear, {**body, "reasoning_effort": "low"}, "m-non-thinking") > 2 * claimed(
        PLAIN, body
    )
