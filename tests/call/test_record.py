"""One call's account: outcomes, warnings, whose trace it is in."""

from __future__ import annotations

import asyncio
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
def test_every_end_has_its_word(error: Any, outcome: str) -> None:
    event = record()
    event.error = error

    assert event.outcome == outcome


def test_a_bug_is_the_proxys_own() -> None:
    event = record()
    event.is_internal_error = True

    assert event.outcome == "proxy_error"


def test_a_client_is_told_each_thing_once_and_of_a_few_things_alone() -> None:
    event = record()
    event.warn(["seed dropped", "seed dropped", "x" * 5_000])
    event.warn(f"{number} dropped" for number in range(1000))

    assert event.warnings[:2] == ["seed dropped", "x" * MAX_NAME]
    assert len(event.warnings) == MAX_WORDS


def begun(record: Record, *prices: Price, leg: int = 0) -> Attempt:
    attempt = record.start_attempt(Target(UP, "m", prices=prices), leg, "1" * 16)
    attempt.sent_at = attempt.response_at = 1.0
    attempt.finished = True
    record.use_attempt(leg, attempt)
    return attempt


def test_a_caller_in_a_trace_is_joined() -> None:
    event = record()

    event.set_head(RequestHead(**{**_fields(HEAD), "parent": TraceContext("f" * 32, "e" * 16)}))

    assert event.ids.trace_id == "f" * 32
    assert event.ids.server_span == "b" * 16


def _fields(head: RequestHead) -> dict[str, Any]:
    return {name: getattr(head, name) for name in head.__dataclass_fields__}


def test_only_what_a_guard_had_asked_again_is_its_loss() -> None:
    event = record()
    failed, beaten, cancelled = (
        event.start_attempt(Target(UP, "m"), 0, "1" * 16) for _ in range(3)
    )
    other_leg = event.start_attempt(Target(UP, "m"), 1, "1" * 16)
    failed.error, beaten.error, beaten.lost_hedge = "upstream_idle_timeout", "cancelled", True
    begun(event, PRICE)
    cancelled.error = other_leg.error = "cancelled"

    event.start_guard_retry()
    begun(event, PRICE)
    event.attempts[-1].error = "upstream_invalid_response"
    begun(event, PRICE).reason = "retry"

    assert [(fate.use, fate.loss) for _, fate, _ in summarize(event).attempts] == [
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
async def test_work_beside_a_call_tells_how_it_ends(owner: str, expected: list[str]) -> None:
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
