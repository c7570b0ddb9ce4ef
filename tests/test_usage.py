"""Tokens never overlap, money is exact, unknown stays unknown, streams count as wholes do."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.usage import (
    MAX_FINISHES,
    MAX_TOKENS,
    TOKEN_TYPES,
    Meter,
    Price,
    Tier,
    Tokens,
    nano_usd,
    read_usage,
    usd_text,
)
from proxy.words import MAX_ID, MAX_WORD
from tests.doubles import PriceBook

MINI = Price(input=Decimal("0.15"), cached_input=Decimal("0.075"), output=Decimal("0.6"))
PLAIN = Price(input=Decimal(2), output=Decimal(8))
FULL = Price(
    input=Decimal(2),
    output=Decimal(8),
    cached_input=Decimal("0.5"),
    cache_write=Decimal("2.5"),
    reasoning=Decimal(3),
    audio_input=Decimal(32),
    audio_output=Decimal(64),
)
TIERED = Price(
    input=Decimal(2),
    output=Decimal(12),
    cached_input=Decimal("0.2"),
    tiers=(
        Tier(above=200, input=Decimal(4), output=Decimal(18)),
        Tier(above=100, input=Decimal(3), cached_input=Decimal("0.3")),
    ),
)
TODAY = date(2026, 11, 21)


@pytest.mark.parametrize(
    ("price", "tokens", "cost"),
    [
        pytest.param(MINI, Tokens(input=200, cached_input=1000, output=300), "285", id="mini"),
        pytest.param(MINI, Tokens(), "0", id="nothing"),
        pytest.param(Price(Decimal(0), Decimal(0)), Tokens(7, output=7), "0", id="free"),
        pytest.param(Price(Decimal("0.003625"), Decimal(0)), Tokens(3), "0.011", id="rounded-once"),
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
def test_a_call_costs_its_tokens_at_their_prices(price: Price, tokens: Tokens, cost: str) -> None:
    assert price.cost(tokens) == Decimal(cost) * 1000


def test_a_cost_is_in_billionths_of_a_usd() -> None:
    tokens = read_usage(
        {
            "prompt_tokens": 1200,
            "completion_tokens": 300,
            "prompt_tokens_details": {"cached_tokens": 1000},
        }
    )

    assert tokens is not None
    assert MINI.cost(tokens) == 285_000


@pytest.mark.parametrize(
    ("cost", "whole"),
    [("0.0005", 0), ("0.0015", 2), ("0.0025", 2), ("0.00251", 3), ("285", 285_000), ("0", 0)],
)
def test_a_cost_is_rounded_half_to_even(cost: str, whole: int) -> None:
    assert nano_usd(Decimal(cost)) == whole


@pytest.mark.parametrize(
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
def test_money_is_read_in_usd_and_exact(nano: int, text: str) -> None:
    assert usd_text(nano) == text


DETAILS = {"cached_tokens": 30, "cache_write_tokens": 20, "audio_tokens": 10}
MADE = {"reasoning_tokens": 4, "audio_tokens": 3}


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        pytest.param({"prompt_tokens": 5, "completion_tokens": 7}, Tokens(5, output=7), id="bare"),
        pytest.param({"prompt_tokens": 0, "completion_tokens": 0}, Tokens(), id="zero-is-a-value"),
        pytest.param(
            {
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "prompt_tokens_details": DETAILS,
                "completion_tokens_details": MADE,
            },
            Tokens(40, 30, 20, 3, 4, 10, 3),
            id="details",
        ),
        pytest.param(
            {
                "prompt_tokens": 45,
                "completion_tokens": 5,
                "prompt_tokens_details": DETAILS,
                "completion_tokens_details": MADE,
            },
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
        pytest.param(
            {"prompt_tokens": 5, "completion_tokens": None, "total_tokens": 8},
            Tokens(5, output=3),
            id="completion-from-the-total",
        ),
        pytest.param({"prompt_tokens": 5, "total_tokens": 2}, Tokens(5), id="total-too-small"),
        pytest.param(
            {"prompt_tokens": MAX_TOKENS, "completion_tokens": 0}, Tokens(MAX_TOKENS), id="largest"
        ),
    ],
)
def test_usage_is_read_as_counts_that_do_not_overlap(usage: Any, tokens: Tokens) -> None:
    assert read_usage(usage) == tokens


WRONG = [-1, True, "12", 12.0, float("nan"), float("inf"), MAX_TOKENS + 1, [], {}]


@pytest.mark.parametrize(
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
def test_usage_that_cannot_be_trusted_is_none(usage: Any) -> None:
    assert read_usage(usage) is None


counts = st.integers(0, MAX_TOKENS)
junk = st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.integers(-5, 5)
details = junk | st.dictionaries(
    st.sampled_from(["cached_tokens", "cache_write_tokens", "audio_tokens", "reasoning_tokens"]),
    counts | junk,
)


@given(prompt=counts, completion=counts, inside=details, made=details)
def test_counts_add_up_to_the_reported_totals(
    prompt: int, completion: int, inside: Any, made: Any
) -> None:
    tokens = read_usage(
        {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "prompt_tokens_details": inside,
            "completion_tokens_details": made,
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


def priced(amount: int, since: date | None = None) -> Price:
    return Price(input=Decimal(amount), output=Decimal(0), since=since)


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


@pytest.mark.parametrize(
    ("provider", "model", "on", "found"),
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
def test_a_price_is_the_one_of_that_model_on_that_day_or_unknown(
    provider: str | None, model: str, on: date, found: int | None
) -> None:
    price = BOOK.find(provider, model, on)

    assert (price.input if price else None) == found


def chunk(**choice: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **choice}]}


def nothing() -> int:
    return 0


@pytest.mark.parametrize(
    ("data", "length"),
    [
        pytest.param(None, 0, id="no-data"),
        pytest.param({}, 0, id="empty"),
        pytest.param({"choices": "none"}, 0, id="no-list"),
        pytest.param({"choices": [None, 3]}, 0, id="no-choices"),
        pytest.param(chunk(delta={"role": "assistant", "content": ""}), 0, id="role"),
        pytest.param(chunk(delta="Paris"), 0, id="no-delta"),
        pytest.param(chunk(delta={}, finish_reason="stop"), 0, id="end"),
        pytest.param(chunk(text=" Paris", logprobs=None), 6, id="legacy"),
        pytest.param(chunk(delta={"content": "Paris"}), 5, id="chat-delta"),
        pytest.param(chunk(message={"content": "Paris", "refusal": None}), 5, id="chat-whole"),
        pytest.param(chunk(message={"content": None, "refusal": "No."}), 3, id="refusal"),
        pytest.param(chunk(delta={"reasoning_content": "Hm"}), 2, id="reasoning"),
        pytest.param(chunk(delta={"reasoning": "Hm"}), 2, id="reasoning-by-its-other-name"),
        pytest.param(
            chunk(delta={"reasoning": "Hm", "reasoning_content": "Hm"}), 2, id="said-twice"
        ),
        pytest.param(
            chunk(delta={"function_call": {"name": "find", "arguments": "{}"}}), 6, id="function"
        ),
        pytest.param(
            chunk(
                message={
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "find", "arguments": '{"q":1}'},
                        },
                        {"custom": {"name": "run", "input": "ls"}},
                        None,
                    ]
                }
            ),
            16,
            id="tools-without-ids",
        ),
        pytest.param({"choices": [{"text": "a"}, {"text": "bc"}]}, 3, id="two-choices"),
    ],
)
def test_what_a_model_wrote_is_counted(data: Any, length: int) -> None:
    meter = Meter()

    meter.feed(data, 5.0)

    assert meter.output_quarters == length
    assert meter.first_token_at == (5.0 if length else None)


def test_first_and_last_token_are_when_text_came() -> None:
    meter = Meter()

    meter.feed(chunk(delta={"role": "assistant", "content": ""}), 1.0)
    meter.feed(chunk(delta={"content": "Pa"}), 2.0)
    meter.feed(chunk(delta={"tool_calls": [{"function": {"arguments": "{"}}]}), 3.0)
    meter.feed(chunk(delta={}, finish_reason="tool_calls"), 4.0)

    assert (meter.first_token_at, meter.last_token_at) == (2.0, 3.0)


def test_finish_reasons_are_kept_by_choice() -> None:
    meter = Meter()

    meter.feed({"choices": [{"index": 1, "text": "", "finish_reason": "length"}]}, 1.0)
    meter.feed({"choices": [{"text": "", "finish_reason": "stop"}]}, 1.0)
    meter.feed({"choices": [{"index": 1, "text": "", "finish_reason": None}]}, 1.0)

    assert meter.finish_reasons == {0: "stop", 1: "length"}


def test_the_last_usage_counts_and_none_are_added_up() -> None:
    meter = Meter()

    for completion in (1, 2, 3):
        usage = {"prompt_tokens": 9, "completion_tokens": completion}
        meter.feed(chunk(text="x") | {"usage": usage}, 1.0)
    meter.feed(chunk(text="x") | {"usage": None}, 1.0)

    settled = meter.settle(nothing, finished=True)
    assert (settled.source, settled.tokens) == ("provider", Tokens(9, output=3))


def test_usage_gone_wrong_is_counted_and_does_not_count() -> None:
    meter = Meter()

    meter.feed({"usage": {"prompt_tokens": 9, "completion_tokens": 2}}, 1.0)
    meter.feed({"usage": {"prompt_tokens": -9, "completion_tokens": 2}}, 1.0)

    assert meter.invalid_usage == 1
    assert meter.settle(nothing, finished=True).tokens == Tokens(9, output=2)


def test_a_reported_zero_is_not_replaced_by_a_guess() -> None:
    meter = Meter()

    meter.feed(chunk(text="Paris") | {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}, 1.0)

    settled = meter.settle(lambda: 400, finished=True)
    assert (settled.source, settled.tokens) == ("provider", Tokens())


def test_of_an_answer_that_was_left_the_larger_of_report_and_estimate_is_booked() -> None:
    meter = Meter()
    meter.feed({"usage": {"prompt_tokens": 12, "completion_tokens": 0}}, 1.0)
    meter.feed(chunk(text="x" * 40), 1.0)

    def left(prompt: int, hidden: int) -> Tokens:
        settled = meter.settle(lambda: prompt, finished=False, hidden_tokens=lambda: hidden)
        assert settled.source == "partial_estimate"
        return settled.tokens

    assert left(40, 0) == Tokens(12, output=10)
    assert left(60, 0) == Tokens(15, output=10)
    assert left(60, 9000) == Tokens(15, output=9000)


def test_usage_that_more_text_follows_is_no_more_than_a_lower_bound() -> None:
    meter = Meter()
    meter.feed({"usage": {"prompt_tokens": 12, "completion_tokens": 0}}, 1.0)
    meter.feed(chunk(text="x" * 40), 1.0)

    settled = meter.settle(lambda: 400, finished=True)
    assert (settled.source, settled.tokens) == ("partial_estimate", Tokens(12, output=10))


def test_zeros_that_more_text_follows_are_no_report_of_the_prompt_either() -> None:
    meter = Meter()
    meter.feed(chunk(text="Hi") | {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}, 1.0)
    meter.feed(chunk(text="x" * 40), 1.0)

    settled = meter.settle(lambda: 400, finished=True)
    assert (settled.source, settled.tokens) == ("partial_estimate", Tokens(100, output=11))


@pytest.mark.parametrize(
    ("prompt", "answer", "tokens"),
    [(0, "", Tokens()), (4, "Rome", Tokens(1, output=1)), (5, "Paris", Tokens(2, output=2))],
)
def test_without_usage_four_characters_are_a_token(
    prompt: int, answer: str, tokens: Tokens
) -> None:
    meter = Meter()

    meter.feed(chunk(text=answer), 1.0)

    settled = meter.settle(lambda: prompt, finished=True)
    assert (settled.source, settled.tokens) == ("partial_estimate", tokens)


def tool(arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}


def pieces(text: str, cuts: list[int]) -> list[str]:
    ends = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


@given(text=st.text(), arguments=st.text(), cuts=st.lists(st.integers(0, 99), max_size=9))
def test_a_stream_cut_anywhere_counts_as_the_whole_answer(
    text: str, arguments: str, cuts: list[int]
) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3}
    whole, streamed = Meter(), Meter()

    said = {"content": text, **tool(arguments)}
    whole.feed(chunk(message=said, finish_reason="stop") | {"usage": usage}, 1.0)
    for piece in pieces(text, cuts):
        streamed.feed(chunk(delta={"content": piece}, finish_reason=None), 1.0)
    for piece in pieces(arguments, cuts):
        streamed.feed(chunk(delta=tool(piece)), 1.0)
    streamed.feed(chunk(delta={}, finish_reason="stop"), 1.0)
    streamed.feed({"choices": [], "usage": usage}, 1.0)

    assert facts(streamed) == facts(whole)


def facts(meter: Meter) -> dict[str, Any]:
    return {name: getattr(meter, name) for name in Meter.__slots__}


def test_of_what_an_upstream_writes_beside_its_answer_words_are_kept() -> None:
    meter = Meter()
    choices = [{"index": n, "text": "", "finish_reason": "f" * 10_000} for n in range(1000)]
    meter.feed({"id": "i" * 10_000, "model": ["m"] * 10_000, "choices": choices}, 0.0)

    assert meter.answer_id == "i" * MAX_ID
    assert meter.answer_model is None
    assert len(meter.finish_reasons) == MAX_FINISHES
    assert {*meter.finish_reasons.values()} == {"f" * MAX_WORD}
