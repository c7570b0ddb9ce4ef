"""The total size of bodies is bounded, and one caller may take at most half."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import logging
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from proxy import server
from proxy.app.telemetry import LibraryLogHandler
from proxy.errors import Overloaded
from proxy.server.request import Bodies, BodyShare
from proxy.telemetry.lines import build_line_logger
from proxy.telemetry.log import BURST, LogLevel
from tests.cli.test_init import serving
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.doubles import PATIENCE_S, ScriptedUpstream
from tests.for_each import for_each
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
OTHER_TEXT = "hr-search-key"


def test_one_caller_may_take_half_of_the_remainder() -> None:
    bodies = Bodies(100)
    first_share, second, third = shares = [BodyShare(bodies, caller) for caller in "aab"]
    first_share.take(50)
    with pytest.raises(Overloaded):
        second.take(1)
    third.take(50)
    assert bodies.held == 100

    for share in shares:
        share.release()

    assert bodies.held == 0
    BodyShare(bodies, "a").take(50)


def test_parsed_size_counts_except_for_a_single_body() -> None:
    bodies = Bodies(100)
    first_share, second = BodyShare(bodies, "a"), BodyShare(bodies, "a")
    first_share.take(20)
    first_share.count_read_bytes(1000)
    assert bodies.held == 50
    with pytest.raises(Overloaded):
        second.take(1)


def test_parsed_size_is_refused_if_another_body_exists() -> None:
    bodies = Bodies(100)
    first_share, second = BodyShare(bodies, "a"), BodyShare(bodies, "a")
    first_share.take(20)
    first_share.count_read_bytes(20)
    second.take(5)
    with pytest.raises(Overloaded):
        second.count_read_bytes(6)


def half_sent(size: int, key: str = KEY) -> bytes:
    return (
        f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size * 2}\r\n\r\n"
    ).encode() + b" " * size


async def held_bytes(proxy: Proxy, client: ClientSession) -> float:
    lines = (await proxy.metrics()).splitlines()
    [line] = [line for line in lines if line.startswith("headrace_request_body_bytes ")]
    return float(line.split()[1])


async def test_one_key_may_use_half_of_bytes(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    size, keys = 100_000, [KEY, "hr-support-key-of-before"]
    own_text, text_before = (hashlib.sha256(key.encode()).hexdigest() for key in keys)
    policies = policies_for(upstream.url).replace(
        f"sha256: {own_text}", f"sha256: [{own_text}, {text_before}]"
    )
    async with running_proxy(tmp_path / "p", policies, bodies_bytes=4 * size) as proxy:
        host, port = proxy.url.removeprefix("http://").split(":")
        opened = []
        for key in (*keys, *keys):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(half_sent(size, key))
            await writer.drain()
            opened.append((reader, writer))
        refused = [
            await asyncio.wait_for(reader.readline(), PATIENCE_S) for reader, _ in opened[2:]
        ]
        for _, writer in opened:
            writer.transport.abort()
        await proxy.sink.wait(4)

    assert all(b" 503 " in line for line in refused)


async def test_unfinished_bodies_are_shed(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    size = 100_000
    async with running_proxy(
        tmp_path / "p", policies_for(upstream.url), bodies_bytes=4 * size
    ) as proxy:
        host, port = proxy.url.removeprefix("http://").split(":")
        opened = []
        for _ in range(5):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(half_sent(size))
            await writer.drain()
            opened.append((reader, writer))
        refused = [
            await asyncio.wait_for(reader.readline(), PATIENCE_S) for reader, _ in opened[2:]
        ]
        assert all(b" 503 " in line for line in refused)
        assert await held_bytes(proxy, proxy.client) == 2 * size

        other_document = {"Authorization": f"Bearer {OTHER_TEXT}"}
        body = {"model": "search-answers", "messages": [{"role": "user", "content": "x" * size}]}
        assert (await proxy.send("/v1/chat/completions", body, other_document)).status != 503
        reply = await proxy.complete()
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert reply.error["code"] == "overloaded"
        for _, writer in opened:
            writer.transport.abort()
        records = await proxy.sink.wait(7)
        assert await held_bytes(proxy, proxy.client) == 0

    refusals = [record for record in records if record.status == 503]
    assert {record.outcome for record in refusals} == {"proxy_error"}
    assert hashlib.sha256(OTHER_TEXT.encode()).hexdigest() in policies_for("")


BOMB = gzip.compress(bytes(2 * 1024 * 1024))
GOOD = gzip.compress(b'{"model": "gpt-4o-mini", "prompt": "hello"}')


def encoded(body: bytes, key: str, encoding: str = "gzip") -> bytes:
    head = (
        f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def raw_response(url: str, request: bytes) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(10):
        body = await reader.read()
    writer.close()
    return body


@for_each("encoding", ["gzip", "deflate", "br", "zstd"])
@for_each("body", [GOOD, b"no such encoding"], ids=["good", "bad"])
async def test_encoded_body_is_refused_after_the_key_check(
    encoding: str, body: bytes, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    known_value = await raw_response(proxy.url, encoded(body, KEY, encoding))
    stranger = await raw_response(proxy.url, encoded(body, "hr-wrong", encoding))

    assert known_value.split()[1] == b"415"
    assert b'"code":"unsupported_media_type"' in known_value
    assert stranger.split()[1] == b"401"
    assert upstream.requests == []


async def test_encoded_body_is_not_decompressed() -> None:
    read: list[int] = []

    async def reading(request: web.BaseRequest) -> web.Response:
        read.append(len(await request.content.read()))
        return web.Response()

    runner = web.ServerRunner(server.HttpServer(reading, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    await raw_response(f"http://{host}:{port}", encoded(BOMB, KEY))
    await runner.cleanup()

    assert read == [len(BOMB)]


async def test_invalid_coding_logs_no_traceback(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with serving(tmp_path / "p", policies_for(upstream.url)) as (served, url):
        for body in (b"no such encoding", BOMB[:-9]):
            await raw_response(url, encoded(body, "hr-wrong"))
        served.process.terminate()
        async with asyncio.timeout(10):
            fields, _ = await served.process.communicate()

    assert all(line.startswith(b"{") for line in fields.splitlines())


def test_library_log_becomes_a_line_without_its_text() -> None:
    lines: list[bytes] = []
    log = build_line_logger(lines.append, LogLevel("info", lambda: 0.0))
    library, handler = logging.getLogger("aiohttp.server"), LibraryLogHandler(log, lambda: 0.0)
    library.addHandler(handler)
    bug = ValueError("hr-secret-inside")

    for _ in range(100):
        library.error("quoted %s", "hr-secret-inside", exc_info=bug)
    library.removeHandler(handler)

    fields = json.loads(lines[0])
    assert (fields["event"], fields["level"]) == ("library.failed", "error")
    assert (fields["library"], fields["type"]) == ("aiohttp.server", "ValueError")
    assert fields["location"] == "?"
    assert b"secret" not in b"".join(lines)
    assert len(lines) == BURST
