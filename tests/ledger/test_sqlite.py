"""Ledgers in SQLite and JSON Lines: whole batches, versions, crashed runs, and foreign files."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_FSIZE, getrlimit, setrlimit
from typing import Any, get_args

import pytest

from proxy.call.attempts import AttemptReason, BudgetCharge, LossReason, SpendUse
from proxy.ledger.audit import audit
from proxy.ledger.jsonl import JsonlStore, RefusedRows, get_refused_rows_path
from proxy.ledger.rows import Row, Rows, make_rows
from proxy.ledger.store import Counts, LedgerUnusable, LedgerWriteFailed
from proxy.money.usage import Source
from tests.for_each import for_each
from tests.ledger.conftest import Stores
from tests.ledger.records import PRICED, call_entry, finished_record, stored_rows


def batch(*seqs: int) -> list[Rows]:
    return [make_rows(call_entry(seq, finished_record(PRICED, PRICED))) for seq in seqs]


def charged(*charges: tuple[int, str, str, int]) -> list[Rows]:
    """Return the rows of a call with charges of 7 nano-USD, given seq, budget, scope and time."""
    columns = ("seq", "budget", "scope", "started_ms", "cost_nano_usd")
    rows: list[Row] = [dict(zip(columns, (*charge, 7), strict=True)) for charge in charges]
    return [batch(1)[0]._replace(charges=rows)]


def counted(ended: int, dropped: int = 0) -> Counts:
    return Counts(ended, ended, dropped, 0)


def test_batch_and_its_count_are_written_together(path: Path, store: Stores) -> None:
    kept_in, _ = store(path)
    kept_in.write(batch(1, 2, 3), counted(3))
    kept_in.close(counted(3))

    assert [row["seq"] for row in stored_rows(path)] == [1, 2, 3]
    assert len(stored_rows(path, "attempts")) == 6
    [run] = stored_rows(path, "runs")
    assert (run["ended"], run["settled"], run["written"]) == (3, 3, 3)
    assert run["closed_ms"] == 1_700_000_000_000


def test_batch_of_any_size_is_written(path: Path, store: Stores) -> None:
    kept_in, _ = store(path)
    kept_in.write(batch(*range(1, 3001)), counted(3000))

    assert len(stored_rows(path)) == 3000
    assert len(stored_rows(path, "attempts")) == 6000


def test_retried_batch_is_not_stored_twice(path: Path, store: Stores) -> None:
    kept_in, _ = store(path)
    rows = batch(1, 2)
    kept_in.write(rows, counted(2))
    reopened, _ = store(path)
    reopened.run = kept_in.run  # the same process repeats a write whose success it missed
    reopened.write(rows, counted(2))

    assert len(stored_rows(path)) == 2
    [run] = stored_rows(path, "runs")
    assert (run["settled"], run["written"]) == (2, 2)


def test_moved_file_is_replaced_with_its_log(path: Path, store: Stores) -> None:
    logs: list[Path | None] = []
    kept_in, _ = store(path, logs=logs)
    kept_in.write(batch(1, 2), counted(2))
    moved = path.rename(path.with_name("moved"))

    kept_in.write(batch(3), counted(3))
    kept_in.close(counted(3))

    assert [row["seq"] for row in stored_rows(path)] == [3]
    [run] = stored_rows(path, "runs")
    assert (run["settled"], run["written"]) == (3, 1)
    assert audit(path).violations == ()
    [log] = logs
    assert log is not None
    log.rename(f"{moved}-wal")
    assert [row["seq"] for row in stored_rows(moved)] == [1, 2]


@pytest.mark.parametrize("notice", ["write", "prune", "close"])
def test_deleted_file_is_reported_once(notice: str, path: Path, store: Stores) -> None:
    logs: list[Path | None] = []
    kept_in, _ = store(path, logs=logs)
    kept_in.write(batch(1), counted(1))
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()

    if notice == "prune":
        kept_in.prune()
    if notice == "write":
        kept_in.write(batch(2), counted(2))
    assert logs == ([] if notice == "close" else [None])
    kept_in.close(counted(2))

    assert logs == [None]
    assert len(stored_rows(path, "runs")) == 1


def test_replaced_file_keeps_its_log(path: Path, store: Stores) -> None:
    logs: list[Path | None] = []
    kept_in, _ = store(path, logs=logs)
    kept_in.write(batch(1), counted(1))
    other_store, _ = store(path.with_name("other"))
    other_store.write(batch(7), counted(1))
    for suffix in ("-wal", "-shm", ""):
        Path(f"{path}{suffix}").unlink()
        Path(f"{path.with_name('other')}{suffix}").rename(f"{path}{suffix}")

    kept_in.write(batch(2), counted(2))

    assert [row["seq"] for row in stored_rows(path)] == [7, 2]
    assert logs == [None]


def test_write_waits_for_a_lock(path: Path, store: Stores) -> None:
    kept_in, _ = store(path)
    kept_in.open()
    with closing(sqlite3.connect(path, isolation_level=None)) as other_connection:
        other_connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerWriteFailed, match="SQLITE_BUSY"):
            kept_in.write(batch(1), counted(1))
    kept_in.write(batch(1), counted(1))

    assert len(stored_rows(path)) == 1


def test_schema_allows_every_value_of_a_record(path: Path, store: Stores) -> None:
    store(path)[0].open()
    with closing(sqlite3.connect(path)) as file:
        query = "SELECT sql FROM sqlite_master WHERE name = 'attempts'"
        [statement] = file.execute(query).fetchone()

    for words in (AttemptReason, Source, SpendUse, LossReason):
        for word in get_args(words):
            assert f"'{word}'" in statement


def test_unreachable_folder_stops_no_pruning(tmp_path: Path, store: Stores) -> None:
    folder = tmp_path / "ledger"
    folder.mkdir()
    kept_there, _ = store(folder / "ledger.db")
    kept_there.write(batch(1), counted(1))
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("a file in its place")

    assert not kept_there.prune()
    with pytest.raises(LedgerWriteFailed):
        kept_there.write(batch(2), counted(2))


NOTHING = Counts(0, 0, 0, 0)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Limit the size of files, as a full disk does."""
    _, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        setrlimit(RLIMIT_FSIZE, (RLIM_INFINITY, hard))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_call_and_attempt_lines_share_the_request_id(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    store = JsonlStore(path, "abc")
    store.write(batch(1, 2), NOTHING)
    store.close(NOTHING)

    output = lines(path)
    assert [line["row"] for line in output] == ["call", "attempt", "attempt"] * 2
    assert [(line["run"], line["seq"]) for line in output] == [("abc", 1)] * 3 + [("abc", 2)] * 3
    assert (output[0]["tags"], output[0]["models"]) == ({"team": "support"}, ["gpt-4o-mini"])
    assert (output[0]["stream"], output[2]["served"], output[1]["served"]) == (False, True, False)
    assert output[0]["time"].endswith("+00:00")


def test_call_line_has_its_charges(tmp_path: Path) -> None:
    record = finished_record(PRICED)
    record.charges = [BudgetCharge("month", "tag.team:support", 22_000)]
    JsonlStore(tmp_path / "ledger", "abc").write([make_rows(call_entry(1, record))], NOTHING)

    call, _ = lines(tmp_path / "ledger")
    charge = {"budget": "month", "scope": "tag.team:support", "cost_nano_usd": 22_000}
    assert call["charges"] == [charge]


def test_line_cut_by_full_disk_is_completed_later(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    store = JsonlStore(path, "abc")
    rows_again = batch(1)
    with files_of_at_most(100), pytest.raises(LedgerWriteFailed, match="EFBIG"):
        store.write(rows_again, NOTHING)
    assert path.stat().st_size == 100

    store.write(rows_again, NOTHING)

    assert [line["row"] for line in lines(path)] == ["call", "attempt", "attempt"]


def test_full_device_may_have_space_later() -> None:
    store = JsonlStore(Path("/dev/full"), "abc")

    with pytest.raises(LedgerWriteFailed, match="ENOSPC"):
        store.write(batch(1), NOTHING)


def test_line_cut_by_kill_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_text('{"row": "ca')

    JsonlStore(path, "abc").write(batch(1), NOTHING)

    torn, *complete_lines = path.read_text().splitlines()
    assert torn == '{"row": "ca'
    assert [json.loads(line)["row"] for line in complete_lines] == ["call", "attempt", "attempt"]


def test_rotated_file_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    store = JsonlStore(path, "abc")
    store.write(batch(1), NOTHING)
    os.rename(path, tmp_path / "ledger.1")
    store.write(batch(2), NOTHING)
    os.rename(path, tmp_path / "ledger.2")
    path.touch()
    store.write(batch(3), NOTHING)

    files = (tmp_path / "ledger.1", tmp_path / "ledger.2", path)
    assert [lines(file)[0]["seq"] for file in files] == [1, 2, 3]


@for_each("content", [b"notes\n", b"SQLite format 3\0", b'{"my": "notes"}\n', b"\n"])
def test_foreign_file_is_not_changed(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)

    with pytest.raises(LedgerUnusable, match="is not a Headrace ledger"):
        JsonlStore(path, "abc").open()

    assert path.read_bytes() == content


def add(path: Path, status: int = 200, tag: str = "support") -> None:
    record = finished_record(PRICED)
    record.status = status
    rows = make_rows(call_entry(7, record))
    rows.call["tags"] = tag
    RefusedRows(path, "run").add("SQLITE_CONSTRAINT", rows)


def test_refused_rows_are_readable(tmp_path: Path) -> None:
    path = get_refused_rows_path(tmp_path / "ledger.db")
    add(path, status=2**70, tag="\ud800")
    add(path)

    first_value, second = (json.loads(line) for line in path.read_text().splitlines())
    assert path.name == "ledger.db.refused.jsonl"
    assert path.stat().st_mode & 0o777 == 0o640
    assert (first_value["run"], first_value["reason"]) == ("run", "SQLITE_CONSTRAINT")
    assert first_value["call"]["seq"] == 7
    assert first_value["call"]["status"] == 2**70
    assert second["attempts"][0]["upstream"] == "openai"


def test_permanent_and_transient_errors_differ(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnusable):
        add(tmp_path / "missing" / "file")
    with pytest.raises(LedgerWriteFailed) as full:
        add(Path("/dev/full"))

    assert full.value.reason == "ENOSPC"
