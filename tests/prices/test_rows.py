"""Merging of price tables, which keeps the prices of past days."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from proxy.policy import schema
from proxy.prices.rows import (
    PriceRow,
    Rows,
    Table,
    find_current_row,
    format_table_lines,
    make_row,
    merge_tables,
)
from tests.for_each import for_each

TODAY = date(2026, 6, 1)
EARLIER, LATER = date(2026, 1, 1), date(2026, 9, 1)
OLD, NEW, NEXT = "input: 1", "input: 2", "input: 3"


def table(**names: Rows) -> Table:
    return {"openai": names}


def merge(old: Rows, new: Rows) -> Rows:
    result, _ = merge_tables(table(smol=old), table(smol=new), TODAY)
    return result["openai"]["smol"]


@for_each(
    ("old", "new", "rows"),
    [
        ((PriceRow(None, OLD),), (PriceRow(None, OLD),), (PriceRow(None, OLD),)),
        ((PriceRow(None, OLD),), (PriceRow(None, NEW),),
            (PriceRow(None, OLD), PriceRow(TODAY, NEW))),
        ((PriceRow(None, OLD),), (PriceRow(EARLIER, NEW),),
            (PriceRow(None, OLD), PriceRow(TODAY, NEW))),
        ((PriceRow(None, OLD),), (PriceRow(None, OLD), PriceRow(LATER, NEW)),
            (PriceRow(None, OLD), PriceRow(LATER, NEW))),
        ((PriceRow(None, OLD), PriceRow(LATER, NEW)), (PriceRow(None, OLD), PriceRow(LATER, NEXT)),
            (PriceRow(None, OLD), PriceRow(LATER, NEXT))),
        ((PriceRow(None, NEXT), PriceRow(EARLIER, OLD)),
            (PriceRow(None, NEW), PriceRow(EARLIER, OLD)),
            (PriceRow(None, NEXT), PriceRow(EARLIER, OLD))),
        ((PriceRow(None, OLD), PriceRow(TODAY, NEW)), (PriceRow(None, NEXT),),
            (PriceRow(None, OLD), PriceRow(TODAY, NEXT))),
    ],
    ids=["same", "dearer", "dearer-since", "announced", "otherwise", "corrected", "twice-a-day"],
)  # fmt: skip
def test_new_price_applies_from_today(old: Rows, new: Rows, rows: Rows) -> None:
    assert merge(old, new) == rows


def test_changes_are_listed() -> None:
    old = table(
        stays=(PriceRow(None, OLD),), moves=(PriceRow(None, OLD),), goes=(PriceRow(None, OLD),)
    )
    new = table(
        stays=(PriceRow(None, OLD),), moves=(PriceRow(None, NEW),), comes=(PriceRow(None, NEW),)
    )

    result, changes = merge_tables(old, new, TODAY)

    assert changes == {
        "openai comes": "added", "openai goes": "missing", "openai moves": "changed"
    }  # fmt: skip
    assert list(result["openai"]) == ["comes", "goes", "moves", "stays"]


DAYS = st.dates(date(2026, 1, 1), date(2026, 12, 31))
ROWS = st.dictionaries(st.none() | DAYS, st.sampled_from([OLD, NEW, NEXT]), min_size=1).map(
    lambda rows: tuple(
        PriceRow(day, text) for day, text in sorted(rows.items(), key=lambda e: e[0] or date.min)
    )
)


@given(ROWS, ROWS, DAYS)
def test_merge_keeps_history(old: Rows, new: Rows, day: date) -> None:
    rows = merge(old, new)
    old_row, new_row = find_current_row(old, TODAY), find_current_row(new, TODAY)

    if old_row is not None and day < TODAY:
        assert find_current_row(rows, day) == find_current_row(old, day)
    result, expected = (
        find_current_row(rows, max(day, TODAY)),
        find_current_row(new, max(day, TODAY)),
    )
    if new_row is not None:
        assert result is not None
        assert expected is not None
        assert result.amounts == expected.amounts
    assert merge(rows, new) == rows


def test_prices_survive_a_round_trip() -> None:
    price = schema.PriceConfig.model_validate(
        {
            "from": "2026-01-01",
            "output": 10.50,
            "input": "2",
            "tiers": [{"above": 200000, "input": 4}],
        }
    )

    assert make_row(price) == PriceRow(
        EARLIER, "input: 2, output: 10.5, tiers: [{above: 200000, input: 4}]"
    )
    assert price.output == Decimal("10.5")


def test_latest_row_is_first() -> None:
    rows = {
        "smol": (PriceRow(None, OLD),),
        "gpt*": (PriceRow(None, OLD), PriceRow(TODAY, NEW)),
        "4x": (),
    }

    assert list(format_table_lines({"openai": {n: r for n, r in rows.items() if r}})) == [
        "prices:", "  openai:", "    smol: {input: 1}", "    gpt*:",
        "      - {from: 2026-06-01, input: 2}", "      - {input: 1}"
    ]  # fmt: skip
