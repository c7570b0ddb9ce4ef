"""Tables of the embedded ledger and their migrations.

A migration never changes. Processes of two versions must not write one file: the later one does not
start while the earlier one is visible, and a process whose file was migrated sets its rows aside.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

from proxy.call.attempts import AttemptReason, LossReason, SpendUse
from proxy.ledger import call_counters
from proxy.ledger.store import MODE, RowsRefused, Unusable
from proxy.money.usage import Source

APPLICATION = 0x48645263  # "HdRc", in the header of each ledger


def _one_of(column: str, words: Any) -> str:
    """Return the check that a column has a word of a ``Literal``.

    SQLite would build a table for a longer ``IN`` list, for each row.
    """
    listed = " OR ".join(f"{column} = '{word}'" for word in get_args(words))
    return f"CHECK ({listed})"


CHECKS = {
    "why": _one_of("why", AttemptReason),
    "usage_source": _one_of("usage_source", Source),
    "money": _one_of("money", SpendUse),
    "loss": _one_of("loss", LossReason),
}
"""Checks by column. A table with other words gets them when it is opened."""

_CHECK = re.compile(r"CHECK \((\w+) (?:IN \([^()]*\)|= [^()]*)\)")
_WORD = re.compile(r"'(\w+)'")


def allowed_words(table: str) -> dict[str, frozenset[str]]:
    """Return the allowed words by column from the statement that created a table."""
    return {match[1]: frozenset(_WORD.findall(match[0])) for match in _CHECK.finditer(table)}


def widened(table: str) -> str:
    """Return the statement that creates a table with the current words."""
    return _CHECK.sub(lambda match: CHECKS[match[1]], table)


RUNS = """
CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  version TEXT NOT NULL,
  started_ms INTEGER NOT NULL,
  seen_ms INTEGER NOT NULL,
  begun INTEGER NOT NULL DEFAULT 0,
  ended INTEGER NOT NULL DEFAULT 0,
  settled INTEGER NOT NULL DEFAULT 0,
  written INTEGER NOT NULL DEFAULT 0,
  dropped INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0,
  closed_ms INTEGER,
  crashed_ms INTEGER,
  exact INTEGER
)
"""

CALLS = """
CREATE TABLE calls (
  run INTEGER NOT NULL REFERENCES runs,
  seq INTEGER NOT NULL,
  started_ms INTEGER NOT NULL,
  duration_us INTEGER NOT NULL,
  request_id TEXT,
  trace_id TEXT NOT NULL,
  span_id TEXT NOT NULL,
  key TEXT,
  deployment TEXT,
  tags TEXT,
  policy TEXT,
  dialect TEXT,
  endpoint TEXT,
  stream INTEGER,
  models TEXT,
  status INTEGER,
  outcome TEXT NOT NULL,
  error TEXT,
  cache TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  tokens INTEGER,
  cost_micro_usd INTEGER,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID
"""

ATTEMPTS = f"""
CREATE TABLE attempts (
  run INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  number INTEGER NOT NULL,
  leg INTEGER NOT NULL,
  why TEXT NOT NULL {CHECKS["why"]},
  upstream TEXT NOT NULL,
  provider TEXT,
  model TEXT NOT NULL,
  status INTEGER,
  error TEXT,
  input_tokens INTEGER,
  cached_input_tokens INTEGER,
  cache_write_tokens INTEGER,
  output_tokens INTEGER,
  reasoning_tokens INTEGER,
  audio_input_tokens INTEGER,
  audio_output_tokens INTEGER,
  tokens_in INTEGER GENERATED ALWAYS AS (
    input_tokens + cached_input_tokens + cache_write_tokens + audio_input_tokens) VIRTUAL,
  tokens_out INTEGER GENERATED ALWAYS AS (
    output_tokens + reasoning_tokens + audio_output_tokens) VIRTUAL,
  usage_source TEXT NOT NULL {CHECKS["usage_source"]},
  cost_micro_usd INTEGER,
  saved_micro_usd INTEGER,
  served INTEGER NOT NULL,
  money TEXT NOT NULL {CHECKS["money"]},
  PRIMARY KEY (run, seq, number)
) WITHOUT ROWID
"""

BUDGETS = """
CREATE TABLE budgets (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  scope TEXT NOT NULL,
  UNIQUE (name, scope)
)
"""

CHARGES = """
CREATE TABLE charges (
  run INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  budget INTEGER NOT NULL REFERENCES budgets,
  started_ms INTEGER NOT NULL,
  cost_nano_usd INTEGER NOT NULL,
  cost_usd REAL GENERATED ALWAYS AS (cost_nano_usd / 1e9) VIRTUAL,
  PRIMARY KEY (run, seq, budget)
) WITHOUT ROWID
"""

CHARGED_SINCE = """
CREATE TABLE charged_since (
  name TEXT PRIMARY KEY,
  since_ms INTEGER NOT NULL
) WITHOUT ROWID
"""

LOSS = """
CASE money WHEN 'retried' THEN 'retry' WHEN 'blocked' THEN 'guard' WHEN 'abandoned' THEN
  CASE (SELECT outcome FROM calls c WHERE c.run = attempts.run AND c.seq = attempts.seq)
    WHEN 'client_abort' THEN 'client_left' WHEN 'client_error' THEN 'client_left'
    WHEN 'success' THEN 'hedge' WHEN 'proxy_error' THEN 'stopped' ELSE 'upstream_broke' END
END
"""
"""Loss of a response, derived for rows of earlier versions."""

MONEY = (("calls", "cost"), ("attempts", "cost"), ("attempts", "saved"), ("runs", "pruned"))
"""Columns of money in nano-USD. Each has a computed column in USD."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (RUNS, CALLS, ATTEMPTS, "CREATE INDEX calls_by_time ON calls (started_ms)"),
    (
        "ALTER TABLE runs ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN pruned_micro_usd INTEGER NOT NULL DEFAULT 0",
    ),
    (
        f"ALTER TABLE attempts ADD COLUMN loss TEXT {CHECKS['loss']}",
        f"UPDATE attempts SET loss = {LOSS}",  # noqa: S608  # our own words
    ),
    (
        *(
            statement
            for table, column in MONEY
            for statement in (
                f"ALTER TABLE {table} RENAME COLUMN {column}_micro_usd TO {column}_nano_usd",
                f"UPDATE {table} SET {column}_nano_usd = {column}_nano_usd * 1000",  # noqa: S608
            )
        ),
        *(
            f"ALTER TABLE {table} ADD COLUMN {column}_usd REAL "
            f"GENERATED ALWAYS AS ({column}_nano_usd / 1e9) VIRTUAL"
            for table, column in MONEY
        ),
    ),
    (
        BUDGETS,
        CHARGES,
        "CREATE INDEX charges_by_budget ON charges (budget, started_ms, cost_nano_usd)",
        "ALTER TABLE runs ADD COLUMN charges INTEGER NOT NULL DEFAULT 0",
    ),
    (
        CHARGED_SINCE,
        "INSERT INTO charged_since SELECT b.name, MIN(c.started_ms) "
        "FROM budgets b JOIN charges c ON c.budget = b.id GROUP BY b.name",
    ),
    (
        "ALTER TABLE attempts ADD COLUMN cache_write_1h_tokens INTEGER",
        "ALTER TABLE attempts ADD COLUMN web_searches INTEGER",
    ),
    ("ALTER TABLE attempts ADD COLUMN response_id TEXT",),
    (
        "ALTER TABLE attempts ADD COLUMN upstream_error_cause TEXT",
        "ALTER TABLE attempts ADD COLUMN upstream_error_text TEXT",
    ),
    (
        "ALTER TABLE calls ADD COLUMN charge_count INTEGER",
        "ALTER TABLE calls ADD COLUMN charged_nano_usd INTEGER",
        "ALTER TABLE calls ADD COLUMN charges_checksum INTEGER",
    ),
)


def migrate(file: sqlite3.Connection, path: Path, folder: Path) -> None:
    """Migrate a ledger.

    Raises ``Unusable`` for any other file, and while another process writes it, whose counts
    are in ``folder``.
    """
    file.execute("BEGIN IMMEDIATE")
    version = read_version(file)
    if version is None:
        file.execute(f"PRAGMA application_id = {APPLICATION}")
        file.execute("CREATE TABLE migrations (version INTEGER PRIMARY KEY)")
    elif version < len(MIGRATIONS) or _is_narrow(file):
        _require_no_process(file, folder)
        _back_up(path, version)
    upgrade(file, version or 0)
    file.execute("COMMIT")


def upgrade(file: sqlite3.Connection, version: int) -> None:
    """Apply the migrations after ``version``."""
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        for statement in statements:
            file.execute(statement)
        file.execute("INSERT INTO migrations VALUES (?)", [number])
    if _is_narrow(file):
        _widen(file)


def require_current(file: sqlite3.Connection) -> None:
    """Raise ``RowsRefused`` if a later version has migrated the tables."""
    [version] = file.execute("SELECT MAX(version) FROM migrations").fetchone()
    if version != len(MIGRATIONS):
        raise RowsRefused("a later version of Headrace has changed the tables")


def _require_no_process(file: sqlite3.Connection, folder: Path) -> None:
    """Raise ``Unusable`` while another process writes the file."""
    query = "SELECT name, version FROM runs WHERE closed_ms IS NULL AND crashed_ms IS NULL"
    for name, version in file.execute(query).fetchall():
        counts = call_counters.read_process_counts(folder, name)
        if counts is not None and counts.alive:
            raise Unusable(f"a process of version {version} writes it; stop that process first")


def _back_up(path: Path, version: int) -> None:
    """Copy a ledger to a file with the version of its tables in its name."""
    copy = path.with_name(f"{path.name}.v{version}.backup")
    part = copy.with_name(f"{copy.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
    with (
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file,
        closing(sqlite3.connect(part)) as target,
    ):
        file.backup(target)
    part.replace(copy)


def _is_narrow(file: sqlite3.Connection) -> bool:
    """Return True if the table of attempts does not allow all current words."""
    table = _attempts_table(file)
    return allowed_words(table) != allowed_words(widened(table))


def _attempts_table(file: sqlite3.Connection) -> str:
    query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'attempts'"
    return str(file.execute(query).fetchone()[0])


def _widen(file: sqlite3.Connection) -> None:
    """Copy the attempts to a new table that allows all current words."""
    table = _attempts_table(file)
    info = file.execute("PRAGMA table_info(attempts)").fetchall()  # without computed columns
    columns = ", ".join(row[1] for row in info)
    file.execute("ALTER TABLE attempts RENAME TO attempts_before")
    file.execute(widened(table))
    file.execute(
        f"INSERT INTO attempts ({columns}) SELECT {columns} FROM attempts_before"  # noqa: S608  # our own names
    )
    file.execute("DROP TABLE attempts_before")


def read_version(file: sqlite3.Connection) -> int | None:
    """Return the version of a ledger's tables, None for an empty file. Raises ``Unusable``."""
    [application] = file.execute("PRAGMA application_id").fetchone()
    [tables] = file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if not tables:
        return None
    if application != APPLICATION:
        raise Unusable("the file is not a Headrace ledger")
    [version] = file.execute("SELECT COALESCE(MAX(version), 0) FROM migrations").fetchone()
    if version > len(MIGRATIONS):
        raise Unusable("a later version of Headrace has written the file")
    return int(version)
