"""Rows: what is known of a call in columns, what is not as NULL, money rounded once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import orjson

from proxy.app.context import new_record
from proxy.call.meter import Meter
from proxy.call.record import Record
from proxy.errors import ClientDisconnected
from proxy.errors.words import MAX_WORD, MAX_WORDS
from proxy.ledger.rows import ATTEMPT, CALL, TOKENS, rows_of
from proxy.money.usage import Price, read_usage
from proxy.types import Call
from tests.doubles import usage
from tests.for_each import for_each
from tests.ledger.kept import HEAD, PRICED, UNPRICED, call_entry, finished


def rows(record: Record) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    [call], attempts, _ = rows_of(call_entry(1, record))
    by_column = [dict(zip(ATTEMPT, row, strict=True)) for row in attempts]
    return dict(zip(CALL, call, strict=True)), by_column


def test_call_has_a_row_and_each_attempt_has_one() -> None:
    call, [attempt] = rows(finished())

    assert (call["outcome"], call["attempts"], call["tokens"]) == ("success", 1, 8)
    assert call["cost_nano_usd"] == attempt["cost_nano_usd"] == 22_000
    assert (orjson.loads(call["tags"]), orjson.loads(call["models"])) == (
        {"team": "support"},
        ["gpt-4o-mini"],
    )
    assert (attempt["input_tokens"], attempt["output_tokens"], attempt["money"]) == (5, 3, "useful")


def test_writes_for_an_hour_and_searches_stand_beside_the_tokens() -> None:
    record = finished()
    used = usage(prompt=9, completion=3)
    used["prompt_tokens_details"] = {"cache_write_tokens": 6}
    used["cache_creation"] = {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 4}
    used["server_tool_use"] = {"web_search_requests": 2}
    record.attempts[0].meter.report(read_usage(used))

    call, [attempt] = rows(record)

    assert (attempt["cache_write_tokens"], attempt["cache_write_1h_tokens"]) == (6, 4)
    assert (attempt["web_searches"], call["tokens"]) == (2, 12)


def test_what_is_not_known_is_null_and_never_zero() -> None:
    stranger = new_record()
    stranger.ended = stranger.started
    call, attempts = rows(stranger)

    assert attempts == []
    for name in ("request_id", "key", "tags", "models", "stream", "tokens", "cost_nano_usd"):
        assert call[name] is None, name


def test_attempt_without_response_has_no_usage() -> None:
    record = finished()
    record.attempts[0].response_at = None
    record.used_attempts.clear()

    call, [attempt] = rows(record)

    assert (attempt["usage_source"], attempt["input_tokens"]) == ("none", None)
    assert attempt["cost_nano_usd"] is call["cost_nano_usd"] is call["tokens"] is None


def test_unknown_counts_are_null() -> None:
    record = finished()
    record.attempts[0].meter = Meter(estimates=False, unreported="unknown")

    call, [attempt] = rows(record)

    counts = (*TOKENS, "cache_write_1h_tokens", "web_searches", "cost_nano_usd")
    assert {name: attempt[name] for name in counts} == dict.fromkeys(counts)
    assert (attempt["usage_source"], call["tokens"]) == ("unknown", None)


def test_sum_with_unknown_part_is_unknown() -> None:
    call, attempts = rows(finished(UNPRICED, PRICED))

    assert [row["cost_nano_usd"] for row in attempts] == [None, 22_000]
    assert (call["cost_nano_usd"], call["tokens"]) == (None, 16)


@for_each(("price", "total"), [("0.0005", 2), ("0.0007", 4), ("0.0001", 0), ("0.1", 500)])
def test_a_cost_is_rounded_once_half_to_even(price: str, total: int) -> None:
    target = replace(PRICED, prices=(Price(input=Decimal(price), output=Decimal(0)),))

    assert rows(finished(target))[1][0]["cost_nano_usd"] == total


def test_implausible_usage_is_estimated() -> None:
    target = replace(PRICED, prices=(Price(input=Decimal(1000), output=Decimal(0)),))

    call, [attempt] = rows(finished(target, fields={"usage": usage(2**53, 0)}))

    assert (call["tokens"], call["cost_nano_usd"]) == (1, 1_000_000)
    assert attempt["usage_source"] == "partial_estimate"


def test_replaced_attempt_is_retried_and_unread_is_abandoned() -> None:
    remaining = finished()
    remaining.error = ClientDisconnected()
    beaten = finished(PRICED, PRICED)
    beaten.attempts[0].lost_hedge, beaten.attempts[0].error = True, "cancelled"
    beaten.attempts[1].reason = "hedge"
    cut = finished()
    cut.attempts[0].error = "upstream_invalid_response"

    def did(record: Record) -> list[str]:
        return [attempt["money"] for attempt in rows(record)[1]]

    assert did(finished(PRICED, PRICED)) == ["retried", "useful"]
    assert (did(remaining), did(beaten), did(cut)) == (
        ["abandoned"],
        ["abandoned", "useful"],
        ["abandoned"],
    )


def test_a_clients_words_are_cut_and_printable() -> None:
    record = finished()
    record.call = Call(HEAD, {}, requested_models=("a\n\x1b[31m\udcff" + "x" * 500,) * 1000)
    record.plan = replace(finished().plan, tags={"feature": "a\u2028b"})  # type: ignore[type-var]

    call, _ = rows(record)

    models = orjson.loads(call["models"])
    assert len(models) == MAX_WORDS
    assert all(len(model) == MAX_WORD and model.isprintable() for model in models)
    assert orjson.loads(call["tags"]) == {"feature": "a?b"}


def test_times_are_milliseconds_since_epoch() -> None:
    record = finished()
    record.started_at = datetime(2026, 1, 2, 3, 4, 5, 678999, tzinfo=UTC)
    record.ended = record.started + 1.5

    call, _ = rows(record)

    assert (call["started_ms"], call["duration_us"]) == (1767323045678, 1_500_000)
