"""Tables of the embedded ledger and their migrations.

A migration never changes. Processes of two versions must not write one file. The later version
does not start while it sees a process of the earlier one. A process whose file was migrated writes
its rows to the file of refused rows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from proxy.ledger.crashes import read_process_counts
from proxy.ledger.store import FILE_MODE, LedgerUnusable, RowsRefused

APPLICATION_ID = 0x48645263  # "HdRc", in the header of each ledger

FIRST_VERSION = 8
"""Version of the tables of release 0.1.0. Earlier ones cannot be read."""

# SQLite builds a temporary table per row for IN lists of more than two values.
MIGRATIONS: Mapping[int, tuple[str, ...]] = {
    FIRST_VERSION: (
        """
CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  version TEXT NOT NULL,
  started_ms INTEGER NOT NULL,
  seen_ms INTEGER NOT NULL,
  begun INTEGER NOT NULL DEFAULT 0, ended INTEGER NOT NULL DEFAULT 0,
  settled INTEGER NOT NULL DEFAULT 0, written INTEGER NOT NULL DEFAULT 0,
  dropped INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0,
  closed_ms INTEGER, crashed_ms INTEGER, exact INTEGER,
  pruned INTEGER NOT NULL DEFAULT 0,
  pruned_nano_usd INTEGER NOT NULL DEFAULT 0,
  pruned_usd REAL GENERATED ALWAYS AS (pruned_nano_usd / 1e9) VIRTUAL,
  charges INTEGER NOT NULL DEFAULT 0
)""",
        """
CREATE TABLE calls (
  run INTEGER NOT NULL REFERENCES runs, seq INTEGER NOT NULL,
  started_ms INTEGER NOT NULL, duration_us INTEGER NOT NULL,
  request_id TEXT, trace_id TEXT NOT NULL, span_id TEXT NOT NULL,
  key TEXT, deployment TEXT, tags TEXT, policy TEXT,
  dialect TEXT, endpoint TEXT, stream INTEGER, models TEXT,
  status INTEGER, outcome TEXT NOT NULL, error TEXT, cache TEXT NOT NULL,
  attempts INTEGER NOT NULL, tokens INTEGER, cost_nano_usd INTEGER,
  cost_usd REAL GENERATED ALWAYS AS (cost_nano_usd / 1e9) VIRTUAL,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID""",
        """
CREATE TABLE attempts (
  run INTEGER NOT NULL, seq INTEGER NOT NULL, number INTEGER NOT NULL, leg INTEGER NOT NULL,
  why TEXT NOT NULL CHECK (
    why = 'first' OR why = 'retry' OR why = 'fallback' OR why = 'hedge' OR why = 'guard'),
  upstream TEXT NOT NULL, provider TEXT, model TEXT NOT NULL, status INTEGER, error TEXT,
  input_tokens INTEGER, cached_input_tokens INTEGER, cache_write_tokens INTEGER,
  output_tokens INTEGER, reasoning_tokens INTEGER,
  audio_input_tokens INTEGER, audio_output_tokens INTEGER,
  tokens_in INTEGER GENERATED ALWAYS AS (
    input_tokens + cached_input_tokens + cache_write_tokens + audio_input_tokens) VIRTUAL,
  tokens_out INTEGER GENERATED ALWAYS AS (
    output_tokens + reasoning_tokens + audio_output_tokens) VIRTUAL,
  usage_source TEXT NOT NULL CHECK (
    usage_source = 'provider' OR usage_source = 'partial_estimate'
    OR usage_source = 'unknown' OR usage_source = 'none'),
  cost_nano_usd INTEGER, saved_nano_usd INTEGER, served INTEGER NOT NULL,
  money TEXT NOT NULL CHECK (
    money = 'useful' OR money = 'retried' OR money = 'abandoned' OR money = 'blocked'
    OR money = 'shadow' OR money = 'cached'),
  loss TEXT CHECK (
    loss = 'client_left' OR loss = 'refused' OR loss = 'upstream_broke' OR loss = 'guard'
    OR loss = 'retry' OR loss = 'hedge' OR loss = 'stopped'),
  cost_usd REAL GENERATED ALWAYS AS (cost_nano_usd / 1e9) VIRTUAL,
  saved_usd REAL GENERATED ALWAYS AS (saved_nano_usd / 1e9) VIRTUAL,
  cache_write_1h_tokens INTEGER, web_searches INTEGER, response_id TEXT,
  PRIMARY KEY (run, seq, number)
) WITHOUT ROWID""",
        "CREATE TABLE budgets "
        "(id INTEGER PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, UNIQUE (name, scope))",
        """
CREATE TABLE charges (
  run INTEGER NOT NULL, seq INTEGER NOT NULL, budget INTEGER NOT NULL REFERENCES budgets,
  started_ms INTEGER NOT NULL, cost_nano_usd INTEGER NOT NULL,
  cost_usd REAL GENERATED ALWAYS AS (cost_nano_usd / 1e9) VIRTUAL,
  PRIMARY KEY (run, seq, budget)
) WITHOUT ROWID""",
        "CREATE TABLE charged_since "
        "(name TEXT PRIMARY KEY, since_ms INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE INDEX calls_by_time ON calls (started_ms)",
        "CREATE INDEX charges_by_budget ON charges (budget, started_ms, cost_nano_usd)",
    ),
    9: (
        "ALTER TABLE attempts ADD COLUMN upstream_error_cause TEXT",
        "ALTER TABLE attempts ADD COLUMN upstream_error_text TEXT",
    ),
    10: (
        "ALTER TABLE calls ADD COLUMN charge_count INTEGER",
        "ALTER TABLE calls ADD COLUMN charged_nano_usd INTEGER",
        "ALTER TABLE calls ADD COLUMN charges_checksum INTEGER",
    ),
}
"""Statements by the version of the tables that they lead to."""
SCHEMA_VERSION = max(MIGRATIONS)


def migrate(file: sqlite3.Connection, path: Path, counters_folder: Path) -> None:
    """Create the tables of an empty ledger, or migrate those of an earlier version.

    Raises ``LedgerUnusable`` if the file is no ledger, or if a process whose call counters are in
    ``counters_folder`` writes to it.
    """
    file.execute("BEGIN IMMEDIATE")
    version = read_version(file)
    if version is None:
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        file.execute("CREATE TABLE migrations (version INTEGER PRIMARY KEY)")
    elif version < SCHEMA_VERSION:
        _require_no_running_process(file, counters_folder)
        _back_up(path, version)
    apply_migrations(file, version or 0)
    file.execute("COMMIT")


def apply_migrations(file: sqlite3.Connection, version: int) -> None:
    """Apply the migrations after ``version``."""
    for number, statements in MIGRATIONS.items():
        if number > version:
            for statement in statements:
                file.execute(statement)
            file.execute("INSERT INTO migrations VALUES (?)", [number])


def require_current_version(file: sqlite3.Connection) -> None:
    """Raise ``RowsRefused`` if a later version has migrated the tables."""
    [version] = file.execute("SELECT MAX(version) FROM migrations").fetchone()
    if version != SCHEMA_VERSION:
        raise RowsRefused("a later version of Headrace has changed the tables")


def _require_no_running_process(file: sqlite3.Connection, counters_folder: Path) -> None:
    """Raise ``LedgerUnusable`` while another process writes the file."""
    query = "SELECT name, version FROM runs WHERE closed_ms IS NULL AND crashed_ms IS NULL"
    for name, version in file.execute(query).fetchall():
        counts = read_process_counts(counters_folder, name)
        if counts is not None and counts.is_alive:
            raise LedgerUnusable(
                f"a process of version {version} writes it; stop that process first"
            )


def _back_up(path: Path, version: int) -> None:
    """Copy a ledger to a file whose name has the version of the tables."""
    copy = path.with_name(f"{path.name}.v{version}.backup")
    part = copy.with_name(f"{copy.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
    with (
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file,
        closing(sqlite3.connect(part)) as target,
    ):
        file.backup(target)
    part.replace(copy)


def read_version(file: sqlite3.Connection) -> int | None:
    """Return the version of a ledger's tables, None for an empty file.

    Raises ``LedgerUnusable``.
    """
    [application] = file.execute("PRAGMA application_id").fetchone()
    [tables] = file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if not tables:
        return None
    if application != APPLICATION_ID:
        raise LedgerUnusable("the file is not a Headrace ledger")
    [version] = file.execute("SELECT COALESCE(MAX(version), 0) FROM migrations").fetchone()
    if version > SCHEMA_VERSION:
        raise LedgerUnusable("a later version of Headrace has written the file")
    if version < FIRST_VERSION:
        raise LedgerUnusable(
            "a version before 0.1.0 has written the file. Start 0.1.0 with it first."
        )
    return int(version)
