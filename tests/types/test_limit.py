"""Validation of limits, and their integer arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.limits.kinds import KINDS
from proxy.types.limit import MAX_AMOUNT, Limit
from proxy.types.windows import Calendar
from tests.for_each import for_each

DAY = Calendar("day")


@for_each(
    ("fields", "problem"),
    [
        ({"amount": 0}, "amount"),
        ({"amount": MAX_AMOUNT + 1}, "amount"),
        ({"amount": 999_999_937, "window": 2_592_000}, "too large to count exactly in this window"),
    ],
    ids=str,
)
def test_uncountable_limit_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Limit(**{"name": "team", "kind": KINDS["requests"], "amount": 60, "window": 60, **fields})


def test_rate_is_a_reduced_fraction() -> None:
    limit = Limit("team", KINDS["requests"], 7, 60)

    assert (limit.debt_per_unit, limit.drain_per_ms) == (60_000, 7)


@for_each(
    ("window", "amount"),
    [(60, 200_000), (86_400, 100_000_000), (2_592_000, 1_000_000_000), (60, 1_234_567)],
)
def test_common_limits_can_be_counted(window: int, amount: int) -> None:
    assert Limit("team", KINDS["tokens"], amount, window).capacity == amount


@for_each(("share", "warn"), [(0.8, 80), (0.07, 7), (0.001, 1), (1.0, 100)])
def test_warning_share_is_exact(share: float, warn: int) -> None:
    assert Limit("team", KINDS["requests"], 100, 60, warn_at=share).warn_amount == warn
