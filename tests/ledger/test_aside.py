"""Rows that a store refuses: kept whole, whatever they hold, or it is said that they are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.ledger.aside import RefusedRows, aside_of
from proxy.ledger.rows import noted, rows_of
from proxy.ledger.store import Unusable, Unwritten
from tests.ledger.kept import PRICED, finished


def add(path: Path, status: int = 200, tag: str = "support") -> None:
    record = finished(PRICED)
    record.status = status
    rows = rows_of(noted(7, record))
    rows.calls[0] = (*rows.calls[0][:-1], tag)
    RefusedRows(path, "run").add("SQLITE_CONSTRAINT", rows)


def test_what_no_store_can_hold_is_kept_for_a_person_to_read(tmp_path: Path) -> None:
    path = aside_of(tmp_path / "ledger.db")
    add(path, status=2**70, tag="\ud800")
    add(path)

    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert path.name == "ledger.db.refused.jsonl"
    assert path.stat().st_mode & 0o777 == 0o640
    assert (first["run"], first["reason"], first["call"]["seq"]) == ("run", "SQLITE_CONSTRAINT", 7)
    assert first["call"]["status"] == 2**70
    assert second["attempts"][0]["upstream"] == "openai"


def test_a_place_that_can_never_be_written_is_told_from_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        add(tmp_path / "missing" / "file")
    with pytest.raises(Unwritten) as full:
        add(Path("/dev/full"))

    assert full.value.reason == "ENOSPC"
