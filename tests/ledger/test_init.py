"""Over a real proxy: every way out of a call leaves one row for it and one for each attempt, and
the rows add up to what the metrics and the log line say."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_FSIZE, prlimit
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from proxy.emit.log import canonical
from proxy.ledger.audit import audit
from tests.cli.test_init import Served, headrace, serving
from tests.conftest import KEY, world
from tests.doubles import (
    ScriptedUpstream,
    answer,
    chat,
    hang,
    legacy,
    legacy_events,
    stream,
)
from tests.ledger.kept import kept, ledgered, until
from tests.test_pipeline import BEARER, PROMPT, ROUTES, leave_midway, leave_unanswered

ROUTE = replace(ROUTES["openai"], said={**PROMPT, "max_tokens": 1})
Client = ClientSession
Way = Callable[[Client, ScriptedUpstream], Awaitable[None]]


async def call(client: Client, path: str = ROUTE.path, **said: Any) -> int:
    headers = said.pop("headers", BEARER)
    async with client.post(path, headers=headers, json={**ROUTE.body(streamed=False), **said}) as r:
        with suppress(aiohttp.ClientError):
            await r.read()
        return r.status


async def whole(client: Client, upstream: ScriptedUpstream) -> None:
    await call(client)


async def streamed(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream(legacy_events(" Par", "is.")))
    await call(client, stream=True)


async def without_usage(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream(legacy_events(" Paris.", with_usage=False)))
    await call(client, stream=True)


async def unpriced(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(chat(" Paris.")))
    await call(client, model="search-answers")


async def stranger(client: Client, upstream: ScriptedUpstream) -> None:
    await call(client, headers={"Authorization": "Bearer hr-nobody"})


async def nowhere(client: Client, upstream: ScriptedUpstream) -> None:
    await call(client, "/v1/nothing")


async def misspelt(client: Client, upstream: ScriptedUpstream) -> None:
    await call(client, n="many")


async def refused(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer({"error": {"message": "no"}}, 400))
    await call(client)


async def failing(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer({}, 500))
    await call(client)


async def fallback(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": answer({}, 500)}
    await call(client, model="resilient")


async def garbled(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": answer(b'{"choices": [')}
    await call(client, model="resilient", prompt="x" * 40)


async def retry(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.then(answer({}, 503), answer(legacy()))
    await call(client, model="resilient")


async def hedge(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": hang()}
    await call(client, model="resilient", prompt="x" * 40)


async def asked_again(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.then(answer(legacy("a hippo")), answer(legacy("a horse")))
    await call(client, model="resilient")


async def gone_before(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    await leave_unanswered(client, ROUTE, upstream, streamed=False)


async def gone_midway(client: Client, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(stream(legacy_events("Paris", "..."), gate=gate))
    await leave_midway(client, ROUTE)
    gate.set()


async def cut_stream(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream(legacy_events("Paris", "..."), cut_after=1))
    await call(client, stream=True)


async def several(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"second": answer({}, 500)}
    await call(client, "/v1/completion", model=["first", "second"])


@dataclass(frozen=True)
class Expected:
    """The one call's outcome, and its attempts: why, source of usage, cost, whether it served, and
    what the money did."""

    outcome: str
    attempts: tuple[tuple[str, str, int | None, int, str], ...] = ()
    said: str = ""
    policies: str = ""


AGAIN = "policies: {again: {output: [{guard: keywords, words: [hippo], action: retry}]}}"
GOOD = ("first", "provider", 22, 1, "useful")
FAILED = ("first", "none", None, 0, "abandoned")
RETRIED = ("first", "none", None, 0, "retried")

WAYS: dict[Way, Expected] = {
    whole: Expected("success", (GOOD,)),
    streamed: Expected("success", (GOOD,)),
    without_usage: Expected("success", (("first", "partial_estimate", 20, 1, "useful"),)),
    unpriced: Expected("success", (("first", "provider", None, 1, "useful"),)),
    stranger: Expected("client_error"),
    nowhere: Expected("client_error"),
    misspelt: Expected("client_error"),
    refused: Expected("client_error", (FAILED,)),
    failing: Expected("upstream_error", (FAILED,)),
    fallback: Expected("success", (RETRIED, ("fallback", "provider", 22, 1, "useful"))),
    garbled: Expected(
        "success",
        (
            ("first", "partial_estimate", 24, 0, "retried"),
            ("fallback", "provider", 22, 1, "useful"),
        ),
    ),
    retry: Expected(
        "success",
        (RETRIED, ("retry", "provider", 22, 1, "useful")),
        "retry: {times: 1, wait: 1ms}",
    ),
    hedge: Expected(
        "success",
        (
            ("first", "partial_estimate", 24, 0, "abandoned"),
            ("hedge", "provider", 22, 1, "useful"),
        ),
        "hedge: {after: 20ms}",
    ),
    asked_again: Expected(
        "success",
        (
            ("first", "provider", 22, 0, "blocked"),
            ("guard", "provider", 22, 1, "useful"),
        ),
        "policy: again",
        AGAIN,
    ),
    gone_before: Expected("client_abort", (("first", "partial_estimate", 16, 0, "abandoned"),)),
    gone_midway: Expected("client_abort", (("first", "partial_estimate", 20, 1, "abandoned"),)),
    cut_stream: Expected("upstream_error", (("first", "partial_estimate", 20, 1, "abandoned"),)),
    several: Expected("success", (GOOD, FAILED)),
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_rows_match_accounts(way: Way, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    expected = WAYS[way]
    more = {"said": expected.said, "policies_too": expected.policies}
    async with ledgered(tmp_path, upstream, **more) as (proxy, client, path):
        await way(client, upstream)
        [record] = await proxy.sink.wait()
        metrics = sums(await proxy.metrics())

    [row] = kept(path)
    attempts = sorted(kept(path, "attempts"), key=lambda each: each["number"])
    line = canonical(record)
    assert row["outcome"] == expected.outcome == line["outcome"]
    assert [
        (a["why"], a["usage_source"], micro(a["cost_nano_usd"]), a["served"], a["money"])
        for a in attempts
    ] == list(expected.attempts)
    assert [a["number"] for a in attempts] == list(range(1, len(attempts) + 1))
    assert len(attempts) == row["attempts"] == line["attempts"] == len(upstream.requests)
    for column in ("request_id", "trace_id", "span_id", "key", "deployment", "policy", "status"):
        assert row[column] == line[column], column
    assert json.loads(row["tags"] or "{}") == line["tags"]
    tokens, cost, lost = (added(attempts, name) for name in ("tokens", "cost", "lost"))
    assert (row["tokens"] or 0) == tokens == sum((line["tokens"] or {}).values())
    if line["cost_usd"] is not None:
        assert (row["cost_nano_usd"] or 0) == cost == round(float(line["cost_usd"]) * 1e9)
    assert metrics["headrace_requests"] == 1
    assert metrics.get("headrace_upstream_attempts", 0) == len(attempts)
    assert metrics.get("headrace_tokens", 0) == tokens
    assert round(metrics.get("headrace_cost_usd", 0) * 1e9) == cost
    assert round(metrics.get("headrace_lost_cost_usd", 0) * 1e9) == lost
    assert audit(path).violations == ()


def micro(nano: int | None) -> int | None:
    return None if nano is None else nano // 1000


def sums(exposition: str) -> dict[str, float]:
    """Every counter, over all labels."""
    return {
        family.name: sum(s.value for s in family.samples if s.name.endswith("_total"))
        for family in text_string_to_metric_families(exposition)
        if family.type == "counter"
    }


def added(attempts: list[dict[str, Any]], what: str) -> int:
    if what == "tokens":
        return sum((a["tokens_in"] or 0) + (a["tokens_out"] or 0) for a in attempts)
    lost_only = what == "lost"
    return sum(a["cost_nano_usd"] or 0 for a in attempts if a["loss"] or not lost_only)


async def test_all_ways_together_add_up(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    ways = [way for way, expected in WAYS.items() if not expected.said]
    async with ledgered(tmp_path, upstream) as (proxy, client, path):
        for number, way in enumerate(ways, 1):
            upstream.by_model = {}
            upstream.answer_with(answer(legacy()))
            upstream.came.clear()
            await way(client, upstream)
            await proxy.sink.wait(number)
        metrics = sums(await proxy.metrics())

    calls, attempts = kept(path), kept(path, "attempts")
    assert len(calls) == len(ways) == metrics["headrace_requests"]
    assert len(attempts) == len(upstream.requests) == metrics["headrace_upstream_attempts"]
    assert added(attempts, "tokens") == metrics["headrace_tokens"]
    assert added(attempts, "cost") == round(metrics["headrace_cost_usd"] * 1e9)
    assert added(attempts, "lost") == round(metrics["headrace_lost_cost_usd"] * 1e9)
    assert {"useful", "retried", "abandoned"} == {a["money"] for a in attempts}
    assert audit(path).violations == ()


async def test_no_text_and_no_key_is_kept(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with ledgered(tmp_path, upstream) as (_, client, _):
        await call(client)

    raw = b"".join(file.read_bytes() for file in tmp_path.glob("ledger*"))
    assert b"support-widget" in raw
    for secret in (KEY, "capital", "Paris", "sk-upstream"):
        assert secret.encode() not in raw


async def test_lines_of_json_say_the_same(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with ledgered(tmp_path, upstream, kind="jsonl") as (_, client, path):
        await fallback(client, upstream)

    said = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["row"] for line in said] == ["call", "attempt", "attempt"]
    assert len({line["request_id"] for line in said}) == 1
    assert (said[0]["tags"]["team"], said[0]["cost_nano_usd"]) == ("support", 22_000)
    assert [line["money"] for line in said[1:]] == ["retried", "useful"]


async def test_it_is_read_while_it_is_written(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with ledgered(tmp_path, upstream) as (_, client, path):
        seen = [0]
        while seen[-1] < 60:
            await asyncio.gather(*(call(client) for _ in range(20)))
            found = await asyncio.to_thread(audit, path)
            assert found.violations == ()
            seen.append(found.calls)
        assert seen == sorted(seen)


async def stopped(served: Served) -> None:
    """Stop as an operator does; the log is read, so that no full pipe holds anything up."""
    served.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(10):
        await served.process.communicate()
    assert served.process.returncode == 0


async def test_a_stop_loses_nothing(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = tmp_path / "ledger"
    async with (
        serving(tmp_path / "p", world(upstream.url), HEADRACE_LEDGER=f"sqlite:{path}") as (
            served,
            url,
        ),
        ClientSession(base_url=url) as client,
    ):
        await asyncio.gather(*(call(client) for _ in range(50)))
        await stopped(served)

    code, said = await headrace("verify-ledger", str(path))
    assert (code, said.splitlines()[0]) == (0, "50 calls, 50 attempts, 1 run")
    [run] = kept(path, "runs")
    assert (run["begun"], run["ended"], run["settled"], run["written"]) == (50, 50, 50, 50)


async def test_kill_reports_lost_batch(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = tmp_path / "ledger"
    environ = {"HEADRACE_LEDGER": f"sqlite:{path}"}
    async with (
        serving(tmp_path / "p", world(upstream.url), **environ) as (served, url),
        ClientSession(base_url=url) as client,
    ):
        await asyncio.gather(*(call(client) for _ in range(10)))
        await until(lambda: len(kept(path)) == 10)
        with closing(sqlite3.connect(path, isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")  # so that it is sure that there is a batch to lose
            await asyncio.gather(*(call(client) for _ in range(7)))
            for _ in range(17):
                await served.line("call")
            served.process.kill()
            await served.process.wait()

    unmended = await headrace("verify-ledger", str(path))
    async with serving(tmp_path / "again", world(upstream.url), **environ) as (served, url):
        [crashed] = [line for line in served.lines if line["event"] == "ledger.crashed"]
        async with ClientSession(base_url=url) as client:
            await call(client)
        await stopped(served)

    mended = await headrace("verify-ledger", str(path))
    known, _ = await headrace("verify-ledger", str(path), "--known-missing", "7")
    assert (crashed["lost"], crashed["running"], crashed["exact"]) == (7, 0, True)
    assert len(kept(path)) == 10 + 1
    assert known == 0
    for code, said in (unmended, mended):
        assert code == 1
        assert "violation: 7 calls have no row" in said
        counts = "7 ended, 0 running"
        assert f"run 1 crashed: exactly 7 calls have no row ({counts})" in said


@pytest.mark.parametrize(("answered", "under_way"), [(6, 0), (0, 3), (6, 3)])
async def test_a_kill_right_after_an_answer_misses_no_call(
    answered: int, under_way: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """The process dies before it has told the ledger of the calls that ended last."""
    path = tmp_path / "ledger"
    environ = {"HEADRACE_LEDGER": f"sqlite:{path}"}
    async with (
        serving(tmp_path / "p", world(upstream.url), **environ) as (served, url),
        ClientSession(base_url=url) as client,
    ):
        with closing(sqlite3.connect(path, isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")  # no row is written
            upstream.by_model = {"primary": hang()}
            waiting = [
                asyncio.ensure_future(call(client, model="resilient")) for _ in range(under_way)
            ]
            await until(lambda: len(upstream.requests) == under_way)
            await asyncio.gather(*(call(client) for _ in range(answered)))
            served.process.kill()
            await served.process.wait()
            await asyncio.wait(waiting) if waiting else None

    code, said = await headrace("verify-ledger", str(path))
    known, _ = await headrace(
        "verify-ledger", str(path), "--known-missing", str(answered + under_way)
    )
    assert (code, known) == (1, 0)
    assert f"crashed: exactly {answered + under_way} calls have no row (" in said
    ended = int(said.partition(" no row (")[2].split()[0])
    assert ended <= answered  # a call may be killed between its answer and its end


async def test_kill_under_load_counts_calls(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = tmp_path / "ledger"
    environ = {"HEADRACE_LEDGER": f"sqlite:{path}"}
    async with (
        serving(tmp_path / "p", world(upstream.url), **environ) as (served, url),
        ClientSession(base_url=url) as client,
    ):
        calling = asyncio.gather(*(call(client) for _ in range(300)), return_exceptions=True)
        await until(lambda: len(upstream.requests) >= 150)
        served.process.kill()
        answered = (await calling).count(200)

    before = len(kept(path))
    async with (
        serving(tmp_path / "again", world(upstream.url), **environ) as (served, url),
        ClientSession(base_url=url) as client,
    ):
        [crashed] = [line for line in served.lines if line["event"] == "ledger.crashed"]
        asked = len(upstream.requests)
        await call(client)  # whoever answers can also be stopped
        await stopped(served)
    ended = before + crashed["lost"]
    assert crashed["exact"]
    assert answered <= ended + crashed["running"] <= 300
    assert asked <= ended + crashed["running"]


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_full_disk_delays(kind: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = tmp_path / "ledger"
    environ = {
        "HEADRACE_LEDGER": f"{kind}:{path}",
        "PYTHONDONTWRITEBYTECODE": "1",  # Python would cut short that of a module, and keep it
    }
    async with (
        serving(tmp_path / "p", world(upstream.url), **environ) as (served, url),
        ClientSession(base_url=url) as client,
    ):
        prlimit(served.process.pid, RLIMIT_FSIZE, (100, RLIM_INFINITY))
        assert [await call(client) for _ in range(5)] == [200] * 5
        failing = await served.line("ledger.failing")
        assert await call(client) == 200
        prlimit(served.process.pid, RLIMIT_FSIZE, (RLIM_INFINITY, RLIM_INFINITY))
        await served.line("ledger.mended")
        await stopped(served)

    assert failing["reason"] in ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "EFBIG")
    if kind == "sqlite":
        assert len(kept(path)) == 6
        assert audit(path).violations == ()
    else:
        rows = [json.loads(line)["row"] for line in path.read_text().splitlines()]
        assert (rows.count("call"), rows.count("attempt")) == (6, 6)


async def test_a_locked_ledger_stops_no_call(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path = tmp_path / "ledger"
    async with (
        serving(tmp_path / "p", world(upstream.url), HEADRACE_LEDGER=f"sqlite:{path}") as (
            served,
            url,
        ),
        ClientSession(base_url=url) as client,
    ):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await call(client) == 200
            failing = await served.line("ledger.failing")
            assert await call(client) == 200
        await served.line("ledger.mended")
        await until(lambda: len(kept(path)) == 2)
        await stopped(served)

    assert failing["reason"] == "SQLITE_BUSY"


async def test_cache_hit_records_savings(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    said = "cache: {ttl: 1h}"
    async with ledgered(tmp_path, upstream, said) as (proxy, client, path):
        for _ in range(3):
            await call(client, model="resilient")
        await proxy.sink.wait(3)
    attempts = kept(path, "attempts")

    assert [row["cache"] for row in kept(path)] == ["miss", "hit", "hit"]
    assert [row["money"] for row in attempts] == ["useful", "cached", "cached"]
    assert [row["cost_nano_usd"] for row in attempts] == [22_000, None, None]
    assert [row["saved_nano_usd"] for row in attempts] == [0, 22_000, 22_000]
    assert audit(path).violations == ()
