"""The arithmetic of measurements."""

from __future__ import annotations

import pytest

from bench.figures import Line, above, fitted, growth, percentile, ratios, shown, spread
from tests.for_each import for_each


def test_a_spread_is_the_median_and_the_range() -> None:
    assert str(spread([3.0, 1.0, 2.0])) == "2.00 [1.00-3.00]"


def test_a_ratio_is_taken_within_each_round() -> None:
    """A machine that is half as fast in one round is so for both."""
    spread = ratios([10, 40, 30], [5, 20, 10])

    assert (spread.median, spread.low, spread.high) == (2, 2, 3)


def test_a_ratio_of_other_rounds_is_none() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1, 2], [1])


def test_what_is_above_a_base_is_told_in_units() -> None:
    spread = above([30, 34], [10, 14], [10, 20])

    assert (spread.low, spread.high) == (1, 2)


@for_each(("share", "value"), [(0, 1), (0.5, 51), (0.99, 100), (1, 100)])
def test_a_percentile_is_a_value_that_was_there(share: float, value: float) -> None:
    assert percentile(range(1, 101), share) == value


@for_each(("value", "text"), [(0.126, "0.13"), (12.34, "12.3"), (1234.5, "1,234"), (-150, "-150")])
def test_a_figure_has_the_digits_that_mean_something(value: float, text: str) -> None:
    assert shown(value) == text


def test_a_line_is_found_that_all_points_are_on() -> None:
    line = fitted([1, 10, 1000], [102, 120, 2100])

    assert line.base == pytest.approx(100)
    assert line.slope == pytest.approx(2)


def test_points_at_one_size_have_no_slope() -> None:
    assert fitted([5, 5], [3, 3]) == Line(3, 0)


@for_each(
    ("costs", "word"),
    [
        ((100, 104, 98, 110), "flat"),
        ((101, 110, 200, 1100), "linear"),
        ((100, 200, 300, 400), "neither"),  # the logarithm
        ((101, 200, 10_100, 1_000_100), "neither"),  # the square
    ],
)
def test_growth_is_flat_linear_or_neither(costs: tuple[float, ...], word: str) -> None:
    assert growth((1, 10, 100, 1000), costs) == word
