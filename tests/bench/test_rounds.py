"""Checks and figures of a benchmark turn."""

from __future__ import annotations

import pytest

from bench.load import Result
from bench.rounds import (
    SCENARIOS,
    UnexpectedCacheUse,
    check_lookups,
    compute_figures,
    parse_lookups,
)
from bench.upstream import CHUNKS
from tests.for_each import for_each

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
