"""Helpers for ledger tests: finished records, a proxy with a ledger, and rows."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from aiohttp import ClientSession

from proxy import ledger
from proxy.call.record import Record, new_record
from proxy.call.summary import summarize
from proxy.ledger.rows import CallEntry
from proxy.ledger.schema import APPLICATION_ID, MIGRATIONS
from proxy.ledger.writer import Ledger
from proxy.money.usage import Price
from proxy.settings import LedgerLocation
from proxy.types import Call, Plan, RequestHead, Target, Upstream
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import ScriptedUpstream, usage
from tests.fakes import EventLog
from tests.frames import whole_frame

HEAD = RequestHead("openai", "completions", "/v1/completions", "req_1")
PRICED = Target(
    Upstream("openai", "openai", "http://127.0.0.1:9", provider="openai"),
    "gpt-4o-mini",
    prices=(Price(input=Decimal(2), output=Decimal(4)),),
)
UNPRICED = replace(PRICED, prices=())


def finished_record(
    *targets: Target, team: str = "support", fields: dict[str, Any] | None = None
) -> Record:
    """Return a finished call whose last target used 5 input and 3 output tokens."""
    record = new_record()
    record.set_head(HEAD)
    record.call = Call(HEAD, {"prompt": "Hi"}, requested_models=("gpt-4o-mini",))
    record.key, record.revision, record.status = "support-widget", "abc", 200
    record.plan = Plan("abc", "support-widget", "support-chat", {"team": team}, ())
    for number, target in enumerate(targets or (PRICED,)):
        attempt = record.start_attempt(target, 0, "fallback" if number else "first")
        attempt.response_at, attempt.status = record.now(), 200
        document = {"choices": [], "usage": usage()} if fields is None else fields
        attempt.meter.feed(whole_frame(document), record.now())
        attempt.finished, attempt.error = True, "upstream_invalid_response"
    record.attempts[-1].error = None
    record.use_attempt(0, record.attempts[-1])
    record.ended = record.now()
    return record


class FakeLog(EventLog):
    def __init__(self) -> None:
        super().__init__()
        self.drops: dict[str, int] = {}
        self.failures: list[Exception] = []
        self.replacements = 0

    def failed(self, error: Exception) -> None:
        self.failures.append(error)

    def replaced(self) -> None:
        self.replacements += 1

    def dropped(self, reason: str, count: int) -> None:
        self.drops[reason] = self.drops.get(reason, 0) + count


def ledger_at(path: Path, fake_log: FakeLog, keep_days: int | None = None) -> Ledger:
    position = LedgerLocation("sqlite", path, keep_days)
    return ledger.open_ledger(
        position, "1", fake_log.dropped, fake_log.failed, fake_log.replaced, cast(Any, fake_log)
    )


def book(keeping: Ledger, *records: Record) -> None:
    for record in records:
        keeping.count_begin(record)
        keeping.count_end(record)
        keeping.emit(record)


def as_version(path: Path, version: int) -> None:
    """Convert a ledger file to the schema of an earlier version."""
    tables = {name: stored_rows(path, name) for name in ("runs", "calls", "attempts")}
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        old.execute("CREATE TABLE migrations (version INTEGER PRIMARY KEY)")
        for number, statements in MIGRATIONS.items():
            for statement in statements if number <= version else ():
                old.execute(statement)
        old.execute("INSERT INTO migrations VALUES (?)", [version])
        for name, rows in tables.items():
            columns = [row[1] for row in old.execute(f"PRAGMA table_info({name})")]
            marks = ", ".join(f":{column}" for column in columns)
            insert = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
            old.executemany(insert, rows)


def stored_rows(path: Path, table: str = "calls") -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as file:
        file.row_factory = sqlite3.Row
        query = f"SELECT * FROM {table} ORDER BY 1, 2, 3"  # noqa: S608  # table names come from tests
        return [dict(row) for row in file.execute(query)]


@asynccontextmanager
async def proxy_with_ledger(
    folder: Path,
    upstream: ScriptedUpstream,
    text: str = "",
    kind: str = "sqlite",
    policies_too: str = "",
) -> AsyncIterator[tuple[Proxy, ClientSession, Path]]:
    """Run a proxy with a ledger. A call of 5 input and 3 output tokens costs 22 micro-USD."""
    policies = (policies_for(upstream.url, hasty=True) + policies_too).replace(
        "input: 0.15, output: 0.6", "input: 2, output: 4"
    )
    policies = policies.replace("  resilient:\n", f"  resilient:\n    {text}\n")
    path = folder / "ledger"
    position = LedgerLocation(kind, path)
    async with running_proxy(folder / "policies", policies, ledger=position) as proxy:
        yield proxy, proxy.client, path


def call_entry(seq: int, record: Record) -> CallEntry:
    return CallEntry(seq, summarize(record))
