"""Ledgers of earlier and later versions, and processes of two versions on one file."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proxy.errors import ClientDisconnected
from proxy.ledger import call_counters
from proxy.ledger.audit import audit
from proxy.ledger.call_counters import CallCounters
from proxy.ledger.jsonl import refused_path
from proxy.ledger.schema import MIGRATIONS
from proxy.ledger.sqlite import prune_ledger
from proxy.ledger.store import Unusable, Unwritten
from tests.ledger.conftest import Stores
from tests.ledger.kept import PRICED, FakeLog, as_version, book, finished, kept, ledger_at
from tests.ledger.test_jsonl import files_of_at_most
from tests.ledger.test_spending import summed, written

NAME = "0123456789abcdef"
PREVIOUS_VERSION = len(MIGRATIONS) - 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_later_schema_version_is_not_changed(path: Path, store: Stores) -> None:
    store(path)[0].open()
    with closing(sqlite3.connect(path)) as file:
        versions = [row[0] for row in file.execute("SELECT version FROM migrations")]
        assert versions == [*range(1, len(MIGRATIONS) + 1)]
        file.execute("INSERT INTO migrations VALUES (?)", [len(MIGRATIONS) + 1])
        file.commit()

    with pytest.raises(Unusable, match="later version"):
        store(path)[0].open()


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_migrates_old_ledger_after_reading(version: int, path: Path, store: Stores) -> None:
    remaining = finished(PRICED)
    remaining.error, remaining.attempts[0].finished = ClientDisconnected(), False
    fake_log = FakeLog()
    keeping = ledger_at(path, fake_log)
    for record in (finished(PRICED, PRICED), remaining):
        book(keeping, record)
    keeping.close()
    now = {name: kept(path, name) for name in ("runs", "calls", "attempts")}
    sums = summed(path, "loss")

    as_version(path, version)
    assert summed(path, "loss") == sums
    assert audit(path).violations == ()
    rows_before = {name: kept(path, name) for name in ("runs", "attempts")}
    assert version > 4 or rows_before != {name: now[name] for name in rows_before}

    store(path)[0].open()
    unknown = {"cache_write_1h_tokens": None, "web_searches": None} if version < 7 else {}
    charges = ("charge_count", "charged_nano_usd", "charges_checksum")
    unstated = dict.fromkeys(charges) if version < 10 else {}
    assert kept(path, "calls") == [{**row, **unstated} for row in now["calls"]]
    assert kept(path, "attempts") == [{**row, **unknown} for row in now["attempts"]]
    assert kept(path, "runs")[0] == {**now["runs"][0], "charges": int(version > 4)}
    assert {line.group for line in sums.lines} == {("client_left",), ("retry",), (None,)}


def versions(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("SELECT MAX(version) FROM migrations").fetchone()[0])


def backup_of(path: Path, version: int) -> Path:
    return path.with_name(f"{path.name}.v{version}.backup")


@pytest.mark.parametrize("version", [1, PREVIOUS_VERSION])
def test_ledger_is_backed_up_before_migration(version: int, path: Path) -> None:
    written(path, finished(PRICED), finished(PRICED, PRICED))
    as_version(path, version)
    rows = {table: kept(path, table) for table in ("runs", "calls", "attempts")}

    written(path, finished(PRICED))

    backup = backup_of(path, version)
    assert (versions(backup), versions(path)) == (version, len(MIGRATIONS))
    assert {table: kept(backup, table) for table in rows} == rows
    assert backup.stat().st_mode & 0o777 == 0o640
    backup.unlink()
    written(path, finished(PRICED))
    assert not backup.exists()


def test_ledger_is_unchanged_if_backup_fails(path: Path, store: Stores) -> None:
    written(path, *[finished(PRICED)] * 200)
    as_version(path, PREVIOUS_VERSION)

    with files_of_at_most(64 * 1024), pytest.raises(Unwritten, match=r"FULL|IOERR"):
        store(path)[0].open()

    assert versions(path) == PREVIOUS_VERSION
    store(path)[0].open()
    assert versions(path) == len(MIGRATIONS)


@pytest.mark.parametrize("command", ["serve", "prune"])
def test_ledger_in_use_by_older_process_is_not_migrated(command: str, path: Path) -> None:
    written(path, finished(PRICED))
    as_version(path, PREVIOUS_VERSION)
    with closing(sqlite3.connect(path)) as file:
        file.execute(
            "INSERT INTO runs (name, version, started_ms, seen_ms) VALUES (?, '0.9', 0, 0)", [NAME]
        )
        file.commit()
    earlier = CallCounters(call_counters.folder(path.parent), NAME)

    def migrate() -> None:
        if command == "prune":
            prune_ledger(path, 0, 0)
        else:
            ledger_at(path, FakeLog()).close()

    with pytest.raises(Unusable, match=r"a process of version 0\.9 writes it; stop that process"):
        migrate()
    assert (versions(path), backup_of(path, PREVIOUS_VERSION).exists()) == (PREVIOUS_VERSION, False)
    earlier.close(settled=True)
    migrate()
    assert versions(path) == len(MIGRATIONS)


def test_rows_for_migrated_ledger_are_set_aside(path: Path) -> None:
    """It cannot see that, where its counts cannot be seen, as from another container."""
    fake_log = FakeLog()
    keeping = ledger_at(path, fake_log)
    with closing(sqlite3.connect(path)) as later:
        later.execute("ALTER TABLE calls RENAME COLUMN cost_nano_usd TO cost_pico_usd")
        later.execute("INSERT INTO migrations VALUES (?)", [len(MIGRATIONS) + 1])
        later.commit()
    book(keeping, *[finished(PRICED) for _ in range(3)])
    keeping.close()

    lines = [json.loads(line) for line in refused_path(path).read_text().splitlines()]
    assert [line["call"]["cost_nano_usd"] for line in lines] == [22_000] * 3
    assert fake_log.drops == {"refused": 3}
    assert fake_log.failures == []
    [(event, fields)] = fake_log.events
    assert (event, fields["calls"]) == ("ledger.rows_refused", 3)
    assert fields["reasons"] == ["a later version of Headrace has changed the tables"]
