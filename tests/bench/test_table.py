"""Tables of benchmark results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import results, table
from bench.results import describe_build


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


def test_tables_have_a_row_per_target() -> None:
    streams = {"stream": {"cpu_us": [60.0, 60.0], "first_us": [1.0, 1.0]}}
    one_target = {**RESULTS, "rounds": {"bare": closed_loop([200.0, 200.0]) | streams}}

    assert "| everything on | 620 [400-840] | 4.10 [4.00-4.20] | 1,613 |" in table.calls(RESULTS)
    assert "| no proxy | 0.10 [0.10-0.10] | 5.00 [4.00-6.00] |" in table.latency(RESULTS)
    assert list(table.sizing(one_target))[2] == (
        "| Headrace, `bare`: a key, tags, a price | 3,000 | 10,000 | 200 |"
    )


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


def test_build_is_described() -> None:
    assert describe_build("'--enable-optimizations' '--with-lto'") == "built with PGO and LTO"
    assert describe_build("'--prefix=/usr'") == "built without PGO or LTO"
