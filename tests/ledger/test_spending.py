"""Usage by dimension: each call once per group, unknown costs counted separately."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.call.record import Record
from proxy.ledger.crashes import CallCounters, ProcessCounts, delete_counts, read_process_counts
from proxy.ledger.spending import SpendingLine, SpendingReport, read_spending, require_known_tags
from proxy.ledger.store import LedgerUnusable
from tests.ledger.records import PRICED, UNPRICED, FakeLog, book, finished_record, ledger_at

NOW = datetime.now(UTC)


def write_ledger(path: Path, *records: Record) -> Path:
    fake_log = FakeLog()
    opened = ledger_at(path, fake_log)
    book(opened, *records)
    opened.close()
    return path


def summed(path: Path, *by: str, days: int = 30) -> SpendingReport:
    return read_spending(path, by, NOW - timedelta(days=days), NOW + timedelta(days=1))


def groups(lines: Sequence[SpendingLine]) -> list[tuple[Any, ...]]:
    return [(*line.group, line.calls, line.cost) for line in lines]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    retried = finished_record(PRICED, PRICED)
    return write_ledger(
        tmp_path / "ledger",
        finished_record(),
        retried,
        finished_record(team="search"),
        finished_record(UNPRICED),
    )


def test_calls_are_summed_by_requested_dimensions(path: Path) -> None:
    assert groups(summed(path, "tag.team").lines) == [("support", 3, 66_000), ("search", 1, 22_000)]
    by_key_and_model = groups(summed(path, "key", "model").lines)
    assert by_key_and_model == [("support-widget", "gpt-4o-mini", 4, 88_000)]
    # The test may run at midnight.
    days = {f"{moment:%Y-%m-%d}" for moment in (NOW, datetime.now(UTC))}
    lines = groups(summed(path, "day").lines)
    counts = zip(*(line[1:] for line in lines), strict=True)
    assert [*map(sum, counts)] == [4, 88_000]
    assert {day for day, _, _ in lines} <= days
    for name in ("deployment", "provider", "upstream"):
        assert [line.calls for line in summed(path, name).lines] == [4]


def test_call_in_two_groups_counts_once_in_total(path: Path) -> None:
    by_money = summed(path, "money")

    assert groups(by_money.lines) == [("useful", 4, 66_000), ("retried", 1, 22_000)]
    total = by_money.total
    assert (total.calls, total.cost, total.lost_cost) == (4, 88_000, 22_000)


@pytest.mark.parametrize("by", [("day", "model"), ("model", "day"), ("key", "model", "day")])
def test_usage_is_sorted_by_day(by: tuple[str, ...], tmp_path: Path) -> None:
    """Within a day, the most expensive group comes first."""
    old, cheap = finished_record(PRICED, PRICED), finished_record(UNPRICED)
    for call in (old, cheap):
        call.started_at = NOW - timedelta(days=3)
    path = write_ledger(tmp_path / "days", finished_record(), old, cheap)

    lines = summed(path, *by).lines
    days = [str(line.group[by.index("day")]) for line in lines]

    assert days == sorted(days)
    assert len(set(days)) >= 2
    for day in set(days):
        costs = [line.cost or 0 for line, place in zip(lines, days, strict=True) if place == day]
        assert costs == sorted(costs, reverse=True)


def test_unpriced_usage_is_a_share_of_its_group(tmp_path: Path) -> None:
    path = write_ledger(
        tmp_path / "mixed",
        finished_record(team="search"),
        finished_record(UNPRICED),
        finished_record(UNPRICED, team="search"),
    )

    by_group = {line.group[0]: line for line in summed(path, "tag.team").lines}

    assert (by_group["support"].cost, by_group["search"].cost) == (None, 22_000)
    assert (by_group["search"].unpriced, by_group["search"].attempts) == (1, 2)


def test_estimated_share_is_reported(tmp_path: Path) -> None:
    path = write_ledger(tmp_path / "guessed", finished_record(fields={}), finished_record())

    total = summed(path).total

    assert (total.estimated, total.attempts) == (1, 2)


def test_only_calls_of_the_requested_period_count(tmp_path: Path) -> None:
    old = finished_record()
    old.started_at = NOW - timedelta(days=40)
    path = write_ledger(tmp_path / "old", old, finished_record())

    assert (summed(path).total.calls, summed(path, days=60).total.calls) == (1, 2)


def test_empty_usage_is_zero(tmp_path: Path) -> None:
    total = summed(write_ledger(tmp_path / "empty")).total

    assert (total.calls, total.tokens_in, total.cost, total.lost_cost) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", ["team", "tag.", "tag.a'b", 'tag.a"', "c.key", ""])
def test_unknown_dimension_is_refused(name: str, path: Path) -> None:
    with pytest.raises(LedgerUnusable, match=r"does not exist\. Available: key, deployment"):
        summed(path, name)


def test_other_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, but long enough" * 100)

    for name, why in (("text", "not a SQLite file"), ("missing", "cannot be opened")):
        with pytest.raises(LedgerUnusable, match=why):
            summed(tmp_path / name)


def test_tag_without_calls_is_refused(path: Path) -> None:
    require_known_tags(path, summed(path, "tag.team"))
    with pytest.raises(LedgerUnusable, match=r'^no call in this ledger has the tag "nope"'):
        require_known_tags(path, summed(path, "tag.nope"))


def test_period_must_not_end_before_its_start(path: Path) -> None:
    with pytest.raises(LedgerUnusable, match="is before --since"):
        read_spending(path, (), NOW, NOW - timedelta(days=1))


NAME = "0123456789abcdef"


def test_counts_file_stays_unless_settled(tmp_path: Path) -> None:
    for settled in (True, False):
        counters = CallCounters(tmp_path, NAME)
        counters.count_begin()
        counters.count_begin()
        counters.count_end()
        assert read_process_counts(tmp_path, NAME) == ProcessCounts(2, 1, is_alive=True)
        counters.close(settled=settled)

        counts = read_process_counts(tmp_path, NAME)
        assert counts == (None if settled else ProcessCounts(2, 1, is_alive=False))

    delete_counts(tmp_path, NAME)
    assert list(tmp_path.iterdir()) == []


def test_kill_loses_no_count(tmp_path: Path) -> None:
    script = f"""
import os, pathlib
from proxy.ledger.crashes import CallCounters
counters = CallCounters(pathlib.Path({str(tmp_path)!r}), {NAME!r})
for _ in range(1000): counters.count_begin()
for _ in range(999): counters.count_end()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)

    assert read_process_counts(tmp_path, NAME) == ProcessCounts(1000, 999, is_alive=False)


def test_counters_without_a_file_count_in_memory(tmp_path: Path) -> None:
    for place in (None, tmp_path / "missing"):
        counters = CallCounters(place, NAME)
        counters.count_begin()
        counters.count_end()
        assert (counters.ended, counters.started) == (1, 1)
        counters.close(settled=True)


def test_other_files_are_neither_read_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "headrace-x").write_bytes(bytes(16))
    (tmp_path / f"headrace-{NAME}").write_bytes(b"odd")

    assert read_process_counts(tmp_path, NAME) is None
    assert read_process_counts(tmp_path, "x") is None
    delete_counts(tmp_path, "x")
    assert (tmp_path / "headrace-x").exists()
