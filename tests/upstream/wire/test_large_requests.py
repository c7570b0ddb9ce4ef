"""Large requests are sent whole, and early responses are read."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from proxy.upstream.client import HttpClient
from tests.doubles import PATIENCE_S, ScriptedUpstream
from tests.upstream.wire.test_connection import OK, PATIENT, ask, sends, whole


@asynccontextmanager
async def early(answer: bytes, read_bytes: int) -> AsyncIterator[tuple[str, asyncio.Future[int]]]:
    """A provider that answers once so much of a request has come, and counts what it gets."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(read_bytes)
        writer.write(answer)
        count = read_bytes
        while data := await reader.read(2**16):
            count += len(data)
        future.set_result(count)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield f"http://127.0.0.1:{port}", future


async def test_a_large_body_goes_out_whole(http: HttpClient, upstream: ScriptedUpstream) -> None:
    upstream.then(sends(OK), sends(OK))
    body = bytes(range(256)) * 2**16

    assert await ask(http, upstream.url, body=body) == b"ok"
    assert await ask(http, upstream.url) == b"ok"

    assert upstream.requests[0].body == body
    assert upstream.connections == 1


async def test_large_body_needs_no_socket(http: HttpClient, upstream: ScriptedUpstream) -> None:
    """The second descriptor only helps to read a refusal that comes before the body is out."""
    upstream.then(sends(OK), sends(OK), sends(OK))
    body = bytes(256) * 2**12
    assert await ask(http, upstream.url) == b"ok"

    with no_descriptor_left():
        assert await ask(http, upstream.url, body=body) == b"ok"
    assert await ask(http, upstream.url, body=body) == b"ok"

    assert [len(request.body) for request in upstream.requests] == [2, len(body), len(body)]
    assert upstream.connections == 1


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_early_response_ends_the_connection(http: HttpClient) -> None:
    body = b"x" * 2**26
    async with early(OK.replace(b"200 OK", b"413 X"), 1000) as (url, future):
        async with await http.post(url, {}, body, PATIENT) as reply:
            assert (reply.status, await whole(reply)) == (413, b"ok")
        async with asyncio.timeout(PATIENCE_S):
            assert await future < len(body)


REFUSAL = b'{"error": {"message": "too large"}}'
REFUSALS = {
    "with a length": b"HTTP/1.1 413 X\r\ncontent-length: %d\r\n\r\n" % len(REFUSAL) + REFUSAL,
    "to the end": b"HTTP/1.1 413 X\r\nconnection: close\r\n\r\n" + REFUSAL,
}


@contextmanager
def refusing(answer: bytes, times: int) -> Iterator[str]:
    """A server that answers and closes before it has read a request, so that bytes meet a reset."""

    def serve() -> None:
        for _ in range(times):
            taken_items, _ = listening.accept()
            with taken_items:
                taken_items.recv(1000)
                taken_items.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(5)


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS.keys())
@pytest.mark.parametrize("size", [2**14, 2**18, 2**24])
async def test_reads_early_refusal(answer: bytes, size: int, http: HttpClient) -> None:
    results = []
    with refusing(answer, 30) as url:
        for _ in range(30):
            async with await http.post(url, {}, b"x" * size, PATIENT, fresh=True) as reply:
                results.append(reply.status)

    assert results == [413] * 30
