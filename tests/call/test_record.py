"""Record of a call: outcomes, warnings, attempts, bills and summary."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, get_args

import pytest

from proxy import errors
from proxy.call.attempts import (
    LOSS_OF_OUTCOME,
    TIMED_OUT,
    Attempt,
    CallOutcome,
    LossReason,
    SpendUse,
    get_loss_reason,
)
from proxy.call.record import Record, TraceIds, new_record
from proxy.call.summary import summarize
from proxy.errors.words import MAX_NAME, MAX_WORDS, shorten
from proxy.money.usage import Price, Tokens
from proxy.runtime.background import SideTasks
from proxy.types import Call, RequestHead, Target, TraceContext, Upstream
from proxy.types.guard import GuardResult
from tests.doubles import legacy_completion
from tests.for_each import for_each
from tests.frames import whole_frame

PRICE = Price(input=Decimal("0.15"), output=Decimal("0.6"))
UP = Upstream("openai", "openai", "http://127.0.0.1:9")
HEAD = RequestHead("openai", "completions", "/v1/completions", "req_1")


def record() -> Record:
    clock = iter(range(100))
    ids = TraceIds("a" * 32, "b" * 16, "c" * 16)
    return Record(ids, 0.0, datetime(2026, 1, 1, tzinfo=UTC), lambda: float(next(clock)))


@for_each(
    ("error", "outcome"),
    [
        (None, "success"),
        (errors.InvalidField("n", "x"), "client_error"),
        (errors.ClientDisconnected(), "client_abort"),
        (errors.UpstreamTimeout("idle"), "timeout"),
        (errors.UpstreamInvalid("x"), "upstream_error"),
        (errors.UpstreamUnavailable("x", upstream_status=503), "upstream_error"),
        (errors.UpstreamForbids("x", upstream_status=402), "upstream_error"),
        (errors.UpstreamNotFound("x", upstream_status=404), "upstream_error"),
        (errors.UpstreamRejected("x", upstream_status=400), "client_error"),
        (errors.ShuttingDown(), "proxy_error"),
        (errors.LimitExceeded("x", "calls", "requests", 1.0), "limited"),
        (errors.LimitStoreUnavailable("calls", 1.0), "proxy_error"),
        (errors.Overloaded(), "proxy_error"),
        (errors.GuardUnavailable("x", guard="g", kind="k"), "blocked"),
    ],
)
def test_each_error_has_an_outcome(error: Any, outcome: str) -> None:
    entry = record()
    entry.error = error
    assert entry.outcome == outcome

    entry.is_internal_error = True
    assert entry.outcome == "proxy_error"


def test_warnings_are_unique_and_bounded() -> None:
    entry = record()
    entry.add_warnings(["seed dropped", "seed dropped", "x" * 5_000])
    entry.add_warnings(f"{number} dropped" for number in range(1000))

    assert entry.warnings[:2] == ["seed dropped", "x" * MAX_NAME]
    assert len(entry.warnings) == MAX_WORDS


def used_attempt(record: Record, *prices: Price, model_call: int = 0) -> Attempt:
    attempt = record.start_attempt(Target(UP, "m", prices=prices), model_call)
    attempt.sent_at = attempt.response_at = 1.0
    attempt.finished = True
    record.use_attempt(model_call, attempt)
    return attempt


def test_trace_of_caller_is_continued() -> None:
    entry = record()

    entry.set_head(replace(HEAD, parent=TraceContext("f" * 32, "e" * 16)))

    assert entry.ids.trace_id == "f" * 32
    assert entry.ids.server_span == "b" * 16


def test_only_guard_retries_are_guard_losses() -> None:
    entry = record()
    failed, beaten, cancelled = (entry.start_attempt(Target(UP, "m"), 0) for _ in range(3))
    other_call = entry.start_attempt(Target(UP, "m"), 1)
    failed.error, beaten.error, beaten.lost_hedge = "upstream_idle_timeout", "cancelled", True
    used_attempt(entry, PRICE)
    cancelled.error = other_call.error = "cancelled"

    entry.start_guard_retry()
    used_attempt(entry, PRICE)
    entry.attempts[-1].error = "upstream_invalid_response"
    used_attempt(entry, PRICE).reason = "retry"

    assert [(result.use, result.loss) for _, result, _ in summarize(entry).attempts] == [
        ("abandoned", "upstream_broke"),
        ("abandoned", "hedge"),
        ("blocked", "guard"),
        ("blocked", "guard"),
        ("blocked", "guard"),
        ("retried", "retry"),
        ("useful", None),
    ]


@for_each(
    ("owner", "expected"),
    [("none", ["worked"]), ("room", ["worked"]), ("full", ["busy"]), ("failing", ["KeyError"])],
)
async def test_background_work_has_an_outcome(owner: str, expected: list[str]) -> None:
    ends: list[str] = []

    async def work() -> None:
        if owner == "failing":
            raise KeyError
        ends.append("worked")

    calls = record()
    async with SideTasks(max_tasks=1) as side_tasks:
        if owner == "full":
            _ = side_tasks.start(asyncio.sleep(0), calls.key)
        calls.side_tasks = None if owner == "none" else side_tasks
        await calls.run_in_background(work, ends.append)
        assert len(calls.pending) == (owner in ("room", "failing"))
        await asyncio.gather(*calls.pending)

    assert ends == expected


UNPRICED = Target(Upstream("up", "openai", "http://127.0.0.1:9"), "m")


def attempt(
    error: str | None = None, *, lost_hedge: bool = False, response_at: float | None = None
) -> Attempt:
    return Attempt(
        UNPRICED, 0, "1" * 16, 0.0, error=error, lost_hedge=lost_hedge, response_at=response_at
    )


@for_each(
    ("use", "result", "outcome", "reason"),
    [
        ("useful", attempt(), "success", None),
        ("blocked", attempt(), "blocked", "guard"),
        ("retried", attempt("upstream_unavailable"), "success", "retry"),
        ("abandoned", attempt("cancelled", lost_hedge=True), "success", "hedge"),
        ("abandoned", attempt("cancelled"), "client_abort", "client_left"),
        ("abandoned", attempt(), "client_abort", "client_left"),
        ("abandoned", attempt("upstream_unavailable"), "client_abort", "upstream_broke"),
        ("abandoned", attempt("request_timeout"), "client_error", "client_left"),
        ("abandoned", attempt("upstream_refused"), "client_error", None),
        ("abandoned", attempt("upstream_refused", response_at=2.0), "client_error", "refused"),
        ("abandoned", attempt("invalid_value"), "client_error", None),
        ("abandoned", attempt("guardrail_blocked"), "blocked", "guard"),
        ("abandoned", attempt("cancelled"), "upstream_error", "upstream_broke"),
        ("abandoned", attempt("cancelled"), "proxy_error", "stopped"),
        ("abandoned", attempt("cancelled"), "blocked", "guard"),
    ],
)
def test_loss_has_one_reason(
    use: SpendUse, result: Attempt, outcome: CallOutcome, reason: LossReason | None
) -> None:
    assert get_loss_reason(result, use, outcome) == reason


def test_each_outcome_has_a_loss_reason() -> None:
    assert set(LOSS_OF_OUTCOME) == set(get_args(CallOutcome))


def test_upstream_of_sent_attempt_has_worked() -> None:
    result = attempt()
    assert not result.has_upstream_worked
    result.error = "cancelled"
    assert not result.has_upstream_worked  # its request was not sent
    result.sent_at = 1.0
    assert result.has_upstream_worked
    for result.error in TIMED_OUT:
        assert result.has_upstream_worked
    result.error = "upstream_unavailable"
    assert not result.has_upstream_worked
    result.response_at = 2.0
    assert result.has_upstream_worked


PRICED = Target(UP, "m", prices=(PRICE,))


def test_refused_attempt_costs_nothing() -> None:
    entry = record()
    entry.start_attempt(PRICED, 0).error = "upstream_unavailable"
    used_attempt(entry, PRICE)
    entry.meter_frame(whole_frame(legacy_completion()))

    assert entry.billing.tokens.total == 8
    assert entry.billing.cost == 150 * 5 + 600 * 3


def test_failed_response_is_estimated_and_lost() -> None:
    entry = record()
    entry.call = Call(HEAD, {"prompt": "x" * 40})
    entry.start_attempt(PRICED, 0).response_at = 1.0
    used_attempt(entry, PRICE)
    entry.meter_frame(whole_frame(legacy_completion()))

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
    entry.meter_frame(whole_frame(legacy_completion()))

    assert slow.lost_hedge
    assert summarize(entry).lost_cost == 150 * 10


def test_unknown_price_makes_cost_unknown() -> None:
    entry = record()
    for model_call, prices in enumerate([(PRICE,), ()]):
        used_attempt(entry, *prices, model_call=model_call)
        entry.meter_frame(whole_frame(legacy_completion(), model_call=model_call))

    assert entry.billing.cost is None
    assert entry.billing.tokens.total == 16


def test_missing_usage_is_estimated() -> None:
    entry = record()
    entry.call = Call(HEAD, {"prompt": "x" * 40})
    used_attempt(entry, PRICE)
    entry.meter_frame(whole_frame({"choices": [{"text": "y" * 9}]}))

    assert entry.billing.usage_source == "partial_estimate"
    assert (entry.billing.tokens.input, entry.billing.tokens.output) == (10, 3)


def test_price_applies_from_its_day() -> None:
    entry = record()
    later = Price(input=Decimal(100), output=Decimal(100), since=date(2026, 1, 2))
    used_attempt(entry, PRICE, later)
    entry.meter_frame(whole_frame(legacy_completion()))

    assert entry.billing.cost == 150 * 5 + 600 * 3


TARGET = Target(Upstream("openai", "openai", "http://127.0.0.1:9"), "gpt-4o-mini")


def ended_record(*attempts: tuple[float, float], total: float) -> Record:
    record = replace(new_record(), started=100.0)
    for started_at, ended_at in attempts:
        attempt = record.start_attempt(TARGET, 0)
        attempt.started = attempt.response_at = 100 + started_at
        attempt.ended = 100 + ended_at
    record.ended = 100 + total
    return record


@pytest.mark.parametrize(
    ("attempts", "total", "overhead"),
    [((), 0.5, 0.5), (((0.1, 0.9),), 1.0, 0.2), (((0.1, 0.2), (0.2, 0.9)), 1.0, 0.2)],
)
def test_overhead_excludes_upstream_time(
    attempts: tuple[tuple[float, float], ...], total: float, overhead: float
) -> None:
    assert summarize(ended_record(*attempts, total=total)).overhead_s == pytest.approx(overhead)


def test_first_token_time_starts_at_request() -> None:
    record = ended_record((0.1, 0.9), total=1)
    record.use_attempt(0, record.attempts[0])
    record.attempts[0].meter.feed(whole_frame(legacy_completion()), 100.4)

    summary = summarize(record)
    assert summary.ttft_s == pytest.approx(0.4)
    assert summary.finish_reasons == ["stop"]
    assert summary.tokens == Tokens(input=5, output=3)


@pytest.mark.parametrize("attempts", [(), ((0.1, 0.9),), ((0.1, 0.2), (0.2, 0.9))])
def test_summary_covers_the_call(attempts: tuple[tuple[float, float], ...]) -> None:
    summary = summarize(ended_record(*attempts, total=1.0))

    assert [field.name for field in fields(summary) if not hasattr(summary, field.name)] == []


def test_unknown_finish_reasons_are_other() -> None:
    record = ended_record((0.0, 1.0), total=1.0)
    record.use_attempt(0, record.attempts[0])
    for index, reason in enumerate(("stop", "length", "because of Paris")):
        record.attempts[0].meter.finish_reasons[index] = shorten(reason)

    assert summarize(record).finish_reasons == ["length", "other", "stop"]


def test_results_of_list_items_are_merged() -> None:
    record = ended_record((0.0, 1.0), total=1.0)
    result = GuardResult("leaks", "passed", False, {}, 0.0, 10, 1, 0.5)
    masked = result._replace(verdict="masked", findings={"aws": 1})
    record.add_guard_results("output", [result, masked, result, masked, result])

    assert summarize(record).verdicts == [
        ("output", result._replace(bytes=30, fields=3, seconds=1.5)),
        ("output", masked._replace(bytes=20, fields=2, seconds=1.0, findings={"aws": 2})),
    ]


def test_summary_is_computed_once() -> None:
    record = ended_record((0.1, 0.9), total=1)
    record.ended = None
    running = summarize(record)
    record.ended = 101.0

    assert summarize(record) is summarize(record) is not running
