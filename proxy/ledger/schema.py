"""The tables of the embedded ledger, as the steps that lead to them. A step is never changed."""

from __future__ import annotations

APPLICATION = 0x48645263  # "HdRc": tells a ledger from other SQLite files

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

ATTEMPTS = """
CREATE TABLE attempts (
  run INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  number INTEGER NOT NULL,
  leg INTEGER NOT NULL,
  why TEXT NOT NULL CHECK (why IN ('first', 'retry', 'fallback', 'hedge')),
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
  usage_source TEXT NOT NULL CHECK (usage_source IN ('provider', 'partial_estimate', 'none')),
  cost_micro_usd INTEGER,
  saved_micro_usd INTEGER,
  served INTEGER NOT NULL,
  money TEXT NOT NULL
    CHECK (money IN ('useful', 'retried', 'abandoned', 'blocked', 'shadow', 'cached')),
  PRIMARY KEY (run, seq, number)
) WITHOUT ROWID
"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (RUNS, CALLS, ATTEMPTS, "CREATE INDEX calls_by_time ON calls (started_ms)"),
    (
        "ALTER TABLE runs ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN pruned_micro_usd INTEGER NOT NULL DEFAULT 0",
    ),
)
