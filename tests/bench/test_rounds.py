"""What a round is checked by, and what it gives."""

from __future__ import annotations

import pytest

from bench.load import Result
from bench.rounds import SCENARIOS, Wrong, check, figures, lookups
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


def test_look_ups_are_read_by_their_result() -> None:
    assert lookups(EXPOSITION) == {"miss": 42, "hit": 7}


@pytest.mark.parametrize(
    ("caches", "is_same", "results"),
    [(True, False, {"miss": 9, "hit": 0}), (True, True, {"hit": 9}), (False, False, {})],
)
def test_a_round_that_met_the_cache_as_it_should_is_good(
    caches: bool, is_same: bool, results: dict[str, int]
) -> None:
    check(caches, is_same, 9, results)


@for_each(
    ("caches", "is_same", "results"),
    [
        (True, False, {"miss": 8, "hit": 1}),
        (True, False, {"miss": 8}),
        (True, True, {"hit": 8, "miss": 1}),
        (True, True, {"hit": 8, "coalesced": 1}),
        (False, False, {"miss": 9}),
    ],
)
def test_a_round_that_met_it_otherwise_is_none(
    caches: bool, is_same: bool, results: dict[str, int]
) -> None:
    with pytest.raises(Wrong, match="9 calls were to be"):
        check(caches, is_same, 9, results)


def test_the_cost_of_a_call_is_the_time_of_the_processor_by_calls() -> None:
    results = figures(SCENARIOS["closed"], RESULT, cpu_s=0.05)

    assert results["cpu_us"] == pytest.approx(500)
    assert results["per_second"] == 50
    assert (results["p50_us"], results["p99_us"]) == (500, 900)


def test_the_cost_of_a_stream_is_told_by_its_chunks() -> None:
    results = figures(SCENARIOS["stream"], RESULT, cpu_s=0.064)

    assert results == {"cpu_us": pytest.approx(0.064 / (100 * CHUNKS) * 1e6), "first_us": 300}


def test_in_open_loop_latency_alone_counts() -> None:
    assert figures(SCENARIOS["open"], RESULT, cpu_s=1) == {"p50_us": 500, "p99_us": 900}
