"""One call's account: outcomes, bills, and what stays unknown."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from proxy.attempts import Attempt
from proxy.errors import (
    BadField,
    ClientGone,
    GuardUnavailable,
    LimitExceeded,
    LimitStoreUnavailable,
    Overloaded,
    Stopping,
    UpstreamInvalid,
    UpstreamTimeout,
)
from proxy.record import Record, TraceIds
from proxy.types import Call, Chunk, Parent, RequestHead, Target, Upstream
from proxy.usage import Price
from proxy.words import MAX_NAME, MAX_WORDS
from tests.doubles import legacy

PRICE = Price(input=Decimal("0.15"), output=Decimal("0.6"))
UP = Upstream("openai", "openai", "http://127.0.0.1:9")
HEAD = RequestHead("openai", "completions", "/v1/completions", "req_1")


def record() -> Record:
    clock = iter(range(100))
    ids = TraceIds("a" * 32, "b" * 16, "c" * 16)
    return Record(ids, 0.0, datetime(2026, 1, 1, tzinfo=UTC), lambda: float(next(clock)))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "success"),
        (BadField("n", "x"), "client_error"),
        (ClientGone(), "client_abort"),
        (UpstreamTimeout("idle"), "timeout"),
        (UpstreamInvalid("x"), "upstream_error"),
        (Stopping(), "proxy_error"),
        (LimitExceeded("x", "calls", "requests", 1.0), "limited"),
        (LimitStoreUnavailable("calls", 1.0), "proxy_error"),
        (Overloaded(), "proxy_error"),
        (GuardUnavailable("x", guard="g", kind="k"), "blocked"),
    ],
)
def test_every_end_has_its_word(error: Any, outcome: str) -> None:
    told = record()
    told.error = error

    assert told.outcome == outcome


def test_a_bug_is_the_proxys_own() -> None:
    told = record()
    told.bug = True

    assert told.outcome == "proxy_error"


def test_a_client_is_told_each_thing_once_and_of_a_few_things_alone() -> None:
    told = record()
    told.warn(["seed dropped", "seed dropped", "x" * 5_000])
    told.warn(f"{number} dropped" for number in range(1000))

    assert told.warnings[:2] == ["seed dropped", "x" * MAX_NAME]
    assert len(told.warnings) == MAX_WORDS


def begun(told: Record, *prices: Price, leg: int = 0) -> Attempt:
    """An attempt whose answer is the one that is used."""
    attempt = told.attempt(Target(UP, "m", prices=prices), leg, "1" * 16)
    attempt.sent = attempt.began = 1.0
    attempt.finished = True
    told.serve(leg, attempt)
    return attempt


def test_what_an_upstream_refused_costs_nothing_beside_the_answer_that_is_used() -> None:
    told = record()
    told.attempt(Target(UP, "m", prices=(PRICE,)), 0, "1" * 16).error = "upstream_unavailable"
    begun(told, PRICE)
    told.account(Chunk(legacy()))

    assert told.tokens.total == 8
    assert told.cost == 150 * 5 + 600 * 3


def test_an_answer_that_broke_before_its_first_piece_is_estimated_and_lost() -> None:
    told = record()
    told.call = Call(HEAD, {"prompt": "x" * 40})
    told.attempt(Target(UP, "m", prices=(PRICE,)), 0, "1" * 16).began = 1.0
    begun(told, PRICE)
    told.account(Chunk(legacy()))

    assert [(bill.fate.served, bill.usage.tokens.total) for bill in told.bills()] == [
        (False, 10),
        (True, 8),
    ]
    assert told.lost == 150 * 10
    assert told.cost == 150 * 10 + 150 * 5 + 600 * 3


def test_the_loser_of_a_hedge_is_booked_though_it_had_not_begun() -> None:
    told = record()
    told.call = Call(HEAD, {"prompt": "x" * 40})
    slow = told.attempt(Target(UP, "m", prices=(PRICE,)), 0, "1" * 16)
    slow.sent, slow.error = 1.0, "cancelled"
    begun(told, PRICE)
    told.account(Chunk(legacy()))

    assert slow.lost
    assert told.lost == 150 * 10


def test_an_upstream_that_never_accepted_costs_nothing() -> None:
    told = record()
    told.attempt(Target(UP, "m", prices=(PRICE,)), 0, "1" * 16)

    assert (told.cost, told.source) == (0, "none")


def test_one_unknown_price_makes_the_cost_unknown() -> None:
    told = record()
    for leg, prices in enumerate([(PRICE,), ()]):
        begun(told, *prices, leg=leg)
        told.account(Chunk(legacy(), leg=leg))

    assert told.cost is None
    assert told.tokens.total == 16


def test_what_was_not_reported_is_estimated_from_text_and_marked() -> None:
    told = record()
    told.call = Call(HEAD, {"prompt": "x" * 40})
    begun(told, PRICE)
    told.account(Chunk({"choices": [{"text": "y" * 9}]}))

    assert told.source == "partial_estimate"
    assert (told.tokens.input, told.tokens.output) == (10, 3)


def test_a_price_counts_from_its_day_on() -> None:
    told = record()
    later = Price(input=Decimal(100), output=Decimal(100), since=date(2026, 1, 2))
    begun(told, PRICE, later)
    told.account(Chunk(legacy()))

    assert told.cost == 150 * 5 + 600 * 3


def test_a_caller_in_a_trace_is_joined() -> None:
    told = record()

    told.join(RequestHead(**{**_fields(HEAD), "parent": Parent("f" * 32, "e" * 16)}))

    assert told.ids.trace_id == "f" * 32
    assert told.ids.server_span == "b" * 16


def _fields(head: RequestHead) -> dict[str, Any]:
    return {name: getattr(head, name) for name in head.__dataclass_fields__}


def test_only_what_a_guard_had_asked_again_is_its_loss() -> None:
    told = record()
    failed, beaten, cancelled = (told.attempt(Target(UP, "m"), 0, "1" * 16) for _ in range(3))
    other_leg = told.attempt(Target(UP, "m"), 1, "1" * 16)
    failed.error, beaten.error, beaten.lost = "upstream_idle_timeout", "cancelled", True
    begun(told, PRICE)
    cancelled.error = other_leg.error = "cancelled"

    told.ask_again()
    begun(told, PRICE)
    told.attempts[-1].error = "upstream_invalid_response"
    begun(told, PRICE).why = "retry"

    assert [(fate.use, fate.loss) for _, fate, _ in told.billed()] == [
        ("abandoned", "upstream_broke"),
        ("abandoned", "hedge"),
        ("blocked", "guard"),
        ("blocked", "guard"),
        ("blocked", "guard"),
        ("retried", "retry"),
        ("useful", None),
    ]
