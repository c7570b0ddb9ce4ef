"""Durations, sizes, money and days as people write them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from proxy.config import units
from tests.for_each import for_each


@for_each(
    ("text", "seconds"),
    [("500ms", 0.5), ("5s", 5), ("1m30s", 90), ("2h", 7200), ("1d", 86400), ("0.5s", 0.5)],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert units.duration(text) == seconds


@for_each("text", [5, "5", "s", "5 s", "5x", "0s", "-5s", None, ["5s"], True])
def test_another_word_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        units.duration(text)


@pytest.mark.parametrize(("text", "size"), [("64MiB", 2**26), ("512kB", 512_000), ("1B", 1)])
def test_a_size_is_bytes(text: str, size: int) -> None:
    assert units.size(text) == size


@for_each("text", [64, "64", "64 MiB", "64mb", "-1kB"])
def test_another_word_is_no_size(text: Any) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        units.size(text)


@pytest.mark.parametrize("value", [0.15, "0.15"])
def test_money_is_exact(value: Any) -> None:
    assert units.money(value) == Decimal("0.15")


@for_each("value", ["cheap", True, None, "inf", float("nan"), "1e19", "1e999999", "1e-19"])
def test_another_word_is_no_money(value: Any) -> None:
    with pytest.raises(ValueError, match="number of USD"):
        units.money(value)


def test_a_day_is_written_as_iso() -> None:
    assert units.day("2026-01-31") == date(2026, 1, 31)
    for bad in ("31.1.2026", 20260131, "2026-02-30"):
        with pytest.raises(ValueError, match="must be a day"):
            units.day(bad)


@for_each(
    ("text", "rate"),
    [
        ("600 per minute", (600, 60)),
        ("1 per second", (1, 1)),
        ("200k per 10 minutes", (200_000, 600)),
        ("1.5M per day", (1_500_000, 86_400)),
    ],
)
def test_a_rate_is_an_amount_and_seconds(text: str, rate: tuple[int, int]) -> None:
    assert units.rate(text) == rate
    assert units.rate(units.rate_text(rate)) == rate


@for_each(
    "text",
    [600, "600", "600/min", "0 per minute", "1.5 per minute", "5 per 0 minutes", "5 per month"],
)
def test_another_word_is_no_rate(text: Any) -> None:
    with pytest.raises(ValueError, match="must be a"):
        units.rate(text)


@for_each(
    ("text", "budget"),
    [
        ("500 per month", (500 * 10**9, "month")),
        ("500 usd per month", (500 * 10**9, "month")),
        ("0.50 per day", (500_000_000, "day")),
        ("0.000000001 per hour", (1, "hour")),
        ("9000000 per month", (9 * 10**15, "month")),
    ],
)
def test_a_budget_is_nano_usd_and_a_unit_of_the_calendar(
    text: str, budget: tuple[int, str]
) -> None:
    assert units.budget(text) == budget
    assert units.budget(units.budget_text(budget)) == budget


@for_each("text", [500, "500", "0 per day", "0.0000000001 per day", "5 per 2 days"])
def test_another_word_is_no_budget(text: Any) -> None:
    with pytest.raises(ValueError, match="must be USD"):
        units.budget(text)


def test_a_budget_is_no_larger_than_what_every_store_counts_exactly() -> None:
    with pytest.raises(ValueError, match="must be at most 9,000,000 USD"):
        units.budget("9000000.000000001 per month")


@for_each(("text", "count"), [(5, 5), ("5", 5), ("2k", 2000), ("1.5M", 1_500_000)])
def test_a_count_is_whole(text: Any, count: int) -> None:
    assert units.count(text) == count


@for_each("text", [0, -1, 1.5, "0.0001k", "k", True, None])
def test_another_word_is_no_count(text: Any) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        units.count(text)


def test_a_share_is_percent() -> None:
    assert units.share("80%") == 0.8
    for text in ("0%", "101%", "80", 0.8, "80.5%"):
        with pytest.raises(ValueError, match="must be a percentage"):
            units.share(text)
