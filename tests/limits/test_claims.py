"""What calls claim beforehand, whose counters they claim, and what they turn out to have used."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from proxy.call.meter import Meter
from proxy.call.record import Record, TraceIds
from proxy.fields.token_bounds import ASSUMED_TOKENS
from proxy.guards.kinds.length import Length
from proxy.limits.claims import actual_usage, estimate_claims, estimate_tokens, hidden_output
from proxy.limits.kinds import KINDS
from proxy.money.estimate import NOTHING_HIDDEN, HiddenOutput
from proxy.money.usage import Price, read_usage
from proxy.policy.review.sample_call import sample_call
from proxy.types import Call, ModelCall, ParameterOverrides, Plan, ScopedLimit, Target, Upstream
from proxy.types.limit import Limit
from proxy.types.windows import Calendar
from tests.doubles import legacy, legacy_events, usage
from tests.for_each import for_each
from tests.frames import stream_frames, whole_frame

UP = Upstream("up", "openai", "http://127.0.0.1:9")
CHEAP, DEAR = (
    Target(UP, name, prices=(Price(Decimal(price), Decimal(price) * 2),))
    for name, price in (("cheap", 1), ("dear", 5))
)
AT = datetime(2026, 1, 1, tzinfo=UTC)
REQUESTS, TOKENS = Limit("r", KINDS["requests"], 5, 60), Limit("t", KINDS["tokens"], 5000, 60)
MONEY = Limit("m", KINDS["usd"], 1_000_000, Calendar("month"))
AT_ONCE = Limit("c", KINDS["concurrency"], 2)


def asked(**body: Any) -> Call:
    return sample_call({"model": "m", **body}, {}, AT)


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
        (
            {"prompt": "x" * 40, "max_tokens": 7, "n": 2, "best_of": 5},
            ParameterOverrides(),
            (10, 35),
        ),
        ({"prompt": ["x" * 20, "y" * 20], "max_tokens": 7}, ParameterOverrides(), (10, 14)),
        ({"prompt": [1, 2, 3], "max_tokens": 7}, ParameterOverrides(), (3, 7)),
        ({"prompt": [[1, 2], [3]], "max_tokens": 7}, ParameterOverrides(), (3, 14)),
        (
            {"messages": [{"role": "user", "content": "x" * 36}], "max_completion_tokens": 7},
            ParameterOverrides(),
            (17, 7),
        ),
        (
            {"prompt": "x" * 40, "guided_json": {"title": "y" * 35}},
            ParameterOverrides(),
            (22, ASSUMED_TOKENS),
        ),
        ({"prompt": "注文" * 120, "max_tokens": 7}, ParameterOverrides(), (240, 7)),
    ],
)
def test_token_estimates(
    body: dict[str, Any], changes: ParameterOverrides, tokens: tuple[int, int]
) -> None:
    assert estimate_tokens(asked(**body), CHEAP, changes) == tokens


def test_a_claim_and_the_length_guard_count_a_text_alike() -> None:
    text = "日本語の文章" * 40

    assert estimate_tokens(asked(prompt=text), CHEAP) == (240, ASSUMED_TOKENS)
    assert [bool(Length(tokens=maximum).find(text)) for maximum in (239, 240)] == [True, False]


def test_embeddings_have_no_answer_to_estimate() -> None:
    call = sample_call({"model": "m", "input": "x" * 40}, {}, AT, "/v1/embeddings")

    assert estimate_tokens(call, CHEAP) == (10, 0)


def test_each_kind_claims_its_own_amount_and_money_that_of_the_dearest_target() -> None:
    bounds = (ScopedLimit(REQUESTS), ScopedLimit(TOKENS), ScopedLimit(MONEY), ScopedLimit(AT_ONCE))

    claims = estimate_claims(plan(*bounds), asked(prompt="x" * 40, max_tokens=20))

    assert [claim.amount for claim in claims] == [1, 30, 10 * 5000 + 20 * 10_000, 1]


def test_a_target_without_a_price_claims_no_money() -> None:
    legs = (ModelCall("m", (Target(UP, "m"),)),)

    assert [
        c.amount
        for c in estimate_claims(plan(ScopedLimit(MONEY), model_calls=legs), asked(prompt="x"))
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
def test_a_counter_is_named_by_what_its_limit_is_per(per: tuple[str, ...], scope: str) -> None:
    [claim] = estimate_claims(plan(ScopedLimit(REQUESTS, per)), asked(prompt="x", user="someone"))

    assert claim.scope == scope


def test_calls_that_share_a_plan_claim_what_each_would_alone() -> None:
    legs = (ModelCall("a", (CHEAP,)), ModelCall("b", (DEAR,)))
    per = ((), ("key", "user"), ("user", "model"), ("model",), ("tag.team",))
    bounds = [ScopedLimit(limit, item) for limit in (REQUESTS, TOKENS, MONEY) for item in per]
    shared = plan(*bounds, model_calls=legs)
    calls = [asked(prompt="x" * 40 * n, max_tokens=n, user=name) for n, name in enumerate("aba", 1)]

    for call in calls:
        assert estimate_claims(shared, call) == estimate_claims(
            plan(*bounds, model_calls=legs), call
        )
    assert len({estimate_claims(shared, call) for call in calls}) == len(calls)


def test_several_models_are_counted_together_but_by_a_limit_per_model() -> None:
    legs = (ModelCall("a", (CHEAP,)), ModelCall("b", (DEAR,)), ModelCall("a", (CHEAP,)))
    bounds = (ScopedLimit(TOKENS), ScopedLimit(TOKENS, ("model",)))

    claims = estimate_claims(plan(*bounds, model_calls=legs), asked(prompt="x" * 40, max_tokens=20))

    assert [(claim.scope, claim.amount) for claim in claims] == [
        ("", 90),
        ("model:cheap", 60),
        ("model:dear", 30),
    ]


def recorded(call: Call, *, price: bool = True) -> Record:
    record = Record(TraceIds("", "", ""), 0.0, AT, lambda: 0.0)
    record.call = call
    attempt = record.start_attempt(CHEAP if price else Target(UP, "m"), 0, "")
    attempt.response_at, attempt.finished = 0.0, True
    _, attempt.most_answered = estimate_tokens(call, attempt.target) or (0, 0)
    record.use_attempt(0, attempt)
    record.meter(whole_frame(legacy()))
    return record


def test_only_a_stream_of_a_model_that_does_not_reason_hides_nothing() -> None:
    call = asked(prompt="x" * 40, max_tokens=20, n=3, stream=True)
    [attempt] = recorded(call).attempts
    attempt.meter = Meter()
    attempt.sent_at, attempt.ended = 100.0, 103.5
    hidden = HiddenOutput(3.5, answers=3, most=60)

    assert hidden_output(plan(), call, attempt) == NOTHING_HIDDEN
    for options in ({"reasoning_effort": "low"}, {"thinking_budget": 9}, {"stream": False}):
        other_call = asked(**{**call.body, "stream": True, **options})
        assert hidden_output(plan(), other_call, attempt) == hidden
    multimodel = replace(UP, dialect="multimodel")  # never streams
    for target in (replace(CHEAP, model="o3-mini"), replace(CHEAP, upstream=multimodel)):
        attempt.target = target
        assert hidden_output(plan(), call, attempt) == hidden
    attempt.target = CHEAP
    details = {"reasoning_tokens": 1}
    attempt.meter.report(read_usage(usage(5, 3) | {"completion_tokens_details": details}))
    assert hidden_output(plan(), call, attempt) == hidden
    [frame] = stream_frames(legacy_events("Hi")[0], family="completions")
    attempt.meter.feed(frame, 102.0)
    assert hidden_output(plan(), call, attempt) == hidden._replace(seconds=2.0)


def test_what_was_used_is_known_in_the_end() -> None:
    call = asked(prompt="x" * 40, max_tokens=20)
    bounds = (ScopedLimit(REQUESTS), ScopedLimit(TOKENS), ScopedLimit(MONEY), ScopedLimit(AT_ONCE))
    claims = estimate_claims(plan(*bounds), call)

    assert actual_usage(claims, recorded(call)) == [1, 8, 5000 + 3 * 2000, 0]


def test_where_a_cost_stays_unknown_its_estimate_stands() -> None:
    call = asked(prompt="x" * 40, max_tokens=20)
    claims = estimate_claims(plan(ScopedLimit(MONEY)), call)

    assert actual_usage(claims, recorded(call, price=False)) == [claims[0].amount]


@pytest.mark.parametrize("spend", [0, 1000], ids=["alone", "beside more than was claimed"])
def test_where_usage_is_unknown_claims_stand_and_what_is_known_counts(spend: int) -> None:
    call = asked(prompt="x" * 40, max_tokens=20)
    claims = estimate_claims(
        plan(ScopedLimit(TOKENS), ScopedLimit(MONEY), ScopedLimit(AT_ONCE)), call
    )
    record = recorded(call)
    record.attempts[0].meter.report(read_usage(usage(spend, 0)))
    silent = record.start_attempt(DEAR, 0, "s2", "fallback")
    silent.meter = Meter(estimates=False, unreported="unknown")
    silent.response_at, silent.finished = record.now(), True

    tokens, money = (claim.amount for claim in claims[:2])
    cost = record.billing.bills[0].cost or 0
    assert actual_usage(claims, record) == [max(tokens, spend), max(money, cost), 0]
    assert (spend > tokens, cost > money) == (bool(spend), bool(spend))
