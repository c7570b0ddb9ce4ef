"""The bills of a call: what was used and what it costs, and what stays unknown."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from proxy.call.summary import summarize
from proxy.money.usage import Price
from proxy.types import Call, Target
from tests.call.test_record import HEAD, PRICE, UP, begun, record
from tests.doubles import legacy
from tests.frames import whole_frame


def test_what_an_upstream_refused_costs_nothing_beside_the_answer_that_is_used() -> None:
    event = record()
    event.start_attempt(
        Target(UP, "m", prices=(PRICE,)), 0, "1" * 16
    ).error = "upstream_unavailable"
    begun(event, PRICE)
    event.meter(whole_frame(legacy()))

    assert event.billing.tokens.total == 8
    assert event.billing.cost == 150 * 5 + 600 * 3


def test_an_answer_that_broke_before_its_first_piece_is_estimated_and_lost() -> None:
    event = record()
    event.call = Call(HEAD, {"prompt": "x" * 40})
    event.start_attempt(Target(UP, "m", prices=(PRICE,)), 0, "1" * 16).response_at = 1.0
    begun(event, PRICE)
    event.meter(whole_frame(legacy()))

    assert [
        (fate.served, bill.usage.tokens.total)
        for _, fate, bill in summarize(event).attempts
        if bill
    ] == [(False, 10), (True, 8)]
    assert summarize(event).lost_cost == 150 * 10
    assert event.billing.cost == 150 * 10 + 150 * 5 + 600 * 3


def test_the_loser_of_a_hedge_is_booked_though_it_had_not_begun() -> None:
    event = record()
    event.call = Call(HEAD, {"prompt": "x" * 40})
    slow = event.start_attempt(Target(UP, "m", prices=(PRICE,)), 0, "1" * 16)
    slow.sent_at, slow.error = 1.0, "cancelled"
    begun(event, PRICE)
    event.meter(whole_frame(legacy()))

    assert slow.lost_hedge
    assert summarize(event).lost_cost == 150 * 10


def test_an_upstream_that_never_accepted_costs_nothing() -> None:
    event = record()
    event.start_attempt(Target(UP, "m", prices=(PRICE,)), 0, "1" * 16)

    assert (event.billing.cost, event.billing.source) == (0, "none")


def test_one_unknown_price_makes_the_cost_unknown() -> None:
    event = record()
    for leg, prices in enumerate([(PRICE,), ()]):
        begun(event, *prices, leg=leg)
        event.meter(whole_frame(legacy(), model_call=leg))

    assert event.billing.cost is None
    assert event.billing.tokens.total == 16


def test_what_was_not_reported_is_estimated_from_text_and_marked() -> None:
    event = record()
    event.call = Call(HEAD, {"prompt": "x" * 40})
    begun(event, PRICE)
    event.meter(whole_frame({"choices": [{"text": "y" * 9}]}))

    assert event.billing.source == "partial_estimate"
    assert (event.billing.tokens.input, event.billing.tokens.output) == (10, 3)


def test_a_price_counts_from_its_day_on() -> None:
    event = record()
    later = Price(input=Decimal(100), output=Decimal(100), since=date(2026, 1, 2))
    begun(event, PRICE, later)
    event.meter(whole_frame(legacy()))

    assert event.billing.cost == 150 * 5 + 600 * 3
