"""The audit of a ledger finds changes and silently lost rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy.call.attempts import BudgetCharge
from proxy.ledger.audit import CHECK_QUERIES, MAX_POLLS, audit
from proxy.ledger.schema import FIRST_VERSION
from proxy.ledger.sqlite import open_for_reading
from proxy.ledger.store import LedgerUnusable
from tests.cli.test_init import headrace
from tests.ledger import records
from tests.ledger.test_spending import write_ledger

MEDDLED = (
    ("more or fewer rows", "DELETE FROM calls WHERE seq = 2; DELETE FROM attempts WHERE seq = 2"),
    ("attempts without a call", "DELETE FROM calls WHERE seq = 1"),
    ("missing attempts", "DELETE FROM attempts WHERE seq = 1 AND number = 1"),
    ("cost differs from", "UPDATE attempts SET cost_nano_usd = 1 WHERE seq = 1 AND number = 1"),
    ("tokens differ from", "UPDATE calls SET tokens = tokens + 1 WHERE seq = 2"),
    ("tokens but without usage", "UPDATE attempts SET usage_source = 'none' WHERE seq = 1"),
    (
        "calls with the same trace and span id",
        "UPDATE calls SET (trace_id, span_id) = "
        "(SELECT trace_id, span_id FROM calls WHERE seq = 1) WHERE seq = 2",
    ),
    ("without settling every call", "UPDATE runs SET begun = begun + 1"),
    ("settled more than ended", "UPDATE runs SET settled = settled + 1"),
    ("number of ended calls", "UPDATE calls SET seq = 9 WHERE seq = 2"),
    ("without a run", "UPDATE calls SET run = 7 WHERE seq = 1"),
    ("missing run numbers", "UPDATE runs SET id = 3; UPDATE calls SET run = 3"),
    (
        "missing run numbers",
        "INSERT INTO runs (id, name, version, started_ms, seen_ms) VALUES (3, '', '', 0, 0)",
    ),
    ("charges without a call", "UPDATE charges SET seq = 9 WHERE seq = 1"),
    ("unknown budget", "DELETE FROM budgets"),
    ("cost or start differs from", "UPDATE charges SET cost_nano_usd = cost_nano_usd + 1"),
    ("missing or changed charges", "DELETE FROM charges WHERE seq = 3"),
    ("missing or changed charges", "UPDATE charges SET cost_nano_usd = 2000 WHERE seq = 3"),
    ("missing or changed charges", "UPDATE charges SET budget = budget + 1"),
    (
        "missing or changed charges",
        "INSERT INTO budgets (name, scope) VALUES ('other', ''); UPDATE charges SET budget = 2",
    ),
    ("missing or changed charges", "UPDATE budgets SET name = 'other'"),
    ("missing or changed charges", "UPDATE budgets SET scope = ''"),
    ("missing or changed charges", "INSERT INTO charges VALUES (1, 2, 1, 0, 0)"),
    ("missing or changed charges", "UPDATE calls SET charge_count = 0 WHERE seq = 1"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    calls = (
        records.finished_record(records.PRICED, records.PRICED),
        records.finished_record(),
        records.finished_record(records.UNPRICED),
        records.finished_record(),
    )
    calls[0].charges = [BudgetCharge("month", "tag.team:support", 44_000)]
    # More than the recorded cost.
    calls[2].charges = [BudgetCharge("month", "tag.team:support", 1_000)]
    return write_ledger(tmp_path / "ledger", *calls)


def test_consistent_ledger_is_valid(path: Path) -> None:
    report = audit(path)

    assert (report.calls, report.attempts, report.runs, report.violations) == (4, 5, 1, ())
    assert report.text().endswith("valid: every call has a row, and every row has a call")


@pytest.mark.parametrize(("words", "script"), MEDDLED)
def test_each_kind_of_tampering_is_named(words: str, script: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.executescript(script)

    assert any(words in violation for violation in audit(path).violations)


def test_zero_token_counts_of_old_versions_are_valid(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.executescript("""
            DELETE FROM charges WHERE seq = 1;
            UPDATE calls SET (tokens, cost_nano_usd, charge_count) = (NULL, NULL, NULL)
              WHERE seq = 1;
            UPDATE attempts SET usage_source = 'none', cost_nano_usd = 0, input_tokens = 0,
              cached_input_tokens = 0, cache_write_tokens = 0, audio_input_tokens = 0,
              output_tokens = 0, reasoning_tokens = 0, audio_output_tokens = 0 WHERE seq = 1""")

    assert audit(path).violations == ()


def test_every_check_has_a_case() -> None:
    for check in CHECK_QUERIES:
        assert any(words in check for words, _ in MEDDLED), check


async def test_verify_command_reports_violations(path: Path) -> None:
    good, _ = await headrace("verify-ledger", str(path))
    with closing(sqlite3.connect(path)) as file:
        file.executescript("UPDATE calls SET tokens = 7")
    bad, output = await headrace("verify-ledger", str(path))

    assert (good, bad) == (0, 1)
    differ = "calls whose tokens differ from the tokens of their attempts"
    assert f"violation: {differ}: 4 (1/1, 1/2" in output


async def test_usage_command_prints_totals(path: Path) -> None:
    code, output = await headrace("usage", str(path), "--by", "money", "--since", "1h")
    wrong, why = await headrace("usage", str(path), "--by", "team")
    early_code, _ = await headrace("usage", str(path), "--since", "2026-01-01", "--until", "1d")

    by_endpoint, rows = await headrace("usage", str(path), "--by", "endpoint")
    default_code, forms = await headrace("usage", str(path), "--since", "yesterday")

    assert (code, wrong, early_code, by_endpoint, default_code) == (0, 1, 0, 0, 2)
    assert rows.splitlines()[1].split()[:2] == ["endpoint", "calls"]
    assert '"yesterday" must be an age such as 12h or 30d, or a UTC time' in forms
    assert output.splitlines()[1].split()[:2] == ["money", "calls"]
    assert "tag.NAME. For a tag, use tag.team" in why


def test_other_file_cannot_be_checked(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    with pytest.raises(LedgerUnusable, match="is not a Headrace ledger"):
        audit(tmp_path / "empty")


def test_audit_reports_calls_that_are_never_written(tmp_path: Path) -> None:
    """The counts file is next to the ledger, whose thread has not written for long."""
    path, fake_log = tmp_path / "ledger", records.FakeLog()
    keeping = records.ledger_at(path, fake_log)
    slept: list[float] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        records.book(keeping, records.finished_record())
        report_behind = audit(path, sleep=slept.append)
    keeping.close()

    assert report_behind.violations == ("1 call has no row",)
    assert report_behind.text().startswith("0 calls, 0 attempts, 1 run\n")
    advice = "to accept the missing calls: verify-ledger --known-missing 1"
    assert report_behind.text().endswith(advice)
    assert len(slept) == MAX_POLLS
    assert audit(path).violations == ()


def test_old_ledger_is_polled_without_migration(path: Path) -> None:
    """Copying a large ledger for each check would be slow and fill the disk."""
    records.as_version(path, FIRST_VERSION)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("UPDATE runs SET closed_ms = NULL, settled = settled - 1")
        file.execute("ALTER TABLE attempts RENAME TO unmigratable")
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 3:
                file.execute("ALTER TABLE unmigratable RENAME TO attempts")
                file.execute("UPDATE runs SET settled = settled + 1")

        report = audit(path, sleep=sleep)

    assert len(slept) == 3
    assert report.unsettled == 0
    assert (report.calls, report.attempts) == (4, 5)


def test_full_temporary_folder_is_named(path: Path) -> None:
    with pytest.raises(LedgerUnusable, match="no space for temporary files"):  # noqa: SIM117
        with open_for_reading(path) as file:
            file.execute("CREATE TEMP TABLE sorted (text)")
            file.execute("PRAGMA temp.max_page_count = 2")
            file.execute("INSERT INTO sorted VALUES (zeroblob(1000000))")
