"""Periods of the money page: days and weeks of a time zone, across a change of clocks."""

from __future__ import annotations

import csv
import io
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from proxy.console.money import list_period_edges, make_period_column
from proxy.ledger.spending import QueryBounds, read_spending
from proxy.ledger.sqlite import interrupt_after, open_for_reading
from proxy.ledger.store import LedgerUnusable
from proxy.settings import LedgerLocation
from proxy.types.windows import Calendar, Unit
from tests.console.shop import post_chat, running_shop, wait_for_ledger
from tests.doubles import ScriptedUpstream, chat, respond
from tests.for_each import for_each

BERLIN = ZoneInfo("Europe/Berlin")


@for_each(
    ("zone", "unit", "days", "now"),
    [
        (UTC, "day", 1, datetime(2026, 11, 29, 0, 0, 1, tzinfo=UTC)),
        (UTC, "week", 30, datetime(2026, 11, 29, 12, tzinfo=UTC)),
        (BERLIN, "day", 7, datetime(2026, 3, 31, 12, tzinfo=BERLIN)),
        (BERLIN, "day", 90, datetime(2026, 11, 29, 12, tzinfo=BERLIN)),
        (BERLIN, "week", 366, datetime(2026, 11, 29, 12, tzinfo=BERLIN)),
        (ZoneInfo("Australia/Lord_Howe"), "day", 366, datetime(2026, 11, 29, tzinfo=UTC)),
    ],
)
def test_each_call_falls_into_the_period_of_its_zone(
    zone: ZoneInfo, unit: Unit, days: int, now: datetime
) -> None:
    edges = list_period_edges(now.timestamp(), days, Calendar(unit, str(zone)))
    column = make_period_column(edges)
    starts = [datetime.fromtimestamp(edge / 1000, zone) for edge in edges]
    assert all((start.hour, start.minute) == (0, 0) for start in starts)
    assert starts[-2] <= now.astimezone(zone) < starts[-1]
    assert starts[0] <= (now.astimezone(zone) - timedelta(days=days - 1)) < starts[1]
    with sqlite3.connect(":memory:") as database:
        for index, (start, end) in enumerate(pairwise(edges)):
            for time in (start, end - 1):
                query = f"SELECT {column} FROM (SELECT ? AS started_ms) c"  # noqa: S608
                [[period]] = database.execute(query, [time])
                assert period == str(index), (start, time)
    database.close()


async def test_unknown_cost_is_never_zero(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    upstream.answer_with(respond(chat("Paris.")))
    async with running_shop(tmp_path / "policies", upstream, ledger=ledger) as proxy:
        await post_chat(proxy)
        await post_chat(proxy, model="small")
        await wait_for_ledger(proxy, 2)
        with closing(sqlite3.connect(ledger.path)) as database, database:
            database.execute("UPDATE attempts SET cost_nano_usd = NULL, loss = 'upstream_broke'")
        async with proxy.client.get(f"{proxy.admin}/api/v1/money?by=deployment") as response:
            page = await response.json()

    for sums in (page["total"], *page["groups"]):
        assert (sums["cost"], sums["lost"]) == (None, None)
    assert [set(group["values"]) for group in page["groups"]] == [{0, None}] * 2
    assert [(loss["cause"], loss["nano"]) for loss in page["losses"]] == [("upstream_broke", None)]


async def test_csv_quotes_values_that_a_spreadsheet_would_run(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    names = ["=HYPERLINK(1)", "+1", "-1", "@a", 'a "quoted", name', "two\nlines"]
    upstream.answer_with(respond(chat("Paris.")))
    async with running_shop(tmp_path / "policies", upstream, ledger=ledger) as proxy:
        for _ in names:
            await post_chat(proxy)
        await wait_for_ledger(proxy, len(names))
        with closing(sqlite3.connect(ledger.path)) as database, database:
            calls = database.execute("SELECT run, seq FROM calls").fetchall()
            for name, (run, seq) in zip(names, calls, strict=True):
                query = "UPDATE calls SET deployment = ? WHERE run = ? AND seq = ?"
                database.execute(query, (name, run, seq))
        url = f"{proxy.admin}/api/v1/money?by=deployment&format=csv"
        async with proxy.client.get(url) as response:
            assert response.content_type == "text/csv"
            rows = list(csv.reader(io.StringIO(await response.text(), newline="")))

    shown = {row[0] for row in rows[1:]}
    quoted = {f"'{name}" if name[0] in "=+-@" else name for name in names}
    assert shown == {name.replace("\n", "?") for name in quoted}


async def test_tag_that_no_call_has_is_an_empty_group(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    upstream.answer_with(respond(chat("Paris.")))
    async with running_shop(tmp_path / "policies", upstream, ledger=ledger) as proxy:
        await post_chat(proxy, model="small")
        await wait_for_ledger(proxy, 1)
        url = f"{proxy.admin}/api/v1/money?by=tag.team"
        async with proxy.client.get(url) as response:
            page = await response.json()
        async with proxy.client.get(f"{url}&format=csv") as response:
            assert response.status == 200
            rows = list(csv.reader(io.StringIO(await response.text(), newline="")))

    assert [(group["name"], group["calls"]) for group in page["groups"]] == [(None, 1)]
    assert len(rows) == 2


async def test_bounds_groups_and_time_of_a_query(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    upstream.answer_with(respond(chat("Paris.")))
    async with running_shop(tmp_path / "policies", upstream, ledger=ledger) as proxy:
        await post_chat(proxy)
        await post_chat(proxy, model="small")
        await wait_for_ledger(proxy, 2)
    end = datetime.now(UTC)
    start = end - timedelta(days=1)
    report = read_spending(ledger.path, ("deployment",), start, end, bounds=QueryBounds(60, 2))
    assert len(report.lines) == 2
    with pytest.raises(LedgerUnusable, match="more than 1 groups"):
        read_spending(ledger.path, ("deployment",), start, end, bounds=QueryBounds(60, 1))
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n"
    with (
        pytest.raises(LedgerUnusable, match="takes too long"),
        open_for_reading(ledger.path) as file,
    ):
        interrupt_after(file, 0.0)
        file.execute(endless)
