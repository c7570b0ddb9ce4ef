"""How growth is told and drawn."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from bench import pictures, policies, results
from bench.axes import AXES
from bench.pictures import Scale, Series, amount, picture, rounded_up, ticks
from proxy.policy.store import read_folder
from tests.for_each import for_each

KEPT: dict[str, Any] = {
    "growth": {
        "keys": {
            "cost": {"bare": {"10": [200.0, 220.0, 210.0], "100000": [212.0, 230.0, 220.0]}},
            "functions": {"bare": {"10": 700.4, "100000": 700.6}},
        },
        "body": {"cost": {"bare": {"1000": [102.0], "10000": [120.0], "1000000": [2100.0]}}},
        "cached": {"cost": {"hit": {"1000": [1.0], "100000": [2.0], "1000000": [2.1]}}},
    }
}


def drawn_points(svg: str) -> list[list[tuple[float, float]]]:
    """Return the points of each line of a picture."""
    lines = re.findall(r'<polyline points="([^"]+)"', svg)
    pairs = [[pair.split(",") for pair in line.split()] for line in lines]
    return [[(float(x), float(y)) for x, y in line] for line in pairs]


def test_what_is_flat_is_told_by_its_ends_and_the_functions_that_run() -> None:
    keys = list(pictures.table(KEPT))[2]

    assert keys == (
        "| 10 to 100k keys in the policies, bare | 210 to 220, a call | flat | x 1.05 "
        "| 700 to 701 |"
    )


def test_what_is_linear_is_told_with_what_each_thousand_costs() -> None:
    body = list(pictures.table(KEPT))[3]

    assert "| linear | x 20.6, 2.00 us for each 1,000 |" in body


def test_what_is_neither_is_told_by_its_factor() -> None:
    assert "| neither | x 2.10 |" in list(pictures.table(KEPT))[4]


@for_each("axis", [*AXES, "cached"])
def test_each_picture_has_a_line_for_each_part_and_stays_within_its_frame(axis: str) -> None:
    lines = [Series("one", [10.0, 1e6], [3.0, 9.0]), Series("two", [10.0, 1e6], [5.0, 8.0])]

    points = drawn_points(picture(pictures.title(axis), lines))

    assert [len(line) for line in points] == [2, 2]
    assert all(0 < x < pictures.WIDTH and 0 < y < pictures.HEIGHT for x, y in chain(*points))


def test_more_is_further_to_the_right_and_dearer_is_higher() -> None:
    [line] = drawn_points(picture("x", [Series("one", [1.0, 10.0, 100.0], [1, 2, 900])]))

    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert [y for _, y in line] == sorted((y for _, y in line), reverse=True)


def test_a_scale_by_the_logarithm_has_decades_as_far_apart() -> None:
    scale = Scale(1, 10_000, 0, 400, logarithmic=True)

    assert [scale.at(value) for value in (1, 10, 100, 10_000)] == [0, 100, 200, 400]
    assert Scale(0, 10, 100, 0, logarithmic=False).at(5) == 50


def test_rules_are_at_decades_or_quarters() -> None:
    assert ticks(10, 1000, decades=True) == [10, 100, 1000]
    assert ticks(0, 8, decades=False) == [0, 2, 4, 6, 8]


@for_each(("value", "upper"), [(210, 250), (0.12, 0.15), (999, 1000), (5, 5)])
def test_a_scale_ends_at_a_round_number(value: float, upper: float) -> None:
    assert rounded_up(value) == pytest.approx(upper)


@for_each(("size", "text"), [(0, "0"), (500, "500"), (1e5, "100k"), (4e6, "4M")])
def test_amounts_are_short(size: float, text: str) -> None:
    assert amount(size) == text


def test_the_pictures_of_the_page_are_those_of_what_was_measured() -> None:
    """Run `make docs` after a measurement."""
    stored = pictures.drawn(results.read(results.GROWTH)) if results.GROWTH.exists() else {}

    context = {path.name: path.read_text() for path in pictures.FOLDER.glob("growth-*.svg")}
    assert context == stored


def test_a_policy_with_more_of_something_is_good(tmp_path: Path) -> None:
    extra = policies.Sizes(deployments=3, keys=4, rules=5, tags=6)
    policies.write(tmp_path, "everything", 9, extra)

    snapshot = read_folder(tmp_path, {})
    assert len(snapshot.credentials) == 5
    assert len(snapshot.deployments) == 4
