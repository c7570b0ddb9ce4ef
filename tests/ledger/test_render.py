"""Sums as a person and a machine read them."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import pytest

from proxy.ledger.render import BAR, FORMS, as_csv, as_json, table
from proxy.ledger.spending import SpendingLine, SpendingReport

SUPPORT = SpendingLine(("support",), 3, 1500, 900, 2_500_000_000, 22_000, 0, 3, 0, 1)
SEARCH = SpendingLine(("search",), 2, 10, 6, 1_250_000_000, 0, 0, 2, 1, 0)
UNKNOWN = SpendingLine((None,), 1, 0, 0, None, 0, 0, 1, 1, 1)
TOTAL = SpendingLine((), 6, 1510, 906, 3_750_000_000, 22_000, 0, 6, 2, 2)
SINCE, UNTIL = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC)
REPORT = SpendingReport(("tag.team",), SINCE, UNTIL, (SUPPORT, SEARCH, UNKNOWN), TOTAL)


def test_table_has_groups_bars_and_total() -> None:
    time, heads, support, search, unknown, total = table(REPORT).splitlines()

    assert time == "2026-01-01 00:00 to 2026-01-31 00:00 UTC"
    assert heads.split("  ")[0] == "tag.team"
    assert support.endswith("█" * BAR)
    assert search.endswith("█" * (BAR // 2))
    assert "█" * (BAR // 2 + 1) not in search
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

    assert table(report).splitlines()[2].endswith("█" * BAR)


def test_without_groups_there_is_one_line() -> None:
    assert len(table(SpendingReport((), SINCE, UNTIL, (), TOTAL)).splitlines()) == 3
    assert len(as_csv(SpendingReport((), SINCE, UNTIL, (), TOTAL)).splitlines()) == 2


def test_what_a_terminal_would_obey_is_not_shown() -> None:
    odd = SpendingLine(("a\x1b[2J",), 1, 0, 0, 0, 0, 0, 0, 0, 0)

    assert "\x1b" not in table(SpendingReport(("tag.feature",), SINCE, UNTIL, (odd,), odd))


def test_csv_leaves_what_is_unknown_empty() -> None:
    assert as_csv(REPORT).splitlines() == [
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

    [_, row] = csv.reader(io.StringIO(as_csv(report), newline=""))

    assert row[0] in (f"'{name}", "?1+1")
    assert row[1:6] == ["a=b", "1", "2", "3", "0.000000004"]


def test_json_has_nulls_for_unknown_values() -> None:
    document = json.loads(as_json(REPORT))

    assert document["groups"][0]["group"] == {"tag.team": "support"}
    assert [group["cost_usd"] for group in document["groups"]] == ["2.500000", "1.250000", None]
    assert (document["total"]["calls"], document["total"]["unpriced"]) == (6, 0.3333)


def test_all_forms_have_a_name() -> None:
    assert sorted(FORMS) == ["csv", "json", "table"]
