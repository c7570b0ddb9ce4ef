"""The tables that a measurement comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import results, table
from bench.machine import optimisations


def closed(cpu: list[float]) -> dict[str, Any]:
    return {"closed": {"cpu_us": cpu, "p50_us": [10.0, 10.0], "p99_us": [15.0, 17.0]}}


def opened(p50: list[float]) -> dict[str, Any]:
    return {"open": {"p50_us": p50, "p99_us": [4000.0, 6000.0]}}


KEPT: dict[str, Any] = {
    "settings": {"rounds": 2, "seconds": 4},
    "processes": {"bare": {"ready_s": 0.8, "rest_mb": 60.0, "load_mb": 64.0}},
    "rounds": {
        "direct": opened([100.0, 100.0]),
        "relay": closed([100.0, 200.0]) | opened([300.0, 300.0]),
        "bare": closed([150.0, 300.0]),
        "guards": closed([250.0, 500.0]),
        "everything": closed([400.0, 840.0]) | opened([500.0, 540.0]),
    },
}


def test_what_speed_is_judged_by_is_told_in_parts_of_the_relay() -> None:
    results = dict(table.goals(KEPT))

    assert results["everything on"] == "4.10 [4.00-4.20]"
    assert results["no policy (`bare`)"] == "1.50 [1.50-1.50]"
    assert results["guards above `bare`"] == "1.00 [1.00-1.00]"
    assert results["p50 added at 100 calls a second, to the relay's"] == "2.10 [2.00-2.20]"
    assert results["p99 at 100 calls a second, ms"] == "5.00 [4.00-6.00]"
    assert results["p99 to p50 at 32 saturated, everything on"] == "1.60 [1.50-1.70]"
    assert results["memory at rest, bare, MB"] == "60.0"


def test_what_was_not_measured_is_left_out() -> None:
    assert "a hit of the cache" not in dict(table.goals(KEPT))
    assert len(list(table.streams(KEPT))) == 2


def test_a_call_is_told_with_its_ratio_and_calls_a_second() -> None:
    rows = list(table.calls(KEPT))

    assert "| everything on | 620 [400-840] | 4.10 [4.00-4.20] | 1,613 |" in rows


def test_latency_is_told_in_milliseconds() -> None:
    rows = list(table.latency(KEPT))

    assert "| no proxy | 0.10 [0.10-0.10] | 5.00 [4.00-6.00] |" in rows


def test_a_process_is_sized_by_what_a_part_of_a_core_bears() -> None:
    streams = {"stream": {"cpu_us": [60.0, 60.0], "first_us": [1.0, 1.0]}}
    stored = {**KEPT, "rounds": {"bare": closed([200.0, 200.0]) | streams}}

    assert list(table.sizing(stored))[2] == (
        "| Headrace, `bare`: a key, tags, a price | 3,000 | 10,000 | 200 |"
    )


def test_what_is_kept_is_read_again_with_four_digits(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "kept.json"
    results.write(path, {"rounds": [1.234567, 123456.7], "name": "x"})

    assert results.read(path) == {"rounds": [1.235, 123457], "name": "x"}
    assert '"rounds": [1.235, 123457]' in path.read_text()


@pytest.mark.process
def test_what_is_kept_names_no_folder_and_describes_the_machine() -> None:
    stored = results.begun(rounds=3)

    assert "/" not in str(stored)
    assert stored["machine"].keys() >= {"processor", "cores", "memory_gib", "python", "built"}
    assert stored["settings"] == {"rounds": 3}


def test_an_interpreter_is_told_with_how_it_was_built() -> None:
    assert optimisations("'--enable-optimizations' '--with-lto'") == "built with PGO and LTO"
    assert optimisations("'--prefix=/usr'") == "built without PGO or LTO"
