"""Claims of calls, the counters they apply to, and their actual usage."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.call.meter import Meter
from proxy.call.record import Record, TraceIds
from proxy.fields.token_bounds import ASSUMED_TOKENS
from proxy.guards.kinds.resources import Length
from proxy.limits.claims import (
    estimate_claims,
    estimate_hidden_output,
    list_actual_or_claimed_usage,
)
from proxy.limits.kinds import KINDS
from proxy.limits.kinds.usd import estimate_max_cost
from proxy.money.estimate import NOTHING_HIDDEN, HiddenOutput
from proxy.money.usage import (
    BILLED_COUNTS,
    IMAGE_COUNTS,
    TOKEN_TYPES,
    Price,
    Tier,
    Tokens,
    read_chat_usage,
)
from proxy.policy.review.sample_call import build_sample_call
from proxy.types import Call, ModelCall, ParameterOverrides, Plan, ScopedLimit, Target, Upstream
from proxy.types.limit import Limit
from proxy.types.windows import Calendar
from tests.doubles import legacy_completion, legacy_events, usage
from tests.for_each import for_each
from tests.frames import stream_frames, whole_frame
from tests.limits.sample_limits import estimate_tokens

UP = Upstream("up", "openai", "http://127.0.0.1:9")
CHEAP, DEAR = (
    Target(UP, name, prices=(Price(Decimal(price), Decimal(price) * 2),))
    for name, price in (("cheap", 1), ("dear", 5))
)
CALL_TIME = datetime(2026, 1, 1, tzinfo=UTC)
REQUESTS, TOKENS = Limit("r", KINDS["requests"], 5, 60), Limit("t", KINDS["tokens"], 5000, 60)
MONEY = Limit("m", KINDS["usd"], 1_000_000, Calendar("month"))
AT_ONCE = Limit("c", KINDS["concurrency"], 2)


def chat_call(**body: Any) -> Call:
    return build_sample_call({"model": "m", **body}, {}, CALL_TIME)


def plan(
    *bounds: ScopedLimit, model_calls: tuple[ModelCall, ...] = (ModelCall("m", (CHEAP, DEAR)),)
) -> Plan:
    return Plan("1", "widget", "chat", {"team": "support"}, model_calls, limits=bounds)


@for_each(
    ("body", "changes", "tokens"),
    [
        ({"prompt": "x" * 40, "max_tokens": 7}, ParameterOverrides(), (10, 7)),
        ({"prompt": "x" * 41, "max_tokens": 7}, ParameterOverrides(), (11, 7)),
        ({"prompt": "x" * 40}, ParameterOverrides(), (10, ASSUMED_TOKENS)),
        ({"prompt": "x" * 40}, ParameterOverrides(cap={"max_tokens": 9}), (10, 9)),
        ({"prompt": "x" * 40, "max_tokens": 7, "n": 3}, ParameterOverrides(), (10, 21)),
        ({"prompt": "x" * 40, "max_tokens": 7, "n": 2, "best_of": 5}, ParameterOverrides(),
            (10, 35)),
        ({"prompt": ["x" * 20, "y" * 20], "max_tokens": 7}, ParameterOverrides(), (10, 14)),
        ({"prompt": [1, 2, 3], "max_tokens": 7}, ParameterOverrides(), (3, 7)),
        ({"prompt": [[1, 2], [3]], "max_tokens": 7}, ParameterOverrides(), (3, 14)),
        ({"messages": [{"role": "user", "content": "x" * 36}], "max_completion_tokens": 7},
            ParameterOverrides(), (17, 7)),
        ({"prompt": "x" * 40, "guided_json": {"title": "y" * 35}}, ParameterOverrides(),
            (22, ASSUMED_TOKENS)),
        ({"prompt": "注文" * 120, "max_tokens": 7}, ParameterOverrides(), (240, 7)),
    ],
)  # fmt: skip
def test_tokens_are_estimated(
    body: dict[str, Any], changes: ParameterOverrides, tokens: tuple[int, int]
) -> None:
    assert estimate_tokens(chat_call(**body), CHEAP, changes) == tokens


def test_claim_and_length_guard_count_equal_tokens() -> None:
    text = "日本語の文章" * 40

    assert estimate_tokens(chat_call(prompt=text), CHEAP) == (240, ASSUMED_TOKENS)
    assert [bool(Length(tokens=maximum).find(text)) for maximum in (239, 240)] == [True, False]


def test_embeddings_claim_no_output() -> None:
    call = build_sample_call({"model": "m", "input": "x" * 40}, {}, CALL_TIME, "/v1/embeddings")

    assert estimate_tokens(call, CHEAP) == (10, 0)


def test_money_claims_the_most_expensive_target() -> None:
    bounds = (ScopedLimit(REQUESTS), ScopedLimit(TOKENS), ScopedLimit(MONEY), ScopedLimit(AT_ONCE))

    claims = estimate_claims(plan(*bounds), chat_call(prompt="x" * 40, max_tokens=20))

    assert [claim.amount for claim in claims] == [1, 30, 10 * 5000 + 20 * 10_000, 1]


def test_unpriced_target_claims_no_money() -> None:
    legs = (ModelCall("m", (Target(UP, "m"),)),)

    assert [
        c.amount
        for c in estimate_claims(plan(ScopedLimit(MONEY), model_calls=legs), chat_call(prompt="x"))
    ] == [0]


@for_each(
    ("per", "scope"),
    [
        ((), ""),
        (("key",), "key:widget"),
        (("deployment", "key"), "deployment:chat|key:widget"),
        (("tag.team",), "tag.team:support"),
        (("tag.env",), "tag.env:"),
        (("user",), "user:someone"),
        (("model",), "model:cheap"),
    ],
)
def test_counter_is_named_by_scope(per: tuple[str, ...], scope: str) -> None:
    [claim] = estimate_claims(
        plan(ScopedLimit(REQUESTS, per)), chat_call(prompt="x", user="someone")
    )

    assert claim.scope == scope


def test_calls_sharing_a_plan_claim_their_own_amounts() -> None:
    legs = (ModelCall("a", (CHEAP,)), ModelCall("b", (DEAR,)))
    per = ((), ("key", "user"), ("user", "model"), ("model",), ("tag.team",))
    bounds = [ScopedLimit(limit, item) for limit in (REQUESTS, TOKENS, MONEY) for item in per]
    shared = plan(*bounds, model_calls=legs)
    calls = [
        chat_call(prompt="x" * 40 * n, max_tokens=n, user=name) for n, name in enumerate("aba", 1)
    ]

    for call in calls:
        assert estimate_claims(shared, call) == estimate_claims(
            plan(*bounds, model_calls=legs), call
        )
    assert len({estimate_claims(shared, call) for call in calls}) == len(calls)


def test_model_list_claims_a_sum_or_one_claim_per_model() -> None:
    legs = (ModelCall("a", (CHEAP,)), ModelCall("b", (DEAR,)), ModelCall("a", (CHEAP,)))
    bounds = (ScopedLimit(TOKENS), ScopedLimit(TOKENS, ("model",)))

    claims = estimate_claims(
        plan(*bounds, model_calls=legs), chat_call(prompt="x" * 40, max_tokens=20)
    )

    assert [(claim.scope, claim.amount) for claim in claims] == [
        ("", 90),
        ("model:cheap", 60),
        ("model:dear", 30),
    ]


def record_of(call: Call, *, price: bool = True) -> Record:
    record = Record(TraceIds("", "", ""), 0.0, CALL_TIME, lambda: 0.0)
    record.call = call
    attempt = record.start_attempt(CHEAP if price else Target(UP, "m"), 0)
    attempt.response_at, attempt.finished = 0.0, True
    _, attempt.max_output_tokens = estimate_tokens(call, attempt.target) or (0, 0)
    record.use_attempt(0, attempt)
    record.meter_frame(whole_frame(legacy_completion()))
    return record


def test_hidden_output_requires_reasoning_or_no_stream() -> None:
    call = chat_call(prompt="x" * 40, max_tokens=20, n=3, stream=True)
    [attempt] = record_of(call).attempts
    attempt.meter = Meter()
    attempt.sent_at, attempt.ended = 100.0, 103.5
    hidden = HiddenOutput(3.5, responses=3, max_tokens=60)

    assert estimate_hidden_output(plan(), call, attempt) == NOTHING_HIDDEN
    for options in ({"reasoning_effort": "low"}, {"thinking_budget": 9}, {"stream": False}):
        other_call = chat_call(**{**call.body, "stream": True, **options})
        assert estimate_hidden_output(plan(), other_call, attempt) == hidden
    multimodel = replace(UP, dialect="multimodel")  # never streams
    for target in (replace(CHEAP, model="o3-mini"), replace(CHEAP, upstream=multimodel)):
        attempt.target = target
        assert estimate_hidden_output(plan(), call, attempt) == hidden
    attempt.target = CHEAP
    details = {"reasoning_tokens": 1}
    attempt.meter.set_reported_usage(
        read_chat_usage(usage(5, 3) | {"completion_tokens_details": details})
    )
    assert estimate_hidden_output(plan(), call, attempt) == hidden
    [frame] = stream_frames(legacy_events("Hi")[0], family="completions")
    attempt.meter.feed(frame, 102.0)
    assert estimate_hidden_output(plan(), call, attempt) == hidden._replace(seconds=2.0)


def test_actual_usage_follows_the_record() -> None:
    call = chat_call(prompt="x" * 40, max_tokens=20)
    bounds = (ScopedLimit(REQUESTS), ScopedLimit(TOKENS), ScopedLimit(MONEY), ScopedLimit(AT_ONCE))
    claims = estimate_claims(plan(*bounds), call)

    assert list_actual_or_claimed_usage(claims, record_of(call)) == [1, 8, 5000 + 3 * 2000, 0]


def test_unknown_cost_settles_at_the_estimate() -> None:
    call = chat_call(prompt="x" * 40, max_tokens=20)
    claims = estimate_claims(plan(ScopedLimit(MONEY)), call)

    assert list_actual_or_claimed_usage(claims, record_of(call, price=False)) == [claims[0].amount]


@pytest.mark.parametrize("spend", [0, 1000], ids=["alone", "beside more than was claimed"])
def test_unknown_usage_settles_at_the_claim(spend: int) -> None:
    call = chat_call(prompt="x" * 40, max_tokens=20)
    claims = estimate_claims(
        plan(ScopedLimit(TOKENS), ScopedLimit(MONEY), ScopedLimit(AT_ONCE)), call
    )
    record = record_of(call)
    record.attempts[0].meter.set_reported_usage(read_chat_usage(usage(spend, 0)))
    silent = record.start_attempt(DEAR, 0, "fallback")
    silent.meter = Meter(estimates=False, unreported="unknown")
    silent.response_at, silent.finished = record.now(), True

    tokens, money = (claim.amount for claim in claims[:2])
    cost = record.billing.bills[0].cost or 0
    assert list_actual_or_claimed_usage(claims, record) == [max(tokens, spend), max(money, cost), 0]
    assert (spend > tokens, cost > money) == (bool(spend), bool(spend))


PLAIN = Price(Decimal(10), Decimal(20))


def price_of(**prices: Decimal) -> Price:
    """Return a price of text with additional prices."""
    return Price(PLAIN.input, PLAIN.output, **prices)  # type: ignore[arg-type]  # names of prices


OWN_VALUE = ("cached_input", "cache_write", "reasoning", "audio_input", "audio_output")
WORDS = {"role": "user", "content": "x" * 400}
AUDIO_PART = {"type": "input_audio", "input_audio": {"data": "x" * 400, "format": "wav"}}
FILED = {"type": "file", "file": {"file_data": "data:audio/wav;base64," + "x" * 400}}
ASKS: dict[str, tuple[dict[str, Any], frozenset[str]]] = {
    "text": ({"messages": [WORDS]}, frozenset()),
    "an answer in audio":
        ({"messages": [WORDS], "modalities": ["text", "audio"], "audio": {"voice": "a"}},
        frozenset({"audio_output"})),
    "a question in audio": ({"messages": [WORDS, {"role": "user", "content": [AUDIO_PART]}]},
        frozenset({"audio_input"})),
    "a file": ({"messages": [{"role": "user", "content": [FILED]}]}, frozenset({"audio_input"})),
    "an answer before in audio":
        ({"messages": [{"role": "assistant", "audio": {"id": "a"}}, WORDS]},
        frozenset({"audio_input"})),
    "both": ({"messages": [{"role": "user", "content": [AUDIO_PART]}], "modalities": ["audio"]},
        frozenset({"audio_input", "audio_output"})),
}  # fmt: skip
AUDIO = frozenset({"audio_input", "audio_output"})


def claimed(price: Price, body: dict[str, Any], model: str = "m") -> int:
    call = build_sample_call(
        {"model": "m", "max_tokens": 40, **body}, {}, CALL_TIME, "/v1/chat/completions"
    )
    legs = (
        ModelCall(
            "m", (Target(replace(UP, accepts=frozenset({"audio.id"})), model, prices=(price,)),)
        ),
    )
    [claim] = estimate_claims(plan(ScopedLimit(MONEY), model_calls=legs), call)
    return claim.amount


def test_input_and_output_cover_every_token_type() -> None:
    assert [field.name for field in fields(Tokens)] == [*BILLED_COUNTS, *IMAGE_COUNTS]
    assert {*OWN_VALUE, "input", "output"} == set(TOKEN_TYPES)


RATES = st.none() | st.decimals(0, 4000, places=6)
TIERS = st.builds(Tier, st.integers(0, 60), *[RATES] * 4)
EVERY_PRICE = st.builds(Price, *[RATES] * 7, st.lists(TIERS, max_size=3).map(tuple))
AMOUNTS = st.integers(0, 60)
MIXES = st.builds(Tokens, *[AMOUNTS] * len(TOKEN_TYPES))


@given(EVERY_PRICE, MIXES, AMOUNTS, st.sampled_from(list(ASKS)))
def test_claim_covers_every_mix_of_tokens(
    price: Price, tokens: Tokens, unused: int, asks: str
) -> None:
    """A call uses at most its estimated tokens, of any types that its request allows."""
    body, audio = ASKS[asks]
    tokens = replace(tokens, **dict.fromkeys(AUDIO - audio, 0))
    prompt, answer = tokens.prompt_total + unused, tokens.completion_total + unused

    claim, cost = estimate_max_cost(price, prompt, answer, "m", body), price.compute_cost(tokens)

    assert claim is None or cost is None or claim >= cost


@given(EVERY_PRICE, AMOUNTS, AMOUNTS, st.sampled_from(list(ASKS)))
def test_claim_is_the_most_expensive_mix(price: Price, prompt: int, answer: int, asks: str) -> None:
    body, audio = ASKS[asks]
    side = {"input", "cached_input", "cache_write"} | (audio & {"audio_input"})
    other_names = {"output", "reasoning"} | (audio & {"audio_output"})
    reached = [tier for tier in price.tiers if prompt > tier.above]
    item = [replace(price, tiers=()), *[replace(price, tiers=(tier,)) for tier in reached]]
    costs = [
        single_price.compute_cost(Tokens(**{request: prompt, answered: answer}))
        for single_price, request, answered in product(item, side, other_names)
    ]
    of_text = price.compute_cost(Tokens(input=prompt, output=answer))

    maximum = estimate_max_cost(price, prompt, answer, "m", body)

    assert maximum == (None if of_text is None else max(c for c in costs if c is not None))


@pytest.mark.parametrize("name", ["audio_input", "audio_output"])
def test_text_call_claims_no_audio(name: str) -> None:
    dear = price_of(**{name: Decimal(800)})

    assert claimed(dear, ASKS["text"][0]) == claimed(PLAIN, ASKS["text"][0])


def test_one_hour_cache_write_is_claimed_at_its_price() -> None:
    dear, body = replace(PLAIN, cache_write_1h=Decimal(800)), ASKS["text"][0]
    stored = {
        "type": "text",
        "text": "x" * 400,
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
    }
    request = {"messages": [{"role": "user", "content": [stored]}]}
    written = Tokens(cache_write=50, cache_write_1h=50, output=40)

    assert claimed(dear, body) == claimed(PLAIN, body)
    assert claimed(dear, request) >= (dear.compute_cost(written) or 0) > claimed(PLAIN, request)


def test_reasoning_is_claimed_only_if_possible() -> None:
    dear, body = replace(PLAIN, reasoning=Decimal(800)), ASKS["text"][0]

    assert claimed(dear, body, "m-non-thinking") == claimed(PLAIN, body)
    assert claimed(dear, {**body, "reasoning_effort": "low"}, "m-non-thinking") > 2 * claimed(
        PLAIN, body
    )
