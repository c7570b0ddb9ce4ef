"""Cache files that are damaged by disks or mistakes."""

from __future__ import annotations

import signal
import sqlite3
import zlib
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientSession

from proxy.cache.cached_answer import VERSION
from tests.cli.test_init import headrace, serving
from tests.conftest import policies_for
from tests.doubles import ScriptedUpstream, answer, legacy
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


async def test_replaces_damaged_cache_file(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(legacy()))
    file = tmp_path / "cache.db"
    file.write_bytes(b"SQLite format 3\0" + b"\xa5" * 8000)

    async with serving(tmp_path / "p", cached(upstream.url), **environ(file)) as (served, url):
        assert [await ask(url), await ask(url)] == [(200, "miss"), (200, "hit")]

    [event] = [line for line in served.lines if line["event"] == "cache.file_replaced"]
    assert (event["variable"], event["file"]) == ("HEADRACE_CACHE_FILE", str(file))
    assert Path(event["kept_as"]).read_bytes().endswith(b"\xa5" * 8000)


async def test_refuses_foreign_database_file(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    file, policies = tmp_path / "invoices.db", tmp_path / "p"
    other_connection = sqlite3.connect(file)
    other_connection.execute("CREATE TABLE invoices (id)")
    other_connection.close()
    policies.mkdir()
    (policies / "policies.yaml").write_text(cached(upstream.url))

    listen = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
    code, text = await headrace("serve", "--policies", str(policies), *listen, **environ(file))

    assert code == 1
    assert "HEADRACE_CACHE_FILE" in text
    assert str(file) in text
    assert "another program" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("place", ["missing/cache.db", "."])
async def test_bad_path_is_named(place: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    policies = tmp_path / "p"
    policies.mkdir()
    (policies / "policies.yaml").write_text(cached(upstream.url))

    listen = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
    variables = environ(tmp_path / place)
    code, text = await headrace("serve", "--policies", str(policies), *listen, **variables)

    assert (code, "HEADRACE_CACHE_FILE" in text, "listen" in text) == (1, True, False)


async def test_recovers_from_wrong_size_sum(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(legacy()))
    file = tmp_path / "cache.db"
    async with serving(tmp_path / "p", cached(upstream.url), **environ(file)) as (served, url):
        other_connection = sqlite3.connect(file, isolation_level=None)
        other_connection.execute("UPDATE held SET size = 1000000000000000")
        other_connection.close()

        assert (await ask(url))[0] == 200
        served.process.send_signal(signal.SIGTERM)
        await served.line("stopping")
        assert await served.process.wait() == 0


SEALED = [b"[1, 2]", b"not json", b"{}", b'{"choices": [{"message": 7}]}', b'{"choices": 7}']
FOREIGN = ["text", 3.5, 1_000_000_000_000, b""]


@pytest.mark.parametrize(
    ("value", "is_sealed"),
    [*((value, True) for value in SEALED), *((value, False) for value in FOREIGN)],
    ids=str,
)
async def test_wrong_value_is_a_miss(
    value: str | float | bytes, is_sealed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """A value of another format is also reported. One in our format contains no response."""
    upstream.answer_with(answer(legacy()))
    file = tmp_path / "cache.db"
    async with serving(tmp_path / "p", cached(upstream.url), **environ(file)) as (served, url):
        assert await ask(url) == (200, "miss")
        served.process.send_signal(signal.SIGTERM)
        await served.process.wait()
    other_connection = sqlite3.connect(file, isolation_level=None)
    if isinstance(value, bytes) and is_sealed:
        [(key,)] = other_connection.execute("SELECT key FROM answers")
        about = orjson.dumps([2e9, False, "openai", "m", {}, "completions"])
        value = VERSION + key + zlib.compress(about + b"\n" + value)
    other_connection.execute("UPDATE answers SET value = ?", (value,))
    other_connection.close()

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
    upstream.answer_with(answer(legacy()))

    async with serving(tmp_path / "p", policies) as (served, url):
        assert [await ask(url), await ask(url)] == [(200, "bypass"), (200, "bypass")]
        (tmp_path / "p" / "policies.yaml").write_text(policies.replace("ttl: 1h", "ttl: 2h"))
        await served.line("cache.store_missing")

    events = [line for line in served.lines if line["event"] == "cache.store_missing"]
    assert len(events) == 2
    for line in events:
        assert (line["level"], line["store"], line["variable"]) == ("warning", store, variable)
        assert line["deployments"] == ["support-chat"]
