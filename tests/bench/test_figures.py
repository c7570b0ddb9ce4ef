"""Statistics, tables and charts of benchmark results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import pictures, policies, results, table
from bench.figures import Line, classify_growth, fit_line, overhead, ratios
from bench.load import Result
from bench.rounds import (
    SCENARIOS,
    UnexpectedCacheUse,
    check_lookups,
    compute_figures,
    parse_lookups,
)
from bench.upstream import CHUNKS
from proxy.policy.store import read_folder
from tests.for_each import for_each


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


EXPOSITION = """
# TYPE headrace_cache_lookups_total counter
headrace_cache_lookups_total{deployment="support-chat",result="miss"} 41.0
headrace_cache_lookups_total{deployment="search-answers",result="miss"} 1.0
headrace_cache_lookups_total{deployment="support-chat",result="hit"} 7.0
headrace_cache_lookup_duration_seconds_count{store="memory"} 49.0
"""
RESULT = Result(calls=100, seconds=2.0, p50=500.0, p99=900.0, first_p50=300.0)


def test_lookups_are_summed_by_result() -> None:
    assert parse_lookups(EXPOSITION) == {"miss": 42, "hit": 7}


@for_each(
    ("has_cache", "is_repeated", "lookups", "is_expected"),
    [
        (True, False, {"miss": 9, "hit": 0}, True),
        (True, True, {"hit": 9}, True),
        (False, False, {}, True),
        (True, False, {"miss": 8, "hit": 1}, False),
        (True, False, {"miss": 8}, False),
        (True, True, {"hit": 8, "miss": 1}, False),
        (True, True, {"hit": 8, "coalesced": 1}, False),
        (False, False, {"miss": 9}, False),
    ],
)
def test_unexpected_lookups_raise(
    has_cache: bool, is_repeated: bool, lookups: dict[str, int], is_expected: bool
) -> None:
    if is_expected:
        check_lookups(has_cache, is_repeated, 9, lookups)
        return
    with pytest.raises(UnexpectedCacheUse, match="cache lookups of 9 calls"):
        check_lookups(has_cache, is_repeated, 9, lookups)


@for_each(
    ("scenario", "figures"),
    [
        ("closed", {"cpu_us": 640, "per_second": 50, "p50_us": 500, "p99_us": 900}),
        ("stream", {"cpu_us": 640 / CHUNKS, "first_us": 300}),
        ("open", {"p50_us": 500, "p99_us": 900}),
    ],
)
def test_figures_of_a_scenario(scenario: str, figures: dict[str, float]) -> None:
    assert compute_figures(SCENARIOS[scenario], RESULT, cpu_s=0.064) == pytest.approx(figures)


def closed_loop(cpu_us: list[float]) -> dict[str, Any]:
    return {"closed": {"cpu_us": cpu_us, "p50_us": [10.0, 10.0], "p99_us": [15.0, 17.0]}}


def open_loop(p50_us: list[float]) -> dict[str, Any]:
    return {"open": {"p50_us": p50_us, "p99_us": [4000.0, 6000.0]}}


RESULTS: dict[str, Any] = {
    "settings": {"rounds": 2, "seconds": 4},
    "processes": {"bare": {"ready_s": 0.8, "rest_mb": 60.0, "load_mb": 64.0}},
    "rounds": {
        "direct": open_loop([100.0, 100.0]),
        "relay": closed_loop([100.0, 200.0]) | open_loop([300.0, 300.0]),
        "bare": closed_loop([150.0, 300.0]),
        "guards": closed_loop([250.0, 500.0]),
        "everything": closed_loop([400.0, 840.0]) | open_loop([500.0, 540.0]),
    },
}


def test_goals_omit_what_was_not_measured() -> None:
    assert dict(table.goal_figures(RESULTS)) == {
        "everything on": "4.10 [4.00-4.20]",
        "no policy (`bare`)": "1.50 [1.50-1.50]",
        "guards in addition to `bare`": "1.00 [1.00-1.00]",
        "added p50 at 100 calls per second": "2.10 [2.00-2.20]",
        "p99 at 100 calls per second, ms": "5.00 [4.00-6.00]",
        "p99 to p50 with 32 busy connections, everything on": "1.60 [1.50-1.70]",
        "memory at rest, bare, MB": "60.0",
        "start until listening, bare, s": "0.80",
    }
    assert len(list(table.streams(RESULTS))) == 2


def test_results_are_stored_with_four_digits(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.json"
    results.write(path, {"rounds": [1.234567, 123456.7], "name": "x"})

    assert results.read(path) == {"rounds": [1.235, 123457], "name": "x"}
    assert '"rounds": [1.235, 123457]' in path.read_text()


@pytest.mark.process
def test_results_describe_the_machine_without_paths() -> None:
    document = results.new_results(rounds=3)

    assert "/" not in str(document)
    assert document["machine"].keys() >= {"processor", "cores", "memory_gib", "python", "built"}
    assert document["settings"] == {"rounds": 3}


GROWTH: dict[str, Any] = {
    "growth": {
        "keys": {
            "cost": {"bare": {"10": [200.0, 220.0, 210.0], "100000": [212.0, 230.0, 220.0]}},
            "functions": {"bare": {"10": 700.4, "100000": 700.6}},
        },
        "body": {"cost": {"bare": {"1000": [102.0], "10000": [120.0], "1000000": [2100.0]}}},
        "cached": {"cost": {"hit": {"1000": [1.0], "100000": [2.0], "1000000": [2.1]}}},
    }
}


def test_table_describes_growth() -> None:
    assert list(pictures.table(GROWTH))[2:] == [
        "| 10 to 100k keys in the policies, bare | 210 to 220 per call | flat | 1.05"
        " | 700 to 701 |",
        "| 1k to 1M bytes of the request, bare | 102 to 2,100 per call | linear"
        " | 20.6, 2.00 us per 1,000 |  |",
        "| 1k to 1M entries of the cache, lookup | 1.00 to 2.10 per operation | neither"
        " | 2.10 |  |",
    ]


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
