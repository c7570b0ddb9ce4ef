"""Recent calls: bounds, calls without a key that displace no others, and captured texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.call.record import Captured, CapturedText
from proxy.console.calls import (
    MAX_CAPTURED,
    MAX_CHARS,
    MAX_REQUEST_BYTES,
    RecentCalls,
)
from proxy.policy.review import MAX_CALLS, MAX_UNAUTHORIZED
from proxy.policy.review.call_history import CallHistory
from tests.call.test_record import ended_record
from tests.dialects.responses.frames import CALL

LINE = {"request_id": "r", "key": "widget", "span_id": "s", "trace_id": "t"}


def recent_calls() -> RecentCalls:
    return RecentCalls(CallHistory(lambda _: None))


def open_call(calls: RecentCalls, call_id: str) -> dict[str, Any]:
    call = calls.find(call_id)
    assert call is not None
    return calls.build_details(call)


def test_keeps_the_last_calls_and_few_without_a_key() -> None:
    calls = recent_calls()
    record = ended_record(total=1.0)
    with_key, without_key = replace(record, key="widget"), replace(record, key=None)
    for _ in range(MAX_CALLS + 50):
        calls.add(with_key, LINE)
    for _ in range(MAX_UNAUTHORIZED + 50):
        calls.add(without_key, LINE)

    stored = calls.list_calls_after("")
    assert len(stored) == MAX_CALLS + MAX_UNAUTHORIZED
    assert [call.number for call in stored] == sorted(call.number for call in stored)
    assert calls.find(f"{calls.run}-50") is None
    assert calls.find(f"{calls.run}-51") is not None
    last = stored[-1]
    assert calls.last_id == last.id
    assert calls.list_calls_after(stored[-2].id) == [last]
    assert calls.list_calls_after(f"{calls.run}-{last.number + 5}") == []


def test_id_of_another_run_shows_no_call() -> None:
    earlier, calls = recent_calls(), recent_calls()
    earlier.add(ended_record(total=1.0), LINE)
    calls.add(ended_record(total=1.0), LINE)

    assert calls.find(earlier.last_id) is None
    assert [call.id for call in calls.list_calls_after(earlier.last_id)] == [calls.last_id]


def test_bounds_captured_texts_and_response_headers() -> None:
    calls = recent_calls()
    texts = Captured((CapturedText("user", "x" * (MAX_CHARS - 1)), CapturedText("user", "yy")), ())
    headers = {"x-headrace-cache": "bypass" * 1000}
    record = replace(
        ended_record(total=1.0), key="widget", captured=lambda: texts, response_headers=headers
    )
    for _ in range(MAX_CAPTURED + 1):
        calls.add(record, LINE)
    oldest, *_, newest = [open_call(calls, call.id) for call in calls.list_calls_after("")]

    assert oldest["captured"] is None
    assert sum(len(text["text"]) for text in newest["captured"]["prompt"]) == MAX_CHARS
    assert len(newest["response_headers"]["x-headrace-cache"]) == 256


def test_redacts_only_calls_that_are_opened_and_small() -> None:
    opened: list[str] = []

    def redact() -> Captured:
        opened.append("redacted")
        return Captured((), ())

    calls = recent_calls()
    small = replace(CALL, size=MAX_REQUEST_BYTES)
    calls.add(replace(ended_record(total=1.0), captured=redact, call=small), LINE)
    small_id = calls.last_id
    large = replace(CALL, size=MAX_REQUEST_BYTES + 1)
    calls.add(replace(ended_record(total=1.0), captured=redact, call=large), LINE)

    assert open_call(calls, calls.last_id)["captured"] is None
    assert calls.find(small_id) is not None
    assert opened == []  # the event loop redacts none
    open_call(calls, small_id)
    assert opened == ["redacted"]


def test_failed_redaction_shows_no_text() -> None:
    def fail() -> Captured:
        raise ValueError

    calls = recent_calls()
    calls.add(replace(ended_record(total=1.0), captured=fail), LINE)
    assert open_call(calls, calls.last_id)["captured"] is None
