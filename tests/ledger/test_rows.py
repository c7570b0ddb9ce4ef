"""Rows and tables: known values in columns, unknown ones as NULL, money rounded once."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.call.meter import Meter
from proxy.call.record import Record, new_record
from proxy.errors import ClientDisconnected
from proxy.errors.words import MAX_WORD, MAX_WORDS
from proxy.ledger.audit import audit
from proxy.ledger.crashes import CallCounters, get_counters_folder
from proxy.ledger.jsonl import get_refused_rows_path
from proxy.ledger.rows import TOKEN_COLUMNS, make_rows
from proxy.ledger.schema import FIRST_VERSION, MIGRATIONS, SCHEMA_VERSION
from proxy.ledger.sqlite import prune_ledger
from proxy.ledger.store import LedgerUnusable, LedgerWriteFailed
from proxy.money.usage import read_chat_usage
from proxy.types import Call
from tests.doubles import usage
from tests.ledger.conftest import Stores
from tests.ledger.records import (
    HEAD,
    PRICED,
    UNPRICED,
    FakeLog,
    as_version,
    book,
    call_entry,
    finished_record,
    ledger_at,
    stored_rows,
)
from tests.ledger.test_spending import summed, write_ledger
from tests.ledger.test_sqlite import files_of_at_most


def rows(record: Record) -> tuple[Any, Any]:
    return make_rows(call_entry(1, record))[:2]


def test_call_has_a_row_and_each_attempt_has_one() -> None:
    call, [attempt] = rows(finished_record())

    assert (call["outcome"], call["attempts"], call["tokens"]) == ("success", 1, 8)
    assert call["cost_nano_usd"] == attempt["cost_nano_usd"] == 22_000
    assert orjson.loads(call["tags"]) == {"team": "support"}
    assert orjson.loads(call["models"]) == ["gpt-4o-mini"]
    assert (attempt["input_tokens"], attempt["output_tokens"], attempt["money"]) == (5, 3, "useful")


def test_one_hour_writes_and_searches_have_columns() -> None:
    record = finished_record()
    used = usage(prompt=9, completion=3)
    used["prompt_tokens_details"] = {"cache_write_tokens": 6}
    used["cache_creation"] = {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 4}
    used["server_tool_use"] = {"web_search_requests": 2}
    record.attempts[0].meter.set_reported_usage(read_chat_usage(used))

    call, [attempt] = rows(record)

    assert (attempt["cache_write_tokens"], attempt["cache_write_1h_tokens"]) == (6, 4)
    assert (attempt["web_searches"], call["tokens"]) == (2, 12)


def test_unknown_values_are_null() -> None:
    stranger = new_record()
    stranger.ended = stranger.started
    call, attempts = rows(stranger)

    assert attempts == []
    for name in ("request_id", "key", "tags", "models", "stream", "tokens", "cost_nano_usd"):
        assert call[name] is None, name


def test_attempt_without_response_has_no_usage() -> None:
    record = finished_record()
    record.attempts[0].response_at = None
    record.used_attempts.clear()

    call, [attempt] = rows(record)

    assert (attempt["usage_source"], attempt["input_tokens"]) == ("none", None)
    assert attempt["cost_nano_usd"] is call["cost_nano_usd"] is call["tokens"] is None


def test_unknown_counts_are_null() -> None:
    record = finished_record()
    record.attempts[0].meter = Meter(estimates=False, unreported="unknown")

    call, [attempt] = rows(record)

    counts = (*TOKEN_COLUMNS, "cache_write_1h_tokens", "web_searches", "cost_nano_usd")
    assert {name: attempt[name] for name in counts} == dict.fromkeys(counts)
    assert (attempt["usage_source"], call["tokens"]) == ("unknown", None)


def test_sum_with_unknown_part_is_unknown() -> None:
    call, attempts = rows(finished_record(UNPRICED, PRICED))

    assert [row["cost_nano_usd"] for row in attempts] == [None, 22_000]
    assert (call["cost_nano_usd"], call["tokens"]) == (None, 16)


def test_client_values_are_truncated_and_printable() -> None:
    record = finished_record()
    record.call = Call(HEAD, {}, requested_models=("a\n\x1b[31m\udcff" + "x" * 500,) * 1000)
    record.plan = replace(finished_record().plan, tags={"feature": "a\u2028b"})  # type: ignore[type-var]

    call, _ = rows(record)

    models = orjson.loads(call["models"])
    assert len(models) == MAX_WORDS
    assert all(len(model) == MAX_WORD and model.isprintable() for model in models)
    assert orjson.loads(call["tags"]) == {"feature": "a?b"}


def test_times_are_milliseconds_since_epoch() -> None:
    record = finished_record()
    record.started_at = datetime(2026, 1, 2, 3, 4, 5, 678999, tzinfo=UTC)
    record.ended = record.started + 1.5

    call, _ = rows(record)

    assert (call["started_ms"], call["duration_us"]) == (1767323045678, 1_500_000)


NAME = "0123456789abcdef"
PREVIOUS_VERSION = SCHEMA_VERSION - 1


def test_later_schema_version_is_not_changed(path: Path, store: Stores) -> None:
    store(path)[0].open()
    with closing(sqlite3.connect(path)) as file:
        versions = [row[0] for row in file.execute("SELECT version FROM migrations")]
        assert versions == [*MIGRATIONS]
        file.execute("INSERT INTO migrations VALUES (?)", [SCHEMA_VERSION + 1])
        file.commit()

    with pytest.raises(LedgerUnusable, match="later version"):
        store(path)[0].open()


def test_ledger_from_before_the_first_release_is_refused(path: Path, store: Stores) -> None:
    write_ledger(path, finished_record(PRICED))
    as_version(path, FIRST_VERSION)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE migrations SET version = version - 1")
        file.commit()
    before = path.read_bytes()

    for read in (store(path)[0].open, lambda: summed(path), lambda: audit(path)):
        with pytest.raises(LedgerUnusable, match=r"before 0\.1\.0 .* Start 0\.1\.0 with it first"):
            read()
    assert path.read_bytes() == before
    assert not backup_of(path, FIRST_VERSION - 1).exists()


@pytest.mark.parametrize("version", range(FIRST_VERSION, SCHEMA_VERSION))
def test_old_ledger_is_migrated_after_reading(version: int, path: Path, store: Stores) -> None:
    remaining = finished_record(PRICED)
    remaining.error, remaining.attempts[0].finished = ClientDisconnected(), False
    write_ledger(path, finished_record(PRICED, PRICED), remaining)
    now = {name: stored_rows(path, name) for name in ("runs", "calls", "attempts")}
    sums = summed(path, "loss")

    as_version(path, version)
    assert summed(path, "loss") == sums
    assert audit(path).violations == ()
    assert stored_rows(path, "runs") == now["runs"]

    store(path)[0].open()
    charges = ("charge_count", "charged_nano_usd", "charges_checksum")
    unstated = dict.fromkeys(charges) if version < 10 else {}
    assert stored_rows(path, "calls") == [{**row, **unstated} for row in now["calls"]]
    assert stored_rows(path, "attempts") == now["attempts"]
    assert stored_rows(path, "runs")[0] == now["runs"][0]


def versions(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("SELECT MAX(version) FROM migrations").fetchone()[0])


def backup_of(path: Path, version: int) -> Path:
    return path.with_name(f"{path.name}.v{version}.backup")


@pytest.mark.parametrize("version", [FIRST_VERSION, PREVIOUS_VERSION])
def test_ledger_is_backed_up_before_migration(version: int, path: Path) -> None:
    write_ledger(path, finished_record(PRICED), finished_record(PRICED, PRICED))
    as_version(path, version)
    rows = {table: stored_rows(path, table) for table in ("runs", "calls", "attempts")}

    write_ledger(path, finished_record(PRICED))

    backup = backup_of(path, version)
    assert (versions(backup), versions(path)) == (version, SCHEMA_VERSION)
    assert {table: stored_rows(backup, table) for table in rows} == rows
    assert backup.stat().st_mode & 0o777 == 0o640
    backup.unlink()
    write_ledger(path, finished_record(PRICED))
    assert not backup.exists()


def test_ledger_is_unchanged_if_backup_fails(path: Path, store: Stores) -> None:
    write_ledger(path, *[finished_record(PRICED)] * 200)
    as_version(path, PREVIOUS_VERSION)

    with files_of_at_most(64 * 1024), pytest.raises(LedgerWriteFailed, match=r"FULL|IOERR"):
        store(path)[0].open()

    assert versions(path) == PREVIOUS_VERSION
    store(path)[0].open()
    assert versions(path) == SCHEMA_VERSION


@pytest.mark.parametrize("command", ["serve", "prune"])
def test_ledger_in_use_by_older_process_is_not_migrated(command: str, path: Path) -> None:
    write_ledger(path, finished_record(PRICED))
    as_version(path, PREVIOUS_VERSION)
    with closing(sqlite3.connect(path)) as file:
        insert = "INSERT INTO runs (name, version, started_ms, seen_ms) VALUES (?, '0.9', 0, 0)"
        file.execute(insert, [NAME])
        file.commit()
    earlier = CallCounters(get_counters_folder(path.parent), NAME)

    def migrate() -> None:
        if command == "prune":
            prune_ledger(path, 0, 0)
        else:
            ledger_at(path, FakeLog()).close()

    problem = r"a process of version 0\.9 writes it; stop that process"
    with pytest.raises(LedgerUnusable, match=problem):
        migrate()
    assert (versions(path), backup_of(path, PREVIOUS_VERSION).exists()) == (PREVIOUS_VERSION, False)
    earlier.close(settled=True)
    migrate()
    assert versions(path) == SCHEMA_VERSION


def test_rows_for_migrated_ledger_are_set_aside(path: Path) -> None:
    """The migrating process cannot see the counts of a process in another container."""
    fake_log = FakeLog()
    keeping = ledger_at(path, fake_log)
    with closing(sqlite3.connect(path)) as later:
        later.execute("ALTER TABLE calls RENAME COLUMN cost_nano_usd TO cost_pico_usd")
        later.execute("INSERT INTO migrations VALUES (?)", [SCHEMA_VERSION + 1])
        later.commit()
    book(keeping, *[finished_record(PRICED) for _ in range(3)])
    keeping.close()

    lines = [json.loads(line) for line in get_refused_rows_path(path).read_text().splitlines()]
    assert [line["call"]["cost_nano_usd"] for line in lines] == [22_000] * 3
    assert fake_log.drops == {"refused": 3}
    assert fake_log.failures == []
    [(event, fields)] = fake_log.entries
    assert (event, fields["calls"]) == ("ledger.rows_refused", 3)
    assert fields["reasons"] == ["a later version of Headrace has changed the tables"]
