"""Record of a call: outcomes, warnings and trace ids."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from proxy.call.attempts import Attempt
from proxy.call.record import Record, TraceIds
from proxy.call.summary import summarize
from proxy.errors import (
    ClientDisconnected,
    GuardUnavailable,
    InvalidField,
    LimitExceeded,
    LimitStoreUnavailable,
    Overloaded,
    ShuttingDown,
    UpstreamForbids,
    UpstreamInvalid,
    UpstreamNotFound,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.errors.words import MAX_NAME, MAX_WORDS
from proxy.money.usage import Price
from proxy.runtime.background import SideTasks
from proxy.types import RequestHead, Target, TraceContext, Upstream
from tests.for_each import for_each

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
        (InvalidField("n", "x"), "client_error"),
        (ClientDisconnected(), "client_abort"),
        (UpstreamTimeout("idle"), "timeout"),
        (UpstreamInvalid("x"), "upstream_error"),
        (UpstreamUnavailable("x", upstream_status=503), "upstream_error"),
        (UpstreamForbids("x", upstream_status=402), "upstream_error"),
        (UpstreamNotFound("x", upstream_status=404), "upstream_error"),
        (UpstreamRejected("x", upstream_status=400), "client_error"),
        (ShuttingDown(), "proxy_error"),
        (LimitExceeded("x", "calls", "requests", 1.0), "limited"),
        (LimitStoreUnavailable("calls", 1.0), "proxy_error"),
        (Overloaded(), "proxy_error"),
        (GuardUnavailable("x", guard="g", kind="k"), "blocked"),
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
    entry.warn(["seed dropped", "seed dropped", "x" * 5_000])
    entry.warn(f"{number} dropped" for number in range(1000))

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
