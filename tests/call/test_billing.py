"""Tokens and cost of a call with several attempts."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from proxy.call.summary import summarize
from proxy.money.usage import Price
from proxy.types import Call, Target
from tests.call.test_record import HEAD, PRICE, UP, record, used_attempt
from tests.doubles import legacy
from tests.frames import whole_frame

PRICED = Target(UP, "m", prices=(PRICE,))


def test_refused_attempt_costs_nothing() -> None:
    entry = record()
    entry.start_attempt(PRICED, 0).error = "upstream_unavailable"
    used_attempt(entry, PRICE)
    entry.meter(whole_frame(legacy()))

    assert entry.billing.tokens.total == 8
    assert entry.billing.cost == 150 * 5 + 600 * 3


def test_failed_response_is_estimated_and_lost() -> None:
    entry = record()
    entry.call = Call(HEAD, {"prompt": "x" * 40})
    entry.start_attempt(PRICED, 0).response_at = 1.0
    used_attempt(entry, PRICE)
    entry.meter(whole_frame(legacy()))

    attempts = summarize(entry).attempts
    bills = [(result.served, bill.usage.tokens.total) for _, result, bill in attempts if bill]
    assert bills == [(False, 10), (True, 8)]
    assert summarize(entry).lost_cost == 150 * 10
    assert entry.billing.cost == 150 * 10 + 150 * 5 + 600 * 3


def test_lost_hedge_is_billed() -> None:
    entry = record()
    entry.call = Call(HEAD, {"prompt": "x" * 40})
    slow = entry.start_attempt(PRICED, 0)
    slow.sent_at, slow.error = 1.0, "cancelled"
    used_attempt(entry, PRICE)
    entry.meter(whole_frame(legacy()))

    assert slow.lost_hedge
    assert summarize(entry).lost_cost == 150 * 10


def test_unsent_attempt_costs_nothing() -> None:
    entry = record()
    entry.start_attempt(PRICED, 0)

    assert (entry.billing.cost, entry.billing.source) == (0, "none")


def test_unknown_price_makes_cost_unknown() -> None:
    entry = record()
    for model_call, prices in enumerate([(PRICE,), ()]):
        used_attempt(entry, *prices, model_call=model_call)
        entry.meter(whole_frame(legacy(), model_call=model_call))

    assert entry.billing.cost is None
    assert entry.billing.tokens.total == 16


def test_missing_usage_is_estimated() -> None:
    entry = record()
    entry.call = Call(HEAD, {"prompt": "x" * 40})
    used_attempt(entry, PRICE)
    entry.meter(whole_frame({"choices": [{"text": "y" * 9}]}))

    assert entry.billing.source == "partial_estimate"
    assert (entry.billing.tokens.input, entry.billing.tokens.output) == (10, 3)


def test_price_applies_from_its_day() -> None:
    entry = record()
    later = Price(input=Decimal(100), output=Decimal(100), since=date(2026, 1, 2))
    used_attempt(entry, PRICE, later)
    entry.meter(whole_frame(legacy()))

    assert entry.billing.cost == 150 * 5 + 600 * 3
