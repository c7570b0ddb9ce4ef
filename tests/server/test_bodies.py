"""The total size of bodies is bounded, and one caller may take at most half."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from hashlib import sha256
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from proxy.app.telemetry import LibraryLogHandler
from proxy.errors import Overloaded
from proxy.server.request import BodyMemory, BodyShare
from proxy.telemetry.lines import build_line_logger
from proxy.telemetry.log import LINES_PER_BURST, LogLevel
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.doubles import PATIENCE_S, ScriptedUpstream
from tests.for_each import for_each
from tests.server.http import http_server
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
OTHER_TEXT = "hr-search-key"


def test_one_caller_may_take_half_of_the_remainder() -> None:
    bodies = BodyMemory(100)
    first_share, second, third = shares = [BodyShare(bodies, caller) for caller in "aab"]
    first_share.take(50)
    with pytest.raises(Overloaded):
        second.take(1)
    third.take(50)
    assert bodies.used_bytes == 100

    for share in shares:
        share.release()

    assert bodies.used_bytes == 0
    BodyShare(bodies, "a").take(50)


def test_parsed_size_counts_except_for_a_single_body() -> None:
    bodies = BodyMemory(100)
    first_share, second = BodyShare(bodies, "a"), BodyShare(bodies, "a")
    first_share.take(20)
    first_share.add_parsed(1000)
    assert bodies.used_bytes == 50
    with pytest.raises(Overloaded):
        second.take(1)


def test_parsed_size_is_refused_if_another_body_exists() -> None:
    bodies = BodyMemory(100)
    first_share, second = BodyShare(bodies, "a"), BodyShare(bodies, "a")
    first_share.take(20)
    first_share.add_parsed(20)
    second.take(5)
    with pytest.raises(Overloaded):
        second.add_parsed(6)


def half_sent(size: int, key: str = KEY) -> bytes:
    return (
        f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size * 2}\r\n\r\n"
    ).encode() + b" " * size


async def held_bytes(proxy: Proxy, client: ClientSession) -> float:
    lines = (await proxy.metrics()).splitlines()
    [line] = [line for line in lines if line.startswith("headrace_request_body_bytes ")]
    return float(line.split()[1])


async def test_unfinished_bodies_are_shed(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    """The secrets of one key share its half of the memory."""
    size, former_secret = 100_000, "hr-support-key-of-before"
    digest, former_digest = (sha256(secret.encode()).hexdigest() for secret in (KEY, former_secret))
    policies = policies_for(upstream.url).replace(digest, f"[{digest}, {former_digest}]")
    async with running_proxy(tmp_path / "p", policies, bodies_bytes=4 * size) as proxy:
        opened = []
        for secret in (KEY, former_secret, KEY, former_secret, KEY):
            reader, writer = await proxy.connect()
            writer.write(half_sent(size, secret))
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
    assert sha256(OTHER_TEXT.encode()).hexdigest() in policies_for("")


BOMB = gzip.compress(bytes(2 * 1024 * 1024))
GOOD = gzip.compress(b'{"model": "gpt-4o-mini", "prompt": "hello"}')


def encoded(body: bytes, key: str, encoding: str = "gzip") -> bytes:
    head = (
        f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@for_each("encoding", ["gzip", "deflate", "br", "zstd"])
@for_each("body", [GOOD, b"no such encoding"], ids=["good", "bad"])
async def test_encoded_body_is_refused_after_the_key_check(
    encoding: str, body: bytes, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    known_value = await proxy.send_bytes(encoded(body, KEY, encoding))
    stranger = await proxy.send_bytes(encoded(body, "hr-wrong", encoding))

    assert known_value.split()[1] == b"415"
    assert b'"code":"unsupported_media_type"' in known_value
    assert stranger.split()[1] == b"401"
    assert upstream.requests == []


async def test_encoded_body_is_not_decompressed() -> None:
    async def read(request: web.BaseRequest) -> web.Response:
        return web.Response(text=f"{len(await request.read())}")

    async with http_server(read) as connect:
        reader, writer = await connect()
        writer.write(encoded(BOMB, KEY))
        assert (await reader.read()).endswith(b"\r\n\r\n%d" % len(BOMB))
        writer.close()


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
    assert len(lines) == LINES_PER_BURST
