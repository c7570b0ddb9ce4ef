"""Rows into tables: many with a statement, each once, whatever was there before."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from proxy.ledger.inserting import MAX_PARAMETERS
from proxy.ledger.rows import CHARGE, Row, Rows
from tests.ledger.conftest import Stores
from tests.ledger.kept import kept
from tests.ledger.test_sqlite import batch, counted

MANY = MAX_PARAMETERS // len(CHARGE) + 3


def charged(seqs: range, budgets: int = 5) -> Rows:
    charges: list[Row] = [(seq, f"b{seq % budgets}", "key:one", seq, 7) for seq in seqs]
    return Rows([], [], charges)


def test_charges_find_the_number_of_their_budget(tmp_path: Path, store: Stores) -> None:
    kept_in, _ = store(tmp_path / "ledger")
    for seqs in (range(1, 4), range(4, MANY)):
        kept_in.write(charged(seqs), counted(0))

    numbers = {row["id"]: row["name"] for row in kept(tmp_path / "ledger", "budgets")}
    rows = kept(tmp_path / "ledger", "charges")
    assert sorted(numbers.values()) == ["b0", "b1", "b2", "b3", "b4"]
    assert len(rows) == MANY - 1
    assert all(numbers[row["budget"]] == f"b{row['seq'] % 5}" for row in rows)
    assert (rows[0]["started_ms"], rows[0]["cost_nano_usd"], rows[0]["cost_usd"]) == (1, 7, 7e-9)


def test_what_is_there_already_stays_as_it_is(tmp_path: Path, store: Stores) -> None:
    kept_in, _ = store(tmp_path / "ledger")
    rows = Rows(*batch(1, 2)[:2], charged(range(1, 3)).charges)
    for _ in range(2):
        kept_in.write(rows, counted(2))

    sizes = [len(kept(tmp_path / "ledger", table)) for table in ("calls", "attempts", "charges")]
    assert sizes == [2, 4, 2]
    [run] = kept(tmp_path / "ledger", "runs")
    assert (run["written"], run["charges"]) == (2, 1)


def test_a_budget_has_charges_since_the_first_of_them_began(tmp_path: Path, store: Stores) -> None:
    kept_in, _ = store(tmp_path / "ledger")
    for began in ([30, 20, 40], [50, 10], [60]):
        charges: list[Row] = [(at, "team", "key:one", at, 7) for at in began]
        kept_in.write(Rows([], [], charges), counted(0))

    with closing(sqlite3.connect(tmp_path / "ledger")) as file:
        assert [*file.execute("SELECT name, since_ms FROM charged_since")] == [("team", 10)]
