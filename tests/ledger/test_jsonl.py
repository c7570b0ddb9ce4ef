"""Lines of JSON: whole ones, whatever a disk or a log rotation does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_FSIZE, getrlimit, setrlimit
from typing import Any

import pytest

from proxy.call.attempts import BudgetCharge
from proxy.ledger.jsonl import JsonlStore, RefusedRows, refused_path
from proxy.ledger.rows import rows_of
from proxy.ledger.store import Counts, Unusable, Unwritten
from tests.for_each import for_each
from tests.ledger.kept import PRICED, call_entry, finished
from tests.ledger.test_sqlite import batch

NOTHING = Counts(0, 0, 0, 0)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk on which only so much of a file fits."""
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
    record = finished(PRICED)
    record.charges = [BudgetCharge("month", "tag.team:support", 22_000)]
    JsonlStore(tmp_path / "ledger", "abc").write(rows_of(call_entry(1, record)), NOTHING)

    call, _ = lines(tmp_path / "ledger")
    assert call["charges"] == [
        {"budget": "month", "scope": "tag.team:support", "cost_nano_usd": 22_000}
    ]


def test_line_cut_by_full_disk_is_completed_later(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    store = JsonlStore(path, "abc")
    rows_again = batch(1)
    with files_of_at_most(100), pytest.raises(Unwritten, match="EFBIG"):
        store.write(rows_again, NOTHING)
    assert path.stat().st_size == 100

    store.write(rows_again, NOTHING)

    assert [line["row"] for line in lines(path)] == ["call", "attempt", "attempt"]


def test_a_full_device_may_have_room_later() -> None:
    store = JsonlStore(Path("/dev/full"), "abc")

    with pytest.raises(Unwritten, match="ENOSPC"):
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

    assert [
        lines(item)[0]["seq"] for item in (tmp_path / "ledger.1", tmp_path / "ledger.2", path)
    ] == [1, 2, 3]


@for_each("content", [b"notes\n", b"SQLite format 3\0", b'{"my": "notes"}\n', b"\n"])
def test_foreign_file_is_not_changed(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)

    with pytest.raises(Unusable, match="is not a Headrace ledger"):
        JsonlStore(path, "abc").open()

    assert path.read_bytes() == content


def test_a_place_that_cannot_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="Is a directory"):
        JsonlStore(tmp_path, "abc").open()


def add(path: Path, status: int = 200, tag: str = "support") -> None:
    record = finished(PRICED)
    record.status = status
    rows = rows_of(call_entry(7, record))
    rows.calls[0] = (*rows.calls[0][:-1], tag)
    RefusedRows(path, "run").add("SQLITE_CONSTRAINT", rows)


def test_refused_rows_are_readable(tmp_path: Path) -> None:
    path = refused_path(tmp_path / "ledger.db")
    add(path, status=2**70, tag="\ud800")
    add(path)

    first_value, second = (json.loads(line) for line in path.read_text().splitlines())
    assert path.name == "ledger.db.refused.jsonl"
    assert path.stat().st_mode & 0o777 == 0o640
    assert (first_value["run"], first_value["reason"], first_value["call"]["seq"]) == (
        "run",
        "SQLITE_CONSTRAINT",
        7,
    )
    assert first_value["call"]["status"] == 2**70
    assert second["attempts"][0]["upstream"] == "openai"


def test_permanent_and_transient_errors_differ(tmp_path: Path) -> None:
    with pytest.raises(Unusable):
        add(tmp_path / "missing" / "file")
    with pytest.raises(Unwritten) as full:
        add(Path("/dev/full"))

    assert full.value.reason == "ENOSPC"
