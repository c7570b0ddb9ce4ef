"""Durations, sizes, money and days as people write them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from proxy.policy import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("5s", 5), ("1m30s", 90), ("2h", 7200), ("1d", 86400), ("0.5s", 0.5)],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert units.duration(text) == seconds


@pytest.mark.parametrize("text", [5, "5", "s", "5 s", "5x", "0s", "-5s", None, ["5s"], True])
def test_another_word_is_no_duration(text: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        units.duration(text)


@pytest.mark.parametrize(("text", "size"), [("64MiB", 2**26), ("512kB", 512_000), ("1B", 1)])
def test_a_size_is_bytes(text: str, size: int) -> None:
    assert units.size(text) == size


@pytest.mark.parametrize("text", [64, "64", "64 MiB", "64mb", "-1kB"])
def test_another_word_is_no_size(text: Any) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        units.size(text)


@pytest.mark.parametrize("value", [0.15, "0.15"])
def test_money_is_exact(value: Any) -> None:
    assert units.money(value) == Decimal("0.15")


@pytest.mark.parametrize("value", ["cheap", True, None, "inf", float("nan")])
def test_another_word_is_no_money(value: Any) -> None:
    with pytest.raises(ValueError, match="number of USD"):
        units.money(value)


def test_a_day_is_written_as_iso() -> None:
    assert units.day("2026-01-31") == date(2026, 1, 31)
    for bad in ("31.1.2026", 20260131, "2026-02-30"):
        with pytest.raises(ValueError, match="must be a day"):
            units.day(bad)
