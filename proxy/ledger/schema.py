"""The tables of the embedded ledger, as the steps that lead to them. A step is never changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from proxy.attempts import Loss, Money, Why
from proxy.usage import Source

APPLICATION = 0x48645263  # "HdRc": tells a ledger from other SQLite files


def _one_of(column: str, words: Any) -> str:
    """Return the check that a column holds one of the words of a ``Literal``: compared one by one,
    as SQLite makes a table of each longer list that a row is looked up in, for every row."""
    listed = " OR ".join(f"{column} = '{word}'" for word in get_args(words))
    return f"CHECK ({listed})"


CHECKS = {
    "why": _one_of("why", Why),
    "usage_source": _one_of("usage_source", Source),
    "money": _one_of("money", Money),
    "loss": _one_of("loss", Loss),
}
"""By column the words that it may hold, taken from where the record names them. A file whose table
was made with other words gets these when it is opened."""

_CHECK = re.compile(r"CHECK \((\w+) (?:IN \([^()]*\)|= [^()]*)\)")
_WORD = re.compile(r"'(\w+)'")


def allowed_words(table: str) -> dict[str, frozenset[str]]:
    """Return by column the words that it may hold, from the statement that made its table: files of
    earlier versions have lists of them."""
    return {found[1]: frozenset(_WORD.findall(found[0])) for found in _CHECK.finditer(table)}


def widened(table: str) -> str:
    """Return the statement that makes a table with the words that are known now."""
    return _CHECK.sub(lambda found: CHECKS[found[1]], table)


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
FIRST_CHARGES = """
SELECT b.name AS name, MIN(c.started_ms) AS since_ms
FROM budgets b JOIN charges c ON c.budget = b.id GROUP BY b.name
"""

LOSS = """
CASE money WHEN 'retried' THEN 'retry' WHEN 'blocked' THEN 'guard' WHEN 'abandoned' THEN
  CASE (SELECT outcome FROM calls c WHERE c.run = attempts.run AND c.seq = attempts.seq)
    WHEN 'client_abort' THEN 'client_left' WHEN 'client_error' THEN 'client_left'
    WHEN 'success' THEN 'hedge' WHEN 'proxy_error' THEN 'stopped' ELSE 'upstream_broke' END
END
"""
"""Why an answer was lost, by what rows said that were written before they said so."""

MONEY = (("calls", "cost"), ("attempts", "cost"), ("attempts", "saved"), ("runs", "pruned"))
"""The columns of money. Those in nano-USD are exact; each has another, computed, in USD."""

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
    (CHARGED_SINCE, f"INSERT INTO charged_since {FIRST_CHARGES}"),
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


NO_BUDGETS = (
    "CREATE TEMP VIEW budgets AS SELECT 0 AS id, '' AS name, '' AS scope WHERE 0",
    "CREATE TEMP VIEW charges AS SELECT 0 AS run, 0 AS seq, 0 AS budget, 0 AS started_ms, "
    "0 AS cost_nano_usd WHERE 0",
)


def views(version: int) -> Iterator[str]:
    """Return what shows the columns of today over a file of an earlier version that is only read,
    and that no later Headrace has brought up to date."""
    if version < 5:  # the steps above
        yield from NO_BUDGETS
    if version < 6:
        yield f"CREATE TEMP VIEW charged_since AS {FIRST_CHARGES}"
    for table in ("runs", "calls", "attempts"):
        added = [column for of, column in _added_since(version) if of == table]
        if added:
            listed = ", ".join(["*", *added])
            yield f"CREATE TEMP VIEW {table} AS SELECT {listed} FROM main.{table}"  # noqa: S608


ADDED = (
    (5, "runs", "0 AS charges"),
    (7, "attempts", "NULL AS cache_write_1h_tokens, NULL AS web_searches"),
    (8, "attempts", "NULL AS response_id"),
    (9, "attempts", "NULL AS upstream_error_cause, NULL AS upstream_error_text"),
    (10, "calls", "NULL AS charge_count, NULL AS charged_nano_usd, NULL AS charges_checksum"),
)
"""What the later steps have added, by their number."""


def _added_since(version: int) -> Iterator[tuple[str, str]]:
    """Yield by table what its columns of today are in a file of a version."""
    if version < 2:
        yield "runs", "0 AS pruned, 0 AS pruned_nano_usd"
    if version < 3:
        yield "attempts", f"{LOSS} AS loss"
    if version < 4:
        for table, column in MONEY:
            if column != "pruned" or version > 1:
                yield table, f"{column}_micro_usd * 1000 AS {column}_nano_usd"
    for since, table, columns in ADDED:
        if version < since:
            yield table, columns
