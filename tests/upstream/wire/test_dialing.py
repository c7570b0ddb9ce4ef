"""Dialing: names, several addresses, connect timeouts, and certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from proxy.types import Timeouts
from proxy.upstream.client import HttpClient
from proxy.upstream.wire.connection import Connection
from proxy.upstream.wire.dialing import (
    Dialer,
    DnsCache,
    Origin,
    load_system_context,
)
from tests.doubles import PATIENCE_S, TRUST, ScriptedUpstream, hang, respond
from tests.for_each import for_each
from tests.servers import program
from tests.upstream.wire.test_connection import read_body
from tests.upstream.wire.test_name_cache import Book

TIMEOUTS = Timeouts(connect=2, first_byte=2, idle=2, total=5)


def close_abruptly(connection: Connection) -> None:
    return None


async def dialed(book: Book, url: str, patience: float = 2.0) -> str:
    """Connect by name to the port of a URL and return the connected address."""
    port = int(url.rpartition(":")[2])
    return await dialed_by(book.names(), port, patience)


async def dialed_by(names: DnsCache, port: int, patience: float = 2.0) -> str:
    dialer = Dialer(None, names)
    connection = await dialer.dial(Origin("openai.test", port, tls=False), patience, close_abruptly)
    address = connection.peer_ip
    connection.abort()
    return address


async def test_failed_address_moves_to_the_end(upstream: ScriptedUpstream) -> None:
    names = Book("127.0.0.2", "127.0.0.1").names()
    port = int(upstream.url.rpartition(":")[2])

    assert await dialed_by(names, port) == "127.0.0.1"
    assert await names.resolve_addresses("openai.test", port) == ["127.0.0.1", "127.0.0.2"]


@pytest.mark.parametrize("host", [f"{'a' * 64}.test", "127.0.0.1:9"], ids=["name", "port"])
async def test_unreachable_host_is_an_error(host: str) -> None:
    async with HttpClient(TRUST) as http:
        with pytest.raises(UpstreamUnavailable, match="cannot be reached"):
            await http.request(f"http://{host}/", {}, b"", TIMEOUTS)


@contextmanager
def black_hole(address: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port with a full accept queue, so that connecting hangs."""
    with socket.socket() as listening:
        listening.bind((address, port))
        listening.listen(0)
        full = [socket.socket() for _ in range(3)]
        for item in full:
            item.setblocking(False)
            item.connect_ex(listening.getsockname())
        try:
            yield int(listening.getsockname()[1])
        finally:
            for item in full:
                item.close()


@for_each(
    ("timeouts", "phase"),
    [(Timeouts(connect=0.1), "connect"), (Timeouts(connect=5, total=0.1), "total")],
    ids=["connect", "total"],
)
async def test_connecting_is_bounded(timeouts: Timeouts, phase: str) -> None:
    with black_hole() as port:
        async with HttpClient(TRUST) as http, asyncio.timeout(PATIENCE_S):
            with pytest.raises(UpstreamTimeout) as timeout_error:
                await http.request(f"http://127.0.0.1:{port}/", {}, b"", timeouts)

    assert timeout_error.value.code == f"upstream_{phase}_timeout"


async def test_dead_address_gets_only_its_share_of_time(upstream: ScriptedUpstream) -> None:
    port = int(upstream.url.rpartition(":")[2])
    with black_hole("127.0.0.2", port):
        assert await dialed(Book("127.0.0.2", "127.0.0.1"), upstream.url, 0.4) == "127.0.0.1"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    path, key = folder / "cert.pem", folder / "key.pem"
    prompt = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test \
        -addext subjectAltName=DNS:localhost -keyout {key} -out {path}"
    subprocess.run([program("openssl"), *prompt.split()], check=True, capture_output=True)
    return path, key


@asynccontextmanager
async def tls_upstream(
    certificate: tuple[Path, Path], greeted: list[str | None]
) -> AsyncIterator[ScriptedUpstream]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.sni_callback = lambda _, name, __: greeted.append(name)
    upstream = ScriptedUpstream()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(upstream.protocol, "127.0.0.1", 0, ssl=context)
    async with server:
        upstream.url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        yield upstream


async def test_tls_verifies_and_keeps_connection(certificate: tuple[Path, Path]) -> None:
    greeted: list[str | None] = []
    trust = load_system_context()
    trust.load_verify_locations(certificate[0])
    large = b"x" * 2**20
    async with tls_upstream(certificate, greeted) as upstream, HttpClient(trust) as http:
        upstream.then(respond(large), respond(large))
        for _ in range(2):
            async with await http.request(upstream.url, {}, large, TIMEOUTS) as reply:
                assert await read_body(reply) == large

    assert (greeted, upstream.connections) == (["localhost"], 1)


@pytest.mark.parametrize("event", [False, True], ids=["nobody trusts it", "it names another host"])
async def test_invalid_certificate_is_rejected(event: bool, certificate: tuple[Path, Path]) -> None:
    trust = load_system_context()
    if event:
        trust.load_verify_locations(certificate[0])
    async with tls_upstream(certificate, []) as upstream, HttpClient(trust) as http:
        url = upstream.url.replace("localhost", "127.0.0.1") if event else upstream.url
        with pytest.raises(UpstreamUnavailable, match="certificate is invalid") as failed:
            await http.request(url, {}, b"", TIMEOUTS)

    assert failed.value.cause == "tls_certificate"
    assert "CERTIFICATE_VERIFY_FAILED" in (failed.value.system_text or "")
    assert upstream.requests == []


async def answer_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1024)


async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@for_each(
    ("serve", "cause", "text"),
    [
        (answer_plainly, "tls", "[SSL: WRONG_VERSION_NUMBER]"),
        (hang_up, "tls", ""),
        (stay_silent, "timeout", "TLS handshake with"),
    ],
)
async def test_failed_tls_handshake_is_an_error(serve: Any, cause: str, text: str) -> None:
    closed = asyncio.Event()

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await serve(reader, writer)
            writer.close()
            await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, HttpClient(TRUST) as http:
        with pytest.raises(UpstreamError) as failed:
            await http.request(url, {}, b"", Timeouts(connect=0.3))
        async with asyncio.timeout(PATIENCE_S):
            await closed.wait()

    assert failed.value.cause == cause
    assert text in (failed.value.system_text or "")


async def test_stuck_tls_shutdown_is_bounded(certificate: tuple[Path, Path]) -> None:
    trust = load_system_context()
    trust.load_verify_locations(certificate[0])
    async with tls_upstream(certificate, []) as upstream, HttpClient(trust) as http:
        timeouts = Timeouts(connect=2, first_byte=0.1, idle=0.1, total=2)
        upstream.answer_with(hang(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"))
        async with await http.request(upstream.url, {}, b"", timeouts) as reply:
            with pytest.raises(UpstreamTimeout):
                await reply.read()
        async with asyncio.timeout(PATIENCE_S):
            await upstream.requests[0].closed.wait()


async def test_system_certificates_are_read_once_in_a_thread() -> None:
    trust, context = Dialer(None, DnsCache()), load_system_context()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others_at_work = asyncio.create_task(count_turns())
    first_context, *extra = await asyncio.gather(*(trust.load_context() for _ in range(3)))
    others_at_work.cancel()

    assert turns > 1
    assert all(item is first_context for item in extra)
    assert first_context.verify_mode is ssl.CERT_REQUIRED
    assert await Dialer(context, DnsCache()).load_context() is context
