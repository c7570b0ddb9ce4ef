"""Disjoint token counts, exact costs, and prices by day."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.money.usage import (
    COST_TYPES,
    MAX_TOKENS,
    TOKEN_TYPES,
    Price,
    Tier,
    Tokens,
    format_usd,
    read_chat_usage,
)
from tests.fakes import PriceBook
from tests.for_each import for_each


def usd_price(**usd: float) -> Price:
    """Return a price in USD per million tokens."""
    decimals: Any = {name: Decimal(str(value)) for name, value in usd.items()}
    return Price(**decimals)


MINI = usd_price(input=0.15, cached_input=0.075, output=0.6)
PLAIN = usd_price(input=2, output=8)
INPUTS = {"input": 2, "cached_input": 0.5, "cache_write": 2.5, "audio_input": 32}
FULL = usd_price(**INPUTS, output=8, reasoning=3, audio_output=64)
TIERS = (
    Tier(above=200, input=Decimal(4), output=Decimal(18)),
    Tier(above=100, input=Decimal(3), cached_input=Decimal("0.3")),
)
TIERED = replace(usd_price(input=2, output=12, cached_input=0.2), tiers=TIERS)
WRITES = {"cache_write": 6.25, "cache_write_1h": 10}
OPUS = usd_price(input=5, output=25, cached_input=0.5, **WRITES, web_search=10)  # of 2026-11
TODAY = date(2026, 11, 21)


@for_each(
    ("price", "tokens", "cost"),
    [
        pytest.param(MINI, Tokens(input=200, cached_input=1000, output=300), "285", id="mini"),
        pytest.param(MINI, Tokens(), "0", id="nothing"),
        pytest.param(Price(Decimal(0), Decimal(0)), Tokens(7, output=7), "0", id="free"),
        pytest.param(Price(Decimal("0.003625"), Decimal(0)), Tokens(3), "0.011", id="rounded-once"),
        pytest.param(
            OPUS, Tokens(cache_write=300, cache_write_1h=100), "2250", id="writes-of-both-kinds"
        ),
        pytest.param(
            OPUS, Tokens(cache_write=100, cache_write_1h=100), "1000", id="writes-for-an-hour"
        ),
        pytest.param(OPUS, Tokens(input=1, web_searches=3), "30005", id="searches"),
        pytest.param(
            FULL, Tokens(cache_write=4, cache_write_1h=2), "10", id="an-hour-as-any-write"
        ),
        pytest.param(PLAIN, Tokens(cached_input=10), "20", id="cached-as-input"),
        pytest.param(PLAIN, Tokens(cache_write=10), "20", id="cache-write-as-input"),
        pytest.param(PLAIN, Tokens(audio_input=10), "20", id="audio-as-input"),
        pytest.param(PLAIN, Tokens(reasoning=10), "80", id="reasoning-as-output"),
        pytest.param(PLAIN, Tokens(audio_output=10), "80", id="audio-as-output"),
        pytest.param(FULL, Tokens(1, 1, 1, 1, 1, 1, 1), "112.0", id="each-its-own"),
        pytest.param(TIERED, Tokens(60, 40, output=1), "140", id="at-the-border"),
        pytest.param(TIERED, Tokens(61, 40, output=1), "207", id="first-tier"),
        pytest.param(TIERED, Tokens(161, 40, output=1), "670", id="second-tier-over-the-base"),
        pytest.param(TIERED, Tokens(10, output=500), "6020", id="answers-reach-no-tier"),
    ],
)
def test_cost_is_tokens_times_prices(price: Price, tokens: Tokens, cost: str) -> None:
    assert price.compute_cost(tokens) == Decimal(cost) * 1000


rates = st.none() | st.decimals(0, 4000, places=6)
tier_prices = st.fixed_dictionaries({name: rates for name in ("input", "output", "cached_input")})
tiers = st.builds(lambda threshold, usd: Tier(threshold, **usd), st.integers(0, 99), tier_prices)
prices = st.builds(
    lambda usd, tiers: Price(**usd, tiers=tuple(tiers)),
    st.fixed_dictionaries(dict.fromkeys(TOKEN_TYPES, rates)),
    st.lists(tiers, max_size=3),
)
used = st.builds(Tokens, *[st.integers(0, 60) | st.integers(0, MAX_TOKENS)] * 7)


@given(price=prices, tokens=used)
def test_cost_is_a_sum_rounded_once(price: Price, tokens: Tokens) -> None:
    reached = [tier for tier in price.tiers if tokens.prompt_total > tier.above]
    if reached:
        price = price.with_tier(max(reached, key=lambda tier: tier.above))
    counted = {name: n for name in TOKEN_TYPES if (n := getattr(tokens, name))}
    products = [
        n * price.get_rate(name) for name, n in counted.items() if price.get_rate(name) is not None
    ]
    sums = [round(sum(products[:end], Decimal(0)) * 1000) for end in range(len(products) + 1)]

    assert price.compute_cost(tokens) == (sums[-1] if len(products) == len(counted) else None)
    if len(products) == len(counted):
        parts: dict[str, int] = {}
        for name, initial, upto in zip(counted, sums, sums[1:], strict=False):
            parts[COST_TYPES[name]] = parts.get(COST_TYPES[name], 0) + upto - initial
        assert price.compute_cost_by_type(tokens) == {
            kind: part for kind, part in parts.items() if part
        }


@for_each(
    ("nano", "text"),
    [
        (0, "0"),
        (1, "0.000000001"),
        (22_000, "0.000022"),
        (2_550, "0.00000255"),
        (1_250_000_000, "1.25"),
        (-20_000_000, "-0.02"),
        (2**53, "9007199.254740992"),
    ],
)
def test_usd_text_is_exact(nano: int, text: str) -> None:
    assert format_usd(nano) == text


DETAILS = {"cached_tokens": 30, "cache_write_tokens": 20, "audio_tokens": 10}
RESULT = {"reasoning_tokens": 4, "audio_tokens": 3}


def chat_usage(
    prompt: int, completion: int | None, total: Any = ..., **fields: Any
) -> dict[str, Any]:
    """Return the usage of a chat, without a total unless one is given."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, **fields}
    return usage if total is ... else {**usage, "total_tokens": total}


@for_each(
    ("usage", "tokens"),
    [
        pytest.param(chat_usage(5, 7), Tokens(5, output=7), id="bare"),
        pytest.param(chat_usage(0, 0), Tokens(), id="zero-is-a-value"),
        pytest.param(
            chat_usage(100, 10, prompt_tokens_details=DETAILS, completion_tokens_details=RESULT),
            Tokens(40, 30, 20, 3, 4, 10, 3),
            id="details",
        ),
        pytest.param(
            chat_usage(45, 5, prompt_tokens_details=DETAILS, completion_tokens_details=RESULT),
            Tokens(0, 30, 15, 0, 4, 0, 1),
            id="details-larger-than-their-totals",
        ),
        pytest.param(
            {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}},
            Tokens(5),
            id="a-wrong-detail-is-none",
        ),
        pytest.param(
            {"prompt_tokens": 5, "prompt_tokens_details": None}, Tokens(5), id="null-details"
        ),
        pytest.param({"prompt_tokens": 5}, Tokens(5), id="no-completion"),
        pytest.param({"prompt_tokens": 5, "total_tokens": 5}, Tokens(5), id="embeddings"),
        pytest.param(chat_usage(5, None, 8), Tokens(5, output=3), id="completion-from-the-total"),
        pytest.param({"prompt_tokens": 5, "total_tokens": 2}, Tokens(5), id="total-too-small"),
        pytest.param(chat_usage(5, 7, 20), Tokens(5, output=15), id="more-in-the-total"),
        pytest.param(
            chat_usage(5, 7, 20, completion_tokens_details={"reasoning_tokens": 8}),
            Tokens(5, output=7, reasoning=8),
            id="thoughts-in-the-total-alone",
        ),
        pytest.param(chat_usage(5, 7, 11), Tokens(5, output=7), id="less-in-the-total"),
        *(
            pytest.param(chat_usage(5, 7, wrong), Tokens(5, output=7), id=f"a-total-of-{wrong}")
            for wrong in (None, "20", 20.0, MAX_TOKENS + 1, True)
        ),
        *(
            pytest.param(chat_usage(9, 7, 16, **{name: 4}), Tokens(5, 4, output=7), id=name)
            for name in ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
        ),
        pytest.param(
            {
                **chat_usage(9, 7, 16),
                **{"prompt_cache_hit_tokens": 4, "cached_tokens": 4},
                "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 1},
            },
            Tokens(4, 4, output=7, audio_input=1),
            id="cached-told-thrice",
        ),
        pytest.param(
            chat_usage(2, 7, 19, cache_read_input_tokens=6, cache_creation_input_tokens=4),
            Tokens(2, 6, 4, 7),
            id="cached-beside-the-prompt",
        ),
        pytest.param(
            {"prompt_tokens": 9, "completion_tokens": 7, "cached_tokens": -4},
            Tokens(9, output=7),
            id="a-wrong-count-elsewhere",
        ),
        pytest.param(chat_usage(MAX_TOKENS, 0), Tokens(MAX_TOKENS), id="largest"),
    ],
)
def test_usage_becomes_disjoint_counts(usage: Any, tokens: Tokens) -> None:
    assert read_chat_usage(usage) == tokens


WRONG = [-1, True, "12", 12.0, float("nan"), float("inf"), MAX_TOKENS + 1, [], {}]


@for_each(
    "usage",
    [
        None,
        [],
        "usage",
        {},
        {"completion_tokens": 3},
        {"prompt_tokens": None, "total_tokens": 3},
        *({"prompt_tokens": wrong, "completion_tokens": 3} for wrong in WRONG),
        *({"prompt_tokens": 3, "completion_tokens": wrong} for wrong in WRONG),
        *({"prompt_tokens": 3, "total_tokens": wrong} for wrong in WRONG),
    ],
)
def test_invalid_usage_is_none(usage: Any) -> None:
    assert read_chat_usage(usage) is None


counts = st.integers(0, MAX_TOKENS)
junk = st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.integers(-5, 5)
details = junk | st.dictionaries(
    st.sampled_from(["cached_tokens", "cache_write_tokens", "audio_tokens", "reasoning_tokens"]),
    counts | junk,
)


@given(prompt=counts, completion=counts, inside=details, result=details)
def test_counts_add_up_to_totals(prompt: int, completion: int, inside: Any, result: Any) -> None:
    tokens = read_chat_usage(
        {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "prompt_tokens_details": inside,
            "completion_tokens_details": result,
        }
    )

    assert tokens is not None
    assert (tokens.prompt_total, tokens.completion_total) == (prompt, completion)
    assert tokens.total == prompt + completion
    assert min(getattr(tokens, name) for name in TOKEN_TYPES) >= 0


def test_tokens_add_up_type_by_type() -> None:
    assert Tokens(1, 2, 3, 4, 5, 6, 7) + Tokens(input=10, audio_output=1) == Tokens(
        11, 2, 3, 4, 5, 6, 8
    )


def priced(amount: int, start: date | None = None) -> Price:
    return Price(input=Decimal(amount), output=Decimal(0), since=start)


BOOK = PriceBook(
    {
        "openai": {
            "gpt-4o-mini": [priced(1)],
            "gpt-4o-*": [priced(2)],
            "gpt-4o-mini-*": [priced(3)],
            "smol": [priced(5, date(2026, 6, 1)), priced(6)],
            "smol-next": [priced(7, date(2027, 1, 1))],
        },
        "local": {},
    }
)


@for_each(
    ("provider", "model", "on", "expected"),
    [
        pytest.param("openai", "gpt-4o-mini", TODAY, 1, id="its-very-name"),
        pytest.param("openai", "gpt-4o-mini-2024-07-18", TODAY, 3, id="the-longest-prefix"),
        pytest.param("openai", "gpt-4o-audio", TODAY, 2, id="a-shorter-prefix"),
        pytest.param("openai", "gpt-4o", TODAY, None, id="shorter-than-all"),
        pytest.param("openai", "GPT-4o-mini", TODAY, None, id="another-case"),
        pytest.param("local", "gpt-4o-mini", TODAY, None, id="another-provider"),
        pytest.param("elsewhere", "gpt-4o-mini", TODAY, None, id="an-unknown-provider"),
        pytest.param(None, "gpt-4o-mini", TODAY, None, id="no-provider"),
        pytest.param("openai", "smol", date(2026, 5, 31), 6, id="the-day-before"),
        pytest.param("openai", "smol", date(2026, 6, 1), 5, id="from-its-day-on"),
        pytest.param("openai", "smol-next", TODAY, None, id="not-yet"),
    ],
)
def test_finds_dated_price(
    provider: str | None, model: str, on: date, expected: int | None
) -> None:
    price = BOOK.find(provider, model, on)

    assert (price.input if price else None) == expected
