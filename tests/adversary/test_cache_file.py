"""Searches for cache files and settings that stop the proxy or serve a wrong response."""

from __future__ import annotations

import signal
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession

from proxy.cache.cached_answer import COMPRESSED_VERSION
from tests.cli.test_init import serving
from tests.conftest import policies_for
from tests.doubles import ScriptedUpstream, legacy_completion, respond
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]
RULE = "\npolicies: {public: {cache: {ttl: 1h, store: sqlite}}}\n"
TAGS = "    tags: {team: search, env: prod}\n"


def cached(upstream: str) -> str:
    return policies_for(upstream).replace(TAGS, TAGS + "    policy: public\n") + RULE


def environ(file: Path) -> dict[str, str]:
    return {"HEADRACE_CACHE_FILE": str(file), "HEADRACE_SECRET": "0123456789abcdef"}


async def ask(url: str) -> tuple[int, str]:
    async with (
        ClientSession() as client,
        client.post(url + ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=False)) as response,
    ):
        await response.read()
        return response.status, response.headers["x-headrace-cache"]


async def test_damaged_file_is_replaced(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(legacy_completion()))
    file = tmp_path / "cache.db"
    file.write_bytes(b"SQLite format 3\0" + b"\xa5" * 8000)

    async with serving(tmp_path / "p", cached(upstream.url), **environ(file)) as (served, url):
        assert [await ask(url), await ask(url)] == [(200, "miss"), (200, "hit")]

    [event] = [line for line in served.lines if line["event"] == "cache.file_replaced"]
    assert (event["variable"], event["file"]) == ("HEADRACE_CACHE_FILE", str(file))
    assert Path(event["kept_as"]).read_bytes().endswith(b"\xa5" * 8000)


def run_sql(file: Path, command: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        return database.execute(command, values).fetchall()


@pytest.mark.parametrize(
    ("value", "is_sealed"),
    [(b"[1, 2]", True), (b'{"choices": 7}', True), (3.5, False), (b"", False)],
    ids=str,
)
async def test_wrong_value_is_a_miss(
    value: float | bytes, is_sealed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """A value of another format is also reported. One in our format contains no response."""
    upstream.answer_with(respond(legacy_completion()))
    file = tmp_path / "cache.db"
    async with serving(tmp_path / "p", cached(upstream.url), **environ(file)) as (served, url):
        assert await ask(url) == (200, "miss")
        served.process.send_signal(signal.SIGTERM)
        await served.process.wait()
    if isinstance(value, bytes) and is_sealed:
        [(key,)] = run_sql(file, "SELECT key FROM answers")
        metadata = orjson.dumps([2e9, False, "openai", "m", {}, "completions"])
        value = COMPRESSED_VERSION + key + zlib.compress(metadata + b"\n" + value)
    run_sql(file, "UPDATE answers SET value = ?", value)

    async with serving(tmp_path / "q", cached(upstream.url), **environ(file)) as (served, url):
        assert await ask(url) == (200, "miss")
        if not is_sealed:
            assert await ask(url) == (200, "hit")
            await served.line("cache.changed")


@pytest.mark.parametrize(
    ("store", "variable"), [("sqlite", "HEADRACE_CACHE_FILE"), ("redis", "HEADRACE_REDIS_URL")]
)
async def test_missing_store_is_logged_at_each_load(
    store: str, variable: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    policies = cached(upstream.url).replace("store: sqlite", f"store: {store}")
    upstream.answer_with(respond(legacy_completion()))

    async with serving(tmp_path / "p", policies) as (served, url):
        assert [await ask(url), await ask(url)] == [(200, "bypass"), (200, "bypass")]
        (tmp_path / "p" / "policies.yaml").write_text(policies.replace("ttl: 1h", "ttl: 2h"))
        await served.line("cache.store_missing")

    events = [line for line in served.lines if line["event"] == "cache.store_missing"]
    assert len(events) == 2
    for line in events:
        assert (line["level"], line["store"], line["variable"]) == ("warning", store, variable)
        assert line["deployments"] == ["support-chat"]
