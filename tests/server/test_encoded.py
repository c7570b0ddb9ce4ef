"""Encoded bodies: inflated for nobody; what libraries say of them is a line, no traceback."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from pathlib import Path

from aiohttp import web

from proxy import server
from proxy.app.telemetry import LibraryLog
from proxy.telemetry.lines import line_logger
from proxy.telemetry.log_limits import BURST, LogLevel
from tests.cli.test_init import serving
from tests.conftest import KEY, Proxy, world
from tests.doubles import ScriptedUpstream
from tests.for_each import for_each
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
BOMB = gzip.compress(bytes(2 * 1024 * 1024))
GOOD = gzip.compress(b'{"model": "gpt-4o-mini", "prompt": "hello"}')


def encoded(body: bytes, key: str, encoding: str = "gzip") -> bytes:
    head = (
        f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def told(url: str, request: bytes) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(10):
        body = await reader.read()
    writer.close()
    return body


@for_each("encoding", ["gzip", "deflate", "br", "zstd"])
@for_each("body", [GOOD, b"no such encoding"], ids=["good", "bad"])
async def test_an_encoded_body_is_refused_as_such_and_a_stranger_before_it(
    encoding: str, body: bytes, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    known_value = await told(proxy.url, encoded(body, KEY, encoding))
    stranger = await told(proxy.url, encoded(body, "hr-wrong", encoding))

    assert known_value.split()[1] == b"415"
    assert b'"code":"unsupported_media_type"' in known_value
    assert stranger.split()[1] == b"401"
    assert upstream.requests == []


async def test_no_byte_is_inflated() -> None:
    read: list[int] = []

    async def reading(request: web.BaseRequest) -> web.Response:
        read.append(len(await request.content.read()))
        return web.Response()

    runner = web.ServerRunner(server.HttpServer(reading, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    await told(f"http://{host}:{port}", encoded(BOMB, KEY))
    await runner.cleanup()

    assert read == [len(BOMB)]


async def test_bad_coding_logs_no_traceback(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with serving(tmp_path / "p", world(upstream.url)) as (served, url):
        for body in (b"no such encoding", BOMB[:-9]):
            await told(url, encoded(body, "hr-wrong"))
        served.process.terminate()
        async with asyncio.timeout(10):
            fields, _ = await served.process.communicate()

    assert all(line.startswith(b"{") for line in fields.splitlines())


def test_what_a_library_logs_is_a_line_without_its_words() -> None:
    lines: list[bytes] = []
    log = line_logger(lines.append, LogLevel("info", lambda: 0.0))
    library, handler = logging.getLogger("aiohttp.server"), LibraryLog(log, lambda: 0.0)
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
