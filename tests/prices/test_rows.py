"""Tables of prices joined with later ones: what was in force is never said otherwise."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from proxy.policy import schema
from proxy.prices.rows import Row, Rows, Table, current_row, merge_tables, row_of, table_lines
from tests.for_each import for_each

TODAY = date(2026, 6, 1)
BEFORE, LATER = date(2026, 1, 1), date(2026, 9, 1)
OLD, NEW, NEXT = "input: 1", "input: 2", "input: 3"


def table(**names: Rows) -> Table:
    return {"openai": names}


def joined(had: Rows, has: Rows) -> Rows:
    result, _ = merge_tables(table(smol=had), table(smol=has), TODAY)
    return result["openai"]["smol"]


@for_each(
    ("had", "has", "rows"),
    [
        ((Row(None, OLD),), (Row(None, OLD),), (Row(None, OLD),)),
        (
            (Row(None, OLD),),
            (Row(None, NEW),),
            (Row(None, OLD), Row(TODAY, NEW)),
        ),
        (
            (Row(None, OLD),),
            (Row(BEFORE, NEW),),
            (Row(None, OLD), Row(TODAY, NEW)),
        ),
        (
            (Row(None, OLD),),
            (Row(None, OLD), Row(LATER, NEW)),
            (Row(None, OLD), Row(LATER, NEW)),
        ),
        (
            (Row(None, OLD), Row(LATER, NEW)),
            (Row(None, OLD), Row(LATER, NEXT)),
            (Row(None, OLD), Row(LATER, NEXT)),
        ),
        (
            (Row(None, NEXT), Row(BEFORE, OLD)),
            (Row(None, NEW), Row(BEFORE, OLD)),
            (Row(None, NEXT), Row(BEFORE, OLD)),
        ),
        (
            (Row(None, OLD), Row(TODAY, NEW)),
            (Row(None, NEXT),),
            (Row(None, OLD), Row(TODAY, NEXT)),
        ),
    ],
    ids=["same", "dearer", "dearer-since", "announced", "otherwise", "corrected", "twice-a-day"],
)
def test_a_new_price_counts_from_the_day_on_which_it_is_learned(
    had: Rows, has: Rows, rows: Rows
) -> None:
    assert joined(had, has) == rows


def test_what_is_new_changed_and_gone_is_named() -> None:
    old = table(stays=(Row(None, OLD),), moves=(Row(None, OLD),), goes=(Row(None, OLD),))
    new = table(stays=(Row(None, OLD),), moves=(Row(None, NEW),), comes=(Row(None, NEW),))

    result, changes = merge_tables(old, new, TODAY)

    assert (changes.added, changes.changed, changes.missing) == (
        ("openai comes",),
        ("openai moves",),
        ("openai goes",),
    )
    assert list(result["openai"]) == ["comes", "goes", "moves", "stays"]


DAYS = st.dates(date(2026, 1, 1), date(2026, 12, 31))
ROWS = st.dictionaries(st.none() | DAYS, st.sampled_from([OLD, NEW, NEXT]), min_size=1).map(
    lambda said: tuple(
        Row(day, text) for day, text in sorted(said.items(), key=lambda e: e[0] or date.min)
    )
)


@given(ROWS, ROWS, DAYS)
def test_history_stays_and_what_is_in_force_from_today_on_is_as_the_later_table_says(
    had: Rows, has: Rows, day: date
) -> None:
    rows = joined(had, has)
    was, now = current_row(had, TODAY), current_row(has, TODAY)

    if was is not None and day < TODAY:
        assert current_row(rows, day) == current_row(had, day)
    result, expected = current_row(rows, max(day, TODAY)), current_row(has, max(day, TODAY))
    if now is not None:
        assert result is not None
        assert expected is not None
        assert result.amounts == expected.amounts
    assert joined(rows, has) == rows


def test_a_price_is_written_as_it_was_read() -> None:
    price = schema.PriceConfig.model_validate(
        {
            "from": "2026-01-01",
            "output": 10.50,
            "input": "2",
            "tiers": [{"above": 200000, "input": 4}],
        }
    )

    assert row_of(price) == Row(
        BEFORE, "input: 2, output: 10.5, tiers: [{above: 200000, input: 4}]"
    )
    assert price.output == Decimal("10.5")


def test_the_latest_row_of_a_name_is_written_first() -> None:
    rows = {
        "smol": (Row(None, OLD),),
        "gpt*": (Row(None, OLD), Row(TODAY, NEW)),
        "4x": (),
    }

    assert list(table_lines({"openai": {n: r for n, r in rows.items() if r}})) == [
        "prices:",
        "  openai:",
        "    smol: {input: 1}",
        "    gpt*:",
        "      - {from: 2026-06-01, input: 2}",
        "      - {input: 1}",
    ]
