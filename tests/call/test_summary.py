"""Summary of a finished call."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from proxy.call.record import Record, new_record
from proxy.call.summary import summarize
from proxy.errors.words import word
from proxy.money.usage import Tokens
from proxy.types import Target, Upstream
from proxy.types.guard import GuardResult
from tests.doubles import legacy
from tests.frames import whole_frame

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
    record.attempts[0].meter.feed(whole_frame(legacy()), 100.4)

    summary = summarize(record)
    assert summary.ttft_s == pytest.approx(0.4)
    assert summary.finish_reasons == ["stop"]
    assert summary.tokens == Tokens(input=5, output=3)


def test_call_without_upstream_has_unknowns() -> None:
    record = ended_record(total=1)

    summary = summarize(record)
    assert summary.deployment is summary.dialect is None
    assert summary.served is None
    assert summary.ttft_s is None


@pytest.mark.parametrize("attempts", [(), ((0.1, 0.9),), ((0.1, 0.2), (0.2, 0.9))])
def test_summary_covers_the_call(attempts: tuple[tuple[float, float], ...]) -> None:
    summary = summarize(ended_record(*attempts, total=1.0))

    assert [field.name for field in fields(summary) if not hasattr(summary, field.name)] == []


def test_unknown_finish_reasons_are_other() -> None:
    record = ended_record((0.0, 1.0), total=1.0)
    record.use_attempt(0, record.attempts[0])
    for index, reason in enumerate(("stop", "length", "because of Paris")):
        record.attempts[0].meter.finish_reasons[index] = word(reason)

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
