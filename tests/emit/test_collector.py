"""Requests of spans on their way: sent as they are, under what the exporter's variables say."""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing

import pytest

from proxy.emit.collector import Collector
from tests.doubles import ScriptedUpstream, answer, cut_before_head

SPANS = b"\x0a\x00 spans \xff" * 100
SEND = """
import sys
from proxy.emit.collector import Collector
sys.exit(not Collector(sys.argv[1]).send(sys.stdin.buffer.read()))
"""
TAKEN = answer(b"", media_type="application/x-protobuf")


async def sent(upstream: ScriptedUpstream, timeout_s: float = 10.0) -> bool:
    with closing(Collector(f"{upstream.url}/v1/traces", timeout_s)) as collector:
        return await asyncio.to_thread(collector.send, SPANS)


async def test_a_request_arrives_as_it_was_written(upstream: ScriptedUpstream) -> None:
    upstream.then(TAKEN)

    assert await sent(upstream)

    [request] = upstream.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/traces", SPANS)
    assert request.headers["content-type"] == "application/x-protobuf"
    assert "content-encoding" not in request.headers


async def test_each_request_carries_its_own_spans_over_one_connection(
    upstream: ScriptedUpstream,
) -> None:
    upstream.then(TAKEN, TAKEN)
    with closing(Collector(f"{upstream.url}/v1/traces")) as collector:
        for spans in (b"first", b"second, which is longer"):
            assert await asyncio.to_thread(collector.send, spans)

    assert [request.body for request in upstream.requests] == [b"first", b"second, which is longer"]
    assert upstream.connections == 1


async def sent_under(variables: Mapping[str, str], url: str) -> bool:
    """Send spans from a process with these variables. Return True if the collector took them."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SEND, url),
        stdin=subprocess.PIPE,
        env={**os.environ, **variables},
    )
    await process.communicate(SPANS)
    return process.returncode == 0


@pytest.mark.parametrize(
    ("name", "opened"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)]
)
async def test_variables_of_the_exporter_say_how(
    name: str, opened: Callable[[bytes], bytes], upstream: ScriptedUpstream
) -> None:
    upstream.then(TAKEN)
    variables = {
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20collector",
        "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": name,
    }

    assert await sent_under(variables, f"{upstream.url}/v1/traces")
    [request] = upstream.requests
    assert opened(request.body) == SPANS
    assert request.headers["content-encoding"] == name
    assert request.headers["authorization"] == "Bearer collector"


async def test_only_a_collector_elsewhere_is_reached_through_an_http_proxy(
    upstream: ScriptedUpstream,
) -> None:
    upstream.then(TAKEN, TAKEN)
    here, elsewhere = f"{upstream.url}/v1/traces", "http://collector.example/v1/traces"

    assert await sent_under({"HTTP_PROXY": "http://127.0.0.1:9"}, here)
    assert await sent_under({"HTTP_PROXY": upstream.url}, elsewhere)

    assert [request.path for request in upstream.requests] == ["/v1/traces", elsewhere]


async def test_a_collector_that_is_busy_is_asked_again(upstream: ScriptedUpstream) -> None:
    upstream.then(answer(b"", 503, "retry-after: 0"), cut_before_head(), TAKEN)

    assert await sent(upstream)

    assert [request.body for request in upstream.requests] == [SPANS] * 3


async def test_what_a_collector_refuses_was_not_taken(upstream: ScriptedUpstream) -> None:
    upstream.then(answer(b"", 400))

    assert not await sent(upstream)
    assert len(upstream.requests) == 1


async def test_a_collector_that_is_away_takes_nothing() -> None:
    with closing(Collector("http://127.0.0.1:9/v1/traces", timeout_s=0.1)) as collector:
        assert not await asyncio.to_thread(collector.send, SPANS)
