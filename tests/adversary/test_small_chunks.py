"""Bodies in tiny chunks are read in slices, and refused when framing exceeds its bound."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.adversary.loops import Lag
from tests.conftest import KEY, Proxy, running_proxy, world
from tests.doubles import ScriptedUpstream
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
HEAD = f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
KEYED = f"{HEAD}Authorization: Bearer {KEY}\r\n\r\n".encode()
STRANGER = f"{HEAD}\r\n".encode()
SENT_BODY = 2 * 1024 * 1024
CALLERS = 6
LAG_S = 0.05
OF_ONE_S = 0.2  # of the loop, for all that one caller sends


def send(address: tuple[str, int], head: bytes, piece: bytes) -> bytes:
    with socket.create_connection(address, timeout=20) as connection:
        try:
            connection.sendall(head + piece * (SENT_BODY // len(piece)))
            return connection.recv(65536)
        except ConnectionError:
            return b""


def of(proxy: Proxy) -> tuple[str, int]:
    host, port = proxy.url.removeprefix("http://").split(":")
    return host, int(port)


async def held(proxy: Proxy, head: bytes, piece: bytes) -> tuple[Sequence[bytes], float, float]:
    """Let several callers send at once; return what they are answered, the longest that the loop
    was held, and all that it worked, in seconds of its thread."""
    started_at = time.thread_time()
    with Lag() as lag:
        sending = [asyncio.to_thread(send, of(proxy), head, piece) for _ in range(CALLERS)]
        answers = await asyncio.gather(*sending)
    return answers, lag.worst, time.thread_time() - started_at


@pytest.mark.parametrize(("head", "status"), [(KEYED, b"400"), (STRANGER, b"401")])
@pytest.mark.parametrize("size", [1, 2, 9, 17])
async def test_nobody_waits_for_chunks_of_a_few_bytes(
    size: int, head: bytes, status: bytes, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    piece = b"%x\r\n%b\r\n" % (size, b"x" * size)
    async with running_proxy(tmp_path / "policies", world(upstream.url)) as proxy:
        answers, lag, worked = await held(proxy, head, piece)

    assert {answer[9:12] for answer in answers} <= {status, b""}
    assert lag < LAG_S
    assert worked < CALLERS * OF_ONE_S
    assert upstream.requests == []


@pytest.mark.parametrize(("size", "total"), [(1, 5_000), (64, 320_000), (20_000, 1_000_000)])
async def test_chunks_of_any_size_are_read_as_they_were_sent(
    size: int, total: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    text = "".join(f"{number} " for number in range(total))[:total]
    body = json.dumps({**ROUTE.body(streamed=False), "prompt": text}).encode()
    parts = (body[index : index + size] for index in range(0, len(body), size))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    async with running_proxy(tmp_path / "policies", world(upstream.url)) as proxy:
        reader, writer = await asyncio.open_connection(*of(proxy))
        writer.write(KEYED + chunks)
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1") == 1
    assert upstream.requests[0].json["prompt"] == text
