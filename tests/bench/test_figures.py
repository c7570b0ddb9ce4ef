"""Statistics of benchmarks."""

from __future__ import annotations

import pytest

from bench.figures import (
    Line,
    classify_growth,
    fit_line,
    format_figure,
    overhead,
    percentile,
    ratios,
    spread,
)
from tests.for_each import for_each


def test_spread_shows_median_and_range() -> None:
    assert str(spread([3.0, 1.0, 2.0])) == "2.00 [1.00-3.00]"


def test_ratios_are_computed_within_each_round() -> None:
    """A round of half the speed has the same ratio."""
    spread = ratios([10, 40, 30], [5, 20, 10])

    assert (spread.median, spread.low, spread.high) == (2, 2, 3)


def test_ratios_require_equal_rounds() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1, 2], [1])


def test_overhead_is_in_units_of_the_round() -> None:
    spread = overhead([30, 34], [10, 14], [10, 20])

    assert (spread.low, spread.high) == (1, 2)


@for_each(("share", "value"), [(0, 1), (0.5, 51), (0.99, 100), (1, 100)])
def test_percentile_is_an_observed_value(share: float, value: float) -> None:
    assert percentile(range(1, 101), share) == value


@for_each(("value", "text"), [(0.126, "0.13"), (12.34, "12.3"), (1234.5, "1,234"), (-150, "-150")])
def test_figures_have_three_significant_digits(value: float, text: str) -> None:
    assert format_figure(value) == text


def test_line_fits_points_on_a_line() -> None:
    line = fit_line([1, 10, 1000], [102, 120, 2100])

    assert [line.base, line.slope] == pytest.approx([100, 2])
    assert fit_line([5, 5], [3, 3]) == Line(3, 0)


@for_each(
    ("costs", "growth"),
    [
        ((100, 104, 98, 110), "flat"),
        ((101, 110, 200, 1100), "linear"),
        ((100, 200, 300, 400), "neither"),  # logarithmic
        ((101, 200, 10_100, 1_000_100), "neither"),  # quadratic
    ],
)
def test_growth_is_classified(costs: tuple[float, ...], growth: str) -> None:
    assert classify_growth((1, 10, 100, 1000), costs) == growth
