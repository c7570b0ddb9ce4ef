"""What all emitters tell of a call in the same words."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from proxy.app.context import new_record
from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.errors.words import word
from proxy.money.usage import Tokens
from proxy.types import Target, Upstream
from proxy.types.guard import GuardResult
from tests.doubles import legacy
from tests.frames import whole_frame

TARGET = Target(Upstream("openai", "openai", "http://127.0.0.1:9"), "gpt-4o-mini")


def ended(*attempts: tuple[float, float], total: float) -> Record:
    record = replace(new_record(), started=100.0)
    for started_at, result in attempts:
        attempt = record.start_attempt(TARGET, 0, "1" * 16)
        attempt.started, attempt.response_at, attempt.ended = (
            100 + started_at,
            100 + started_at,
            100 + result,
        )
    record.ended = 100 + total
    return record


@pytest.mark.parametrize(
    ("attempts", "total", "overhead"),
    [((), 0.5, 0.5), (((0.1, 0.9),), 1.0, 0.2), (((0.1, 0.2), (0.2, 0.9)), 1.0, 0.2)],
)
def test_overhead_is_all_time_but_the_upstreams(
    attempts: tuple[tuple[float, float], ...], total: float, overhead: float
) -> None:
    assert summarize(ended(*attempts, total=total)).overhead_s == pytest.approx(overhead)


def test_the_first_token_is_counted_from_the_request() -> None:
    record = ended((0.1, 0.9), total=1)
    record.use_attempt(0, record.attempts[0])
    record.attempts[0].meter.feed(whole_frame(legacy()), 100.4)

    facts = summarize(record)
    assert facts.ttft_s == pytest.approx(0.4)
    assert facts.finish_reasons == ["stop"]
    assert facts.tokens == Tokens(input=5, output=3)


def test_a_call_that_reached_nothing_has_unknowns() -> None:
    record = ended(total=1)

    facts = summarize(record)
    assert facts.deployment is facts.dialect is None
    assert facts.served is None
    assert facts.ttft_s is None


@pytest.mark.parametrize("attempts", [(), ((0.1, 0.9),), ((0.1, 0.2), (0.2, 0.9))])
def test_summary_covers_the_call(attempts: tuple[tuple[float, float], ...]) -> None:
    facts = summarize(ended(*attempts, total=1.0))

    assert [field.name for field in fields(facts) if not hasattr(facts, field.name)] == []


def test_why_an_answer_ended_is_told_in_known_words_only() -> None:
    record = ended((0.0, 1.0), total=1.0)
    record.use_attempt(0, record.attempts[0])
    for index, why in enumerate(("stop", "length", "because of Paris")):
        record.attempts[0].meter.finish_reasons[index] = word(why)

    assert summarize(record).finish_reasons == ["length", "other", "stop"]


def test_what_a_guard_says_of_each_answer_of_a_list_is_told_once() -> None:
    record = ended((0.0, 1.0), total=1.0)
    result = GuardResult("leaks", "passed", False, {}, 0.0, 10, 1, 0.5)
    masked = result._replace(verdict="masked", findings={"aws": 1})
    record.add_guard_results("output", [result, masked, result, masked, result])

    assert summarize(record).verdicts == [
        ("output", result._replace(bytes=30, fields=3, seconds=1.5)),
        ("output", masked._replace(bytes=20, fields=2, seconds=1.0, findings={"aws": 2})),
    ]


def test_what_is_told_of_a_call_is_worked_out_once_when_it_has_ended() -> None:
    record = ended((0.1, 0.9), total=1)
    record.ended = None
    running = summarize(record)
    record.ended = 101.0

    assert summarize(record) is summarize(record) is not running
