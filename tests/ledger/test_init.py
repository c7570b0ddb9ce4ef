"""The ledger of a running proxy: stops, kills, full disks and locks lose no row without a report.

`tests/adversary/test_accounts_of_call_ends.py` compares the rows of every end of a call.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_FSIZE, prlimit
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy.ledger.audit import audit
from tests.cli.test_init import Served, headrace, serving
from tests.conftest import KEY, policies_for
from tests.doubles import ScriptedUpstream, hang
from tests.ledger.records import proxy_with_ledger, stored_rows
from tests.servers import eventually
from tests.test_pipeline import BEARER, PROMPT, ROUTES

ROUTE = replace(ROUTES["openai"], content={**PROMPT, "max_tokens": 1})
Client = ClientSession


async def call(client: Client, path: str = ROUTE.path, **fields: Any) -> int:
    headers = fields.pop("headers", BEARER)
    body = {**ROUTE.body(streamed=False), **fields}
    async with client.post(path, headers=headers, json=body) as r:
        with suppress(aiohttp.ClientError):
            await r.read()
        return r.status


@asynccontextmanager
async def keeping(
    folder: Path, upstream: ScriptedUpstream, path: Path, kind: str = "sqlite"
) -> AsyncIterator[tuple[Served, ClientSession]]:
    """Run a proxy process with a ledger, and a client."""
    environ = {
        "HEADRACE_LEDGER": f"{kind}:{path}",
        "PYTHONDONTWRITEBYTECODE": "1",  # a file size limit would truncate cached modules
    }
    async with (
        serving(folder, policies_for(upstream.url), **environ) as (served, url),
        ClientSession(base_url=url) as client,
    ):
        yield served, client


async def test_ledger_contains_no_text_and_no_key(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxy_with_ledger(tmp_path, upstream) as (_, client, _):
        await call(client)

    raw = b"".join(file.read_bytes() for file in tmp_path.glob("ledger*"))
    assert b"support-widget" in raw
    for secret in (KEY, "capital", "Paris", "sk-upstream"):
        assert secret.encode() not in raw


async def test_ledger_is_readable_while_written(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxy_with_ledger(tmp_path, upstream) as (_, client, path):
        observed = [0]
        while observed[-1] < 60:
            await asyncio.gather(*(call(client) for _ in range(20)))
            report = await asyncio.to_thread(audit, path)
            assert report.violations == ()
            observed.append(report.calls)
        assert observed == sorted(observed)


async def stopped(served: Served) -> None:
    """Stop a process by SIGTERM. Its log is read so that a full pipe blocks nothing."""
    served.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(10):
        await served.process.communicate()
    assert served.process.returncode == 0


async def test_shutdown_loses_no_row(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = tmp_path / "ledger"
    async with keeping(tmp_path / "p", upstream, path) as (served, client):
        await asyncio.gather(*(call(client) for _ in range(50)))
        await stopped(served)

    code, output = await headrace("verify-ledger", str(path))
    assert (code, output.splitlines()[0]) == (0, "50 calls, 50 attempts, 1 run")
    [run] = stored_rows(path, "runs")
    assert (run["begun"], run["ended"], run["settled"], run["written"]) == (50, 50, 50, 50)


async def test_kill_reports_lost_batch(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = tmp_path / "ledger"
    async with keeping(tmp_path / "p", upstream, path) as (served, client):
        await asyncio.gather(*(call(client) for _ in range(10)))
        await eventually(lambda: len(stored_rows(path)) == 10)
        with closing(sqlite3.connect(path, isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")  # so that a batch is certainly lost
            await asyncio.gather(*(call(client) for _ in range(7)))
            for _ in range(17):
                await served.line("call")
            served.process.kill()
            await served.process.wait()

    unmended = await headrace("verify-ledger", str(path))
    async with keeping(tmp_path / "again", upstream, path) as (served, client):
        [crashed] = [line for line in served.lines if line["event"] == "ledger.crashed"]
        await call(client)
        await stopped(served)

    mended = await headrace("verify-ledger", str(path))
    known_count, _ = await headrace("verify-ledger", str(path), "--known-missing", "7")
    assert (crashed["lost"], crashed["running"], crashed["exact"]) == (7, 0, True)
    assert len(stored_rows(path)) == 10 + 1
    assert known_count == 0
    for code, output in (unmended, mended):
        assert code == 1
        assert "violation: 7 calls have no row" in output
        counts = "7 ended, 0 running"
        assert f"run 1 crashed: exactly 7 calls have no row ({counts})" in output


@pytest.mark.parametrize(("answered", "under_way"), [(6, 0), (0, 3), (6, 3)])
async def test_kill_after_response_misses_no_call(
    answered: int, under_way: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """The process is killed before the ledger has the last calls."""
    path = tmp_path / "ledger"
    async with keeping(tmp_path / "p", upstream, path) as (served, client):
        with closing(sqlite3.connect(path, isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")  # so no row is written
            upstream.by_model = {"primary": hang()}
            calls = [call(client, model="resilient") for _ in range(under_way)]
            waiting = [*map(asyncio.ensure_future, calls)]
            await eventually(lambda: len(upstream.requests) == under_way)
            await asyncio.gather(*(call(client) for _ in range(answered)))
            served.process.kill()
            await served.process.wait()
            await asyncio.wait(waiting) if waiting else None

    code, output = await headrace("verify-ledger", str(path))
    known_option = "--known-missing", str(answered + under_way)
    known_count, _ = await headrace("verify-ledger", str(path), *known_option)
    assert (code, known_count) == (1, 0)
    assert f"crashed: exactly {answered + under_way} calls have no row (" in output
    ended = int(output.partition(" no row (")[2].split()[0])
    assert ended <= answered  # the kill may come between a response and its record


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_full_disk_delays_rows(kind: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = tmp_path / "ledger"
    async with keeping(tmp_path / "p", upstream, path, kind) as (served, client):
        prlimit(served.process.pid, RLIMIT_FSIZE, (100, RLIM_INFINITY))
        assert [await call(client) for _ in range(5)] == [200] * 5
        failing = await served.line("ledger.failing")
        assert await call(client) == 200
        prlimit(served.process.pid, RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))
        await served.line("ledger.mended")
        await stopped(served)

    assert failing["reason"] in ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "EFBIG")
    if kind == "sqlite":
        assert len(stored_rows(path)) == 6
        assert audit(path).violations == ()
    else:
        rows = [json.loads(line)["row"] for line in path.read_text().splitlines()]
        assert (rows.count("call"), rows.count("attempt")) == (6, 6)


async def test_cache_hit_records_savings(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxy_with_ledger(tmp_path, upstream, "cache: {ttl: 1h}") as (proxy, client, path):
        for _ in range(3):
            await call(client, model="resilient")
        await proxy.sink.wait(3)
    attempts = stored_rows(path, "attempts")

    assert [row["cache"] for row in stored_rows(path)] == ["miss", "hit", "hit"]
    assert [row["money"] for row in attempts] == ["useful", "cached", "cached"]
    assert [row["cost_nano_usd"] for row in attempts] == [22_000, None, None]
    assert [row["saved_nano_usd"] for row in attempts] == [0, 22_000, 22_000]
    assert audit(path).violations == ()
