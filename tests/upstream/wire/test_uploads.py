"""Uploads, and the second descriptor of their socket."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession, web
from pytest_aiohttp.plugin import AiohttpRawServer

from proxy.upstream.client import HttpClient
from proxy.upstream.wire.uploads import DuplicateSocket
from tests.conftest import Proxy
from tests.doubles import PATIENCE_S, ScriptedUpstream, sends
from tests.passthrough.listed_policies import BEARER, running
from tests.servers import eventually
from tests.upstream.wire.test_connection import OK, PATIENT, ask, read_body

MIB = 1024 * 1024
SIZE = 64 * MIB
PIECE = b"0123456789abcdef" * 4096


async def pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // len(PIECE)):
        yield PIECE


class Store:
    """A file server that stores the length and digest of each file."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int, str, bool]] = []
        self.gone = 0
        self.read = 0
        self.refuse_at: int | None = None
        self.cut_at: int | None = None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return await self._download(request)
        digest, size = hashlib.sha256(), 0
        kind = request.headers.get("content-type", "")
        try:
            async for piece in request.content.iter_any():
                digest.update(piece)
                size += len(piece)
                self.read = size
                if self.refuse_at is not None and size >= self.refuse_at:
                    error = {"error": {"message": "too large", "type": "invalid_request_error"}}
                    return web.json_response(error, status=413)
        except BaseException:
            self.gone += 1
            raise
        chunked = request.headers.get("transfer-encoding") == "chunked"
        self.seen.append((request.path, kind, size, digest.hexdigest(), chunked))
        return web.json_response({"id": "file-1", "bytes": size})

    async def _download(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                "content-type": "application/octet-stream",
                "content-disposition": 'attachment; filename="a.bin"',
                "content-length": str(SIZE),
                "set-cookie": "a=b",
                "x-secret": "no",
            }
        )
        await response.prepare(request)
        sent_value = 0
        try:
            async for piece in pieces(SIZE):
                if self.cut_at is not None and sent_value >= self.cut_at:
                    assert request.transport is not None
                    request.transport.abort()
                    break
                await response.write(piece)
                sent_value += len(piece)
                self.read = sent_value
        except (ConnectionError, asyncio.CancelledError):
            self.gone += 1
            raise
        return response


@asynccontextmanager
async def stored(
    folder: Path, aiohttp_raw_server: AiohttpRawServer, **how: Any
) -> AsyncIterator[tuple[Store, Proxy, ClientSession]]:
    store = Store()
    server = await aiohttp_raw_server(store.handle)
    url = str(server.make_url("")).rstrip("/")
    async with running(folder, url, **how) as proxy, ClientSession(base_url=proxy.url) as client:
        yield store, proxy, client


def resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("chunked", [False, True])
async def test_large_upload_passes_in_bounded_memory(
    chunked: bool, tmp_path: Path, aiohttp_raw_server: AiohttpRawServer
) -> None:
    expected = hashlib.sha256(PIECE * (SIZE // len(PIECE))).hexdigest()
    async with stored(tmp_path, aiohttp_raw_server) as (store, proxy, client):
        count_before = resident()
        headers = {**BEARER, "content-type": "application/octet-stream"}
        if not chunked:
            headers["content-length"] = str(SIZE)
        async with client.post("/v1/files", headers=headers, data=pieces(SIZE)) as response:
            assert response.status == 200, await response.text()
            assert await response.json() == {"id": "file-1", "bytes": SIZE}
        assert resident() - count_before < 24 * MIB
        [record] = await proxy.sink.wait()

    kind = "application/octet-stream"
    assert store.seen == [("/v1/files", kind, SIZE, expected, chunked)]
    assert record.outcome == "success"
    assert record.billing.cost == 0


async def test_large_download_passes_in_bounded_memory(
    tmp_path: Path, aiohttp_raw_server: AiohttpRawServer
) -> None:
    async with stored(tmp_path, aiohttp_raw_server) as (_, proxy, client):
        count_before, size = resident(), 0
        async with client.get("/v1/files/file-1/content", headers=BEARER) as response:
            assert response.status == 200
            assert response.headers["content-length"] == str(SIZE)
            assert response.headers["content-type"] == "application/octet-stream"
            assert response.headers["content-disposition"] == 'attachment; filename="a.bin"'
            assert "x-secret" not in response.headers
            assert "set-cookie" not in response.headers
            async for piece in response.content.iter_any():
                size += len(piece)
        assert size == SIZE
        assert resident() - count_before < 24 * MIB
        [record] = await proxy.sink.wait()
    assert record.outcome == "success"


async def test_slow_client_slows_the_download(
    tmp_path: Path, aiohttp_raw_server: AiohttpRawServer
) -> None:
    async with stored(tmp_path, aiohttp_raw_server) as (store, proxy, client):
        async with client.get("/v1/files/file-1/content", headers=BEARER) as response:
            await response.content.readany()
            value_before = -1
            while store.read != value_before:  # until all buffers are full
                value_before = store.read
                await asyncio.sleep(0.2)
            assert store.read < SIZE // 2
        [record] = await proxy.sink.wait()
        await eventually(lambda: store.gone == 1)
    assert record.outcome == "client_abort"


async def test_disconnect_ends_upload(tmp_path: Path, aiohttp_raw_server: AiohttpRawServer) -> None:
    async with stored(tmp_path, aiohttp_raw_server) as (store, proxy, _):
        _, writer = await proxy.connect()
        writer.write(
            f"POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: {BEARER['authorization']}\r\n"
            f"content-type: application/pdf\r\ncontent-length: {MIB}\r\n\r\n".encode()
            + PIECE
        )
        await eventually(lambda: store.read == len(PIECE))
        writer.transport.abort()
        [record] = await proxy.sink.wait()
        await eventually(lambda: store.gone == 1)
    assert record.outcome == "client_abort"
    assert store.seen == []


async def test_early_refusal_reaches_the_client(
    tmp_path: Path, aiohttp_raw_server: AiohttpRawServer
) -> None:
    async with stored(tmp_path, aiohttp_raw_server) as (store, proxy, client):
        store.refuse_at = MIB
        headers = {**BEARER, "content-type": "application/pdf"}
        async with client.post("/v1/files", headers=headers, data=pieces(4 * MIB)) as response:
            assert response.status == 413
            assert (await response.json())["error"]["message"] == "too large"
        [record] = await proxy.sink.wait()
    assert record.error.code == "upstream_refused"


@pytest.mark.parametrize("chunked", [False, True])
async def test_upload_is_bounded_by_the_listed_size(
    chunked: bool, tmp_path: Path, aiohttp_raw_server: AiohttpRawServer
) -> None:
    async with stored(tmp_path, aiohttp_raw_server) as (store, proxy, client):
        headers = {**BEARER, "content-type": "application/pdf"}
        if not chunked:
            headers["content-length"] = str(101 * MIB)
        try:
            async with client.post(
                "/v1/files", headers=headers, data=pieces(101 * MIB)
            ) as response:
                assert response.status == 413
        except aiohttp.ClientConnectionError:
            assert not chunked  # closed while it sent unread bytes
        [record] = await proxy.sink.wait()
    assert record.error.code == "request_too_large"
    assert store.seen == []


async def test_cut_response_is_error(tmp_path: Path, aiohttp_raw_server: AiohttpRawServer) -> None:
    async with stored(tmp_path, aiohttp_raw_server) as (store, proxy, client):
        store.cut_at = MIB
        async with client.get("/v1/files/file-1/content", headers=BEARER) as response:
            assert response.status == 200
            with pytest.raises(aiohttp.ClientError):
                await response.read()
        [record] = await proxy.sink.wait()
    assert record.outcome == "upstream_error"


class Transport:
    """A transport of a socket, with or without TLS."""

    def __init__(self, own_value: socket.socket, tls: object = None) -> None:
        self._info = {"socket": own_value, "ssl_object": tls}

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._info.get(name, default)


def test_duplicate_socket_reads_after_the_first_is_closed() -> None:
    ours, theirs = socket.socketpair()
    spare = DuplicateSocket(Transport(ours))  # type: ignore[arg-type]
    theirs.send(b"refused")
    ours.close()

    assert spare.read(100) == b"refused"
    spare.close()
    spare.close()
    theirs.close()
    assert spare.read(100) == b""


def test_tls_connection_has_no_duplicate_socket() -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"secret")

    assert DuplicateSocket(Transport(ours, object())).read(100) == b""  # type: ignore[arg-type]
    ours.close()
    theirs.close()


@asynccontextmanager
async def early(answer: bytes, read_bytes: int) -> AsyncIterator[tuple[str, asyncio.Future[int]]]:
    """A server that responds after ``read_bytes`` of a request and counts its bytes."""
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


async def test_large_body_is_sent_completely(http: HttpClient, upstream: ScriptedUpstream) -> None:
    upstream.then(sends(OK), sends(OK))
    body = bytes(range(256)) * 2**16

    assert await ask(http, upstream.url, body=body) == b"ok"
    assert await ask(http, upstream.url) == b"ok"

    assert upstream.requests[0].body == body
    assert upstream.connections == 1


async def test_large_body_needs_no_second_descriptor(
    http: HttpClient, upstream: ScriptedUpstream
) -> None:
    """The second descriptor only serves to read an early refusal."""
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
        async with await http.request(url, {}, body, PATIENT) as reply:
            assert (reply.status, await read_body(reply)) == (413, b"ok")
        async with asyncio.timeout(PATIENCE_S):
            assert await future < len(body)


REFUSAL = b'{"error": {"message": "too large"}}'
REFUSALS = {
    "with a length": b"HTTP/1.1 413 X\r\ncontent-length: %d\r\n\r\n" % len(REFUSAL) + REFUSAL,
    "to the end": b"HTTP/1.1 413 X\r\nconnection: close\r\n\r\n" + REFUSAL,
}


@contextmanager
def refusing(answer: bytes, times: int) -> Iterator[str]:
    """A server that responds and closes before it reads, so that later bytes cause a reset."""

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
            async with await http.request(
                url, {}, b"x" * size, PATIENT, new_connection=True
            ) as reply:
                results.append(reply.status)

    assert results == [413] * 30
