"""Growth of cost as a table and as charts."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from bench import pictures, policies, results
from bench.axes import AXES
from bench.pictures import Scale, Series, draw_chart, format_amount, round_up, ticks
from proxy.policy.store import read_folder
from tests.for_each import for_each

RESULTS: dict[str, Any] = {
    "growth": {
        "keys": {
            "cost": {"bare": {"10": [200.0, 220.0, 210.0], "100000": [212.0, 230.0, 220.0]}},
            "functions": {"bare": {"10": 700.4, "100000": 700.6}},
        },
        "body": {"cost": {"bare": {"1000": [102.0], "10000": [120.0], "1000000": [2100.0]}}},
        "cached": {"cost": {"hit": {"1000": [1.0], "100000": [2.0], "1000000": [2.1]}}},
    }
}


def line_points(svg: str) -> list[list[tuple[float, float]]]:
    lines = re.findall(r'<polyline points="([^"]+)"', svg)
    pairs = [[pair.split(",") for pair in line.split()] for line in lines]
    return [[(float(x), float(y)) for x, y in line] for line in pairs]


def test_table_describes_growth() -> None:
    assert list(pictures.table(RESULTS))[2:] == [
        "| 10 to 100k keys in the policies, bare | 210 to 220 per call | flat | 1.05"
        " | 700 to 701 |",
        "| 1k to 1M bytes of the request, bare | 102 to 2,100 per call | linear"
        " | 20.6, 2.00 us per 1,000 |  |",
        "| 1k to 1M entries of the cache, lookup | 1.00 to 2.10 per operation | neither"
        " | 2.10 |  |",
    ]


@for_each("axis", [*AXES, "cached"])
def test_chart_has_each_series_within_its_frame(axis: str) -> None:
    series = [Series("one", [10.0, 1e6], [3.0, 9.0]), Series("two", [10.0, 1e6], [5.0, 8.0])]

    lines = line_points(draw_chart(pictures.axis_title(axis), series))

    assert [len(line) for line in lines] == [2, 2]
    assert all(0 < x < pictures.WIDTH and 0 < y < pictures.HEIGHT for x, y in chain(*lines))


def test_chart_grows_to_the_right_and_upward() -> None:
    [line] = line_points(draw_chart("x", [Series("one", [1.0, 10.0, 100.0], [1, 2, 900])]))

    assert [x for x, _ in line] == sorted(x for x, _ in line)
    assert [y for _, y in line] == sorted((y for _, y in line), reverse=True)


def test_scale_is_logarithmic_or_linear() -> None:
    scale = Scale(1, 10_000, 0, 400, is_logarithmic=True)

    assert [scale.position(value) for value in (1, 10, 100, 10_000)] == [0, 100, 200, 400]
    assert Scale(0, 10, 100, 0, is_logarithmic=False).position(5) == 50


def test_grid_lines_are_at_decades_or_quarters() -> None:
    assert ticks(10, 1000, decades=True) == [10, 100, 1000]
    assert ticks(0, 8, decades=False) == [0, 2, 4, 6, 8]


@for_each(("value", "limit"), [(210, 250), (0.12, 0.15), (999, 1000), (5, 5)])
def test_scale_ends_at_a_round_number(value: float, limit: float) -> None:
    assert round_up(value) == pytest.approx(limit)


@for_each(("size", "text"), [(0, "0"), (500, "500"), (1e5, "100k"), (4e6, "4M")])
def test_amounts_have_a_suffix(size: float, text: str) -> None:
    assert format_amount(size) == text


def test_charts_of_docs_are_current() -> None:
    """Run `make docs` after a benchmark."""
    expected = pictures.charts(results.read(results.GROWTH)) if results.GROWTH.exists() else {}

    charts = {path.name: path.read_text() for path in pictures.FOLDER.glob("growth-*.svg")}
    assert charts == expected


def test_policies_with_additional_objects_are_valid(tmp_path: Path) -> None:
    extra = policies.Sizes(deployments=3, keys=4, rules=5, tags=6)
    policies.write(tmp_path, "everything", 9, extra)

    snapshot = read_folder(tmp_path, {})
    assert len(snapshot.credentials) == 5
    assert len(snapshot.deployments) == 4
