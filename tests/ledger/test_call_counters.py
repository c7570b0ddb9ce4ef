"""Two counts that a killed process leaves behind, and that nobody takes from a living one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from proxy.ledger.call_counters import (
    CallCounters,
    ProcessCounts,
    folder,
    forget,
    read_process_counts,
)

NAME = "0123456789abcdef"


def test_a_living_process_is_seen_as_one(tmp_path: Path) -> None:
    counters = CallCounters(tmp_path, NAME)
    counters.begin()
    counters.begin()

    counters.end()
    assert read_process_counts(tmp_path, NAME) == ProcessCounts(2, 1, alive=True)
    counters.close(settled=True)


def test_counts_file_stays_unless_settled(tmp_path: Path) -> None:
    for settled in (True, False):
        counters = CallCounters(tmp_path, NAME)
        counters.begin()
        counters.close(settled=settled)

        counts = read_process_counts(tmp_path, NAME)
        assert counts == (None if settled else ProcessCounts(1, 0, alive=False))

    forget(tmp_path, NAME)
    assert list(tmp_path.iterdir()) == []


def test_a_kill_takes_no_count_away(tmp_path: Path) -> None:
    script = f"""
import os, pathlib
from proxy.ledger.call_counters import CallCounters
counters = CallCounters(pathlib.Path({str(tmp_path)!r}), {NAME!r})
for _ in range(1000): counters.begin()
for _ in range(999): counters.end()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)

    assert read_process_counts(tmp_path, NAME) == ProcessCounts(1000, 999, alive=False)


def test_without_a_place_it_counts_for_itself(tmp_path: Path) -> None:
    for place in (None, tmp_path / "missing"):
        counters = CallCounters(place, NAME)
        counters.begin()
        counters.end()
        assert (counters.ended, counters.started) == (1, 1)
        counters.close(settled=True)


def test_only_drawn_names_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / "headrace-x").write_bytes(bytes(16))

    assert read_process_counts(tmp_path, "x") is None
    forget(tmp_path, "x")
    assert (tmp_path / "headrace-x").exists()


def test_a_file_of_something_else_says_nothing(tmp_path: Path) -> None:
    (tmp_path / f"headrace-{NAME}").write_bytes(b"odd")

    assert read_process_counts(tmp_path, NAME) is None


def test_counters_are_in_shared_memory(tmp_path: Path) -> None:
    assert folder(tmp_path) in (Path("/dev/shm"), tmp_path)  # noqa: S108  # only looked at
