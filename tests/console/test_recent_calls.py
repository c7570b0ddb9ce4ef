"""Recent calls: bounds, and calls without a key that displace no others."""

from __future__ import annotations

from dataclasses import replace

from proxy.console.recent_calls import MAX_CALLS, MAX_UNAUTHORIZED, RecentCalls
from tests.call.test_record import ended_record


def test_keeps_the_last_calls_and_few_without_a_key() -> None:
    calls = RecentCalls()
    record = ended_record(total=1.0)
    with_key, without_key = replace(record, key="widget"), replace(record, key=None)
    for number in range(MAX_CALLS + 50):
        calls.add(with_key, {"request_id": f"r{number}"})
    for number in range(MAX_UNAUTHORIZED + 50):
        calls.add(without_key, {"request_id": f"u{number}"})

    kept = calls.calls_after(0)
    assert len(kept) == MAX_CALLS + MAX_UNAUTHORIZED
    assert [call.number for call in kept] == sorted(call.number for call in kept)
    assert calls.find(50) is None
    found = calls.find(51)
    assert found is not None
    assert found.line["request_id"] == "r50"
    assert [call.number for call in calls.calls_after(calls.last_number - 1)] == [calls.last_number]
    assert calls.calls_after(calls.last_number + 5) == []
