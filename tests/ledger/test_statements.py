"""SQL of the ledger and usage reports: inserts, pruning, tables, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proxy.call.attempts import BudgetCharge
from proxy.ledger.audit import audit
from proxy.ledger.render import BAR_WIDTH, format_csv, format_json, format_table
from proxy.ledger.rows import make_rows
from proxy.ledger.spending import SpendingLine, SpendingReport
from proxy.ledger.sqlite import PRUNE_INTERVAL_MS, ProcessRun, SqliteStore
from proxy.ledger.statements import MAX_PARAMETERS, PRUNE_BATCH, get_prune_limit_ms
from proxy.ledger.store import Counts
from tests.cli.test_init import headrace
from tests.ledger.conftest import Dying, Stores
from tests.ledger.records import (
    PRICED,
    FakeLog,
    book,
    call_entry,
    finished_record,
    ledger_at,
    stored_rows,
)
from tests.ledger.test_spending import write_ledger
from tests.ledger.test_sqlite import batch, charged, counted
from tests.servers import eventually

OVER_ONE_STATEMENT = MAX_PARAMETERS // 5 + 3


def test_charges_refer_to_their_budget(tmp_path: Path, store: Stores) -> None:
    kept_in, _ = store(tmp_path / "ledger")
    for seqs in (range(1, 4), range(4, OVER_ONE_STATEMENT)):
        charges = ((seq, f"b{seq % 5}", "key:one", seq) for seq in seqs)
        kept_in.write(charged(*charges), counted(1))

    numbers = {row["id"]: row["name"] for row in stored_rows(tmp_path / "ledger", "budgets")}
    rows = stored_rows(tmp_path / "ledger", "charges")
    assert sorted(numbers.values()) == ["b0", "b1", "b2", "b3", "b4"]
    assert len(rows) == OVER_ONE_STATEMENT - 1
    assert all(numbers[row["budget"]] == f"b{row['seq'] % 5}" for row in rows)
    assert (rows[0]["started_ms"], rows[0]["cost_nano_usd"], rows[0]["cost_usd"]) == (1, 7, 7e-9)


def test_existing_rows_are_not_changed(tmp_path: Path, store: Stores) -> None:
    kept_in, _ = store(tmp_path / "ledger")
    rows = [*charged((1, "b1", "key:one", 1), (2, "b2", "key:one", 2)), *batch(2)]
    for _ in range(2):
        kept_in.write(rows, counted(2))

    tables = ("calls", "attempts", "charges")
    sizes = [len(stored_rows(tmp_path / "ledger", table)) for table in tables]
    assert sizes == [2, 4, 2]
    [run] = stored_rows(tmp_path / "ledger", "runs")
    assert (run["written"], run["charges"]) == (2, 1)


def test_first_charge_of_a_budget_is_recorded(tmp_path: Path, store: Stores) -> None:
    kept_in, _ = store(tmp_path / "ledger")
    for started in ([30, 20, 40], [50, 10], [60]):
        charges = ((index, "team", "key:one", index) for index in started)
        kept_in.write(charged(*charges), counted(1))

    with closing(sqlite3.connect(tmp_path / "ledger")) as file:
        assert [*file.execute("SELECT name, since_ms FROM charged_since")] == [("team", 10)]


DAY_MS = 86_400_000
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def aged(days: float, now: datetime = NOW, number: int = 1) -> Any:
    """Return a call some days ago with two attempts that cost 44 micro-USD."""
    record = finished_record(PRICED, PRICED)
    record.started_at = now - timedelta(days=days)
    record.charges = [BudgetCharge(f"of call {number}", "", 44_000)]
    return record


@dataclass
class Clock:
    ms: int = field(default_factory=lambda: ms(NOW))

    def __call__(self) -> int:
        return self.ms


def filled(
    dying: Dying, path: Path, clock: Callable[[], int], ages: list[float], keep: int = 90
) -> SqliteStore:
    run = ProcessRun("0" * 16, "1", path.parent, clock, keep * DAY_MS)
    store = dying(SqliteStore(path, run, lambda crash: None, lambda log: None))
    rows = [make_rows(call_entry(seq, aged(days, number=seq))) for seq, days in enumerate(ages, 1)]
    store.write(rows, Counts(len(ages), len(ages), 0, 0))
    return store


def test_pruned_rows_stay_counted(path: Path, dying: Dying) -> None:
    store = filled(dying, path, Clock(), [200, 100, 91, 89, 1])

    assert store.prune() is False
    store.close(Counts(5, 5, 0, 0))

    assert [row["seq"] for row in stored_rows(path)] == [4, 5]
    assert {row["seq"] for row in stored_rows(path, "attempts")} == {4, 5}
    assert [row["seq"] for row in stored_rows(path, "charges")] == [4, 5]
    assert {row["name"] for row in stored_rows(path, "budgets")} == {"of call 4", "of call 5"}
    with closing(sqlite3.connect(path)) as file:
        names = file.execute("SELECT name FROM charged_since").fetchall()
    assert names == [("of call 4",), ("of call 5",)]
    [run] = stored_rows(path, "runs")
    assert (run["written"], run["pruned"], run["pruned_nano_usd"]) == (5, 3, 132_000)
    report = audit(path)
    assert report.violations == ()
    assert "3 calls were pruned (cost $0.000132)" in report.text()


def test_missing_unpruned_row_is_a_violation(path: Path, dying: Dying) -> None:
    store = filled(dying, path, Clock(), [200, 100, 1])
    store.prune()
    store.close(Counts(3, 3, 0, 0))
    with closing(sqlite3.connect(path)) as file:
        for table in ("calls", "attempts", "charges"):
            file.execute(f"DELETE FROM {table} WHERE seq = 3")  # noqa: S608  # our own names
        file.commit()

    [violation] = audit(path).violations
    assert "more or fewer rows" in violation


def test_rows_are_pruned_in_batches(path: Path, dying: Dying) -> None:
    store = filled(dying, path, Clock(), [100 + n / 1000 for n in range(PRUNE_BATCH + 3)])

    assert (store.prune(), len(stored_rows(path))) == (True, 3)
    assert (store.prune(), len(stored_rows(path))) == (False, 0)


def test_rows_are_pruned_at_intervals(path: Path, dying: Dying) -> None:
    clock = Clock()
    store = filled(dying, path, clock, [200, 89.9999])
    store.prune()
    clock.ms += PRUNE_INTERVAL_MS - 1
    store.prune()
    early_count = len(stored_rows(path))
    clock.ms += 1
    store.prune()

    assert (early_count, len(stored_rows(path))) == (1, 0)


def test_without_retention_rows_stay(path: Path, dying: Dying) -> None:
    store = filled(dying, path, Clock(), [2000])
    store.run = replace(store.run, retention_ms=None)

    assert store.prune() is False
    assert len(stored_rows(path)) == 1


@pytest.mark.parametrize(
    ("now", "begin"),
    [
        ("2026-11-21T12:00", "2026-10-31T10:00"),  # November begins first at UTC+14
        ("2026-12-01T06:00", "2026-10-31T10:00"),  # it is still November at UTC-12
        ("2026-12-01T13:00", "2026-11-29T10:00"),  # and this week begins before December
    ],
)
def test_prune_limit_keeps_budget_windows(now: str, begin: str) -> None:
    index = ms(datetime.fromisoformat(now).replace(tzinfo=UTC))

    assert get_prune_limit_ms(index, index) == ms(datetime.fromisoformat(begin).replace(tzinfo=UTC))
    assert get_prune_limit_ms(5, index) == 5


async def test_writer_prunes_in_background(path: Path) -> None:
    write_ledger(path, aged(200, datetime.now(UTC)), finished_record())
    fake_log = FakeLog()
    opened = ledger_at(path, fake_log, 90)
    book(opened, finished_record())
    try:
        await eventually(lambda: [row["run"] for row in stored_rows(path)] == [1, 2])
    finally:
        opened.close()

    assert audit(path).violations == ()


async def test_prune_command_keeps_rows_for_budgets(path: Path) -> None:
    now = datetime.now(UTC)
    recent = now - timedelta(seconds=9)  # younger than the second that the commands keep
    write_ledger(path, aged(400, now), aged(100, now), aged(0, recent))

    first_count, output = await headrace("ledger", "prune", str(path), "--keep", "365d")
    prune = "ledger", "prune", str(path)
    second, second_output = await headrace(*prune, "--before", f"{now:%Y-%m-%d}")
    third, retained = await headrace("ledger", "prune", str(path), "--before", "1s")
    fourth, fourth_output = await headrace("ledger", "prune", str(path), "--before", "2020-01-31")

    assert (first_count, second, third, fourth) == (0, 0, 0, 0)
    assert output.startswith("1 call pruned (cost $0.000044)")
    assert second_output.startswith("1 call pruned")
    assert re.fullmatch(
        r"0 calls pruned\nkept 1 call before .*, because budgets of this week or month may need "
        r"the data\n",
        retained,
    )
    assert fourth_output == "0 calls pruned: none started before 2020-01-31 00:00 UTC\n"
    assert (len(stored_rows(path)), audit(path).violations) == (1, ())


SUPPORT = SpendingLine(("support",), 3, 1500, 900, 2_500_000_000, 22_000, 0, 3, 0, 1)
SEARCH = SpendingLine(("search",), 2, 10, 6, 1_250_000_000, 0, 0, 2, 1, 0)
UNKNOWN = SpendingLine((None,), 1, 0, 0, None, 0, 0, 1, 1, 1)
TOTAL = SpendingLine((), 6, 1510, 906, 3_750_000_000, 22_000, 0, 6, 2, 2)
SINCE, UNTIL = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC)
REPORT = SpendingReport(("tag.team",), SINCE, UNTIL, (SUPPORT, SEARCH, UNKNOWN), TOTAL)


def test_table_has_groups_bars_and_total() -> None:
    time, heads, support, search, unknown, total = format_table(REPORT).splitlines()

    assert time == "2026-01-01 00:00 to 2026-01-31 00:00 UTC"
    assert heads.split("  ")[0] == "tag.team"
    assert support.endswith("█" * BAR_WIDTH)
    assert search.endswith("█" * (BAR_WIDTH // 2))
    assert "█" * (BAR_WIDTH // 2 + 1) not in search
    assert unknown.split() == [
        "-",
        "1",
        "0",
        "0",
        "-",
        "$0.000000",
        "$0.000000",
        "1",
        "100.0%",
        "100.0%",
    ]
    assert total.split()[:4] == ["total", "6", "1,510", "906"]
    assert "$3.750000" in total


def test_bars_show_calls_without_costs() -> None:
    report = SpendingReport(("key",), SINCE, UNTIL, (UNKNOWN,), UNKNOWN)
    without_groups = SpendingReport((), SINCE, UNTIL, (), TOTAL)

    assert format_table(report).splitlines()[2].endswith("█" * BAR_WIDTH)
    assert len(format_table(without_groups).splitlines()) == 3
    assert len(format_csv(without_groups).splitlines()) == 2


def test_terminal_control_characters_are_removed() -> None:
    odd = SpendingLine(("a\x1b[2J",), 1, 0, 0, 0, 0, 0, 0, 0, 0)

    assert "\x1b" not in format_table(SpendingReport(("tag.feature",), SINCE, UNTIL, (odd,), odd))


def test_csv_leaves_unknown_values_empty() -> None:
    assert format_csv(REPORT).splitlines() == [
        "tag.team,calls,tokens_in,tokens_out,cost_usd,lost_cost_usd,saved_usd,attempts,unpriced,estimated",
        "support,3,1500,900,2.500000,0.000022,0.000000,3,0.0,0.3333",
        "search,2,10,6,1.250000,0.000000,0.000000,2,0.5,0.0",
        ",1,0,0,,0.000000,0.000000,1,1.0,1.0",
    ]


@pytest.mark.parametrize("first_text", ["=", "+", "-", "@", "\uff1d", "\t", "\r", "\n"])
def test_csv_contains_no_formulas(first_text: str) -> None:
    name = f"{first_text}1+1"
    line = SpendingLine((name, "a=b"), 1, 2, 3, 4, 0, 0, 1, 0, 0)
    report = SpendingReport(("tag.a", "key"), SINCE, UNTIL, (line,), line)

    [_, row] = csv.reader(io.StringIO(format_csv(report), newline=""))

    assert row[0] in (f"'{name}", "?1+1")
    assert row[1:6] == ["a=b", "1", "2", "3", "0.000000004"]


def test_json_has_nulls_for_unknown_values() -> None:
    document = json.loads(format_json(REPORT))

    assert document["groups"][0]["group"] == {"tag.team": "support"}
    assert [group["cost_usd"] for group in document["groups"]] == ["2.500000", "1.250000", None]
    assert (document["total"]["calls"], document["total"]["unpriced"]) == (6, 0.3333)
