"""What follows the last chunk of a body is part of no other request and of no other answer, at any
cut of the bytes. aiohttp's parser gives the last field of trailers to the next head it reads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from aiohttp import web

from proxy.server.server import Handler, HttpServer
from tests.conftest import Proxy
from tests.doubles import (
    PATIENCE_S,
    ScriptedUpstream,
    head,
    http_chunk,
    legacy_completion,
    respond,
    sends,
)
from tests.for_each import for_each
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
BODY = json.dumps(ROUTE.body(streamed=False)).encode()
POST = b"POST /first HTTP/1.1\r\nHost: x\r\n%bTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET /get HTTP/1.1\r\nHost: y\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: y\r\nConnection: close\r\n\r\n"
TRAILERS = {
    "a field": b"0\r\nx-given: 1\r\n\r\n",
    "two": b"0\r\nx-a: 1\r\nx-given: 1\r\n\r\n",
    "behind an extension": b"0;a=b\r\nx-given: 1\r\n\r\n",
    "without a value": b"0\r\nx-given:\r\n\r\n",
    "named as a chunk": b"0\r\n0: 1\r\n\r\n",
    "that ends as a body": b"0\r\nx-given: 1\r\n\r\n\r\n0\r\n\r\n",
    "behind another request": b"0\r\n\r\n" + POST % b"" + b"0\r\nx-given: 1\r\n\r\n",
    "before another request": b"0\r\nx-given: 1\r\n\r\n" + POST % b"" + b"0\r\n\r\n",
}
UPGRADES = [
    b"Connection: upgrade\r\nUpgrade: %b\r\n" % protocol for protocol in (b"websocket", b"h2c")
]


class Watched(HttpServer):
    """A server that exposes its connections."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler)
        self.made: asyncio.Queue[web.RequestHandler] = asyncio.Queue()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.made.put_nowait(handler)


@dataclass
class ServedConnections:
    server: Watched
    port: int
    heads: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    async def given(self, pieces: Iterable[bytes]) -> bytes:
        """Feed pieces to a new connection and return all bytes that it sends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        connection = await self.server.made.get()
        for data in pieces:
            connection.data_received(data)
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def serve_connections(*, is_early: bool) -> AsyncIterator[ServedConnections]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        state.heads.append((request.path, {k.lower(): v for k, v in request.headers.items()}))
        if not is_early:
            with suppress(Exception):
                await request.read()
        return web.Response(text="served")

    server = Watched(handle)
    runner = web.ServerRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    state = ServedConnections(server, runner.addresses[0][1])
    try:
        yield state
    finally:
        await runner.cleanup()


def halves(raw: bytes) -> Iterable[list[bytes]]:
    yield [raw]
    yield [raw[index : index + 1] for index in range(len(raw))]
    yield from ([raw[:index], raw[index:]] for index in range(1, len(raw)))


@for_each("is_early", [False, True])
@for_each("name", TRAILERS)
async def test_trailers_do_not_reach_the_next_request(name: str, is_early: bool) -> None:
    raw = POST % b"" + http_chunk(BODY) + TRAILERS[name] + NEXT
    async with serve_connections(is_early=is_early) as state:
        for pieces in halves(raw):
            state.heads.clear()
            await state.given(pieces)

            assert not any({"x-given", "0"} & set(head) for _, head in state.heads), pieces
            assert "/next" not in [path for path, _ in state.heads], pieces


@for_each("count", range(29, 34))
async def test_parser_with_a_full_queue_leaks_nothing(count: int) -> None:
    """Unparsed bytes may look like the end of its body."""
    raw = GET * count + POST % b"" + b"0\r\nx-given: 1\r\n\r\n" + POST % b"" + b"0\r\n\r\n"
    async with serve_connections(is_early=False) as state:
        await state.given([raw, NEXT])

        assert not any("x-given" in head for _, head in state.heads)


@for_each("upgrade", UPGRADES)
@for_each("end", [b"0\r\nx-given: 1\r\n\r\n", b"0\r\nx-given: 1\r\n\r\n\n0\r\n\r\n"])
async def test_bytes_after_an_upgrade_request_are_dropped(upgrade: bytes, end: bytes) -> None:
    request_body = POST % upgrade + http_chunk(BODY) + end
    following = GET.replace(b"\r\n\r\n", b"\r\n" + upgrade + b"\r\n") + POST % b"" + end
    async with serve_connections(is_early=False) as state:
        for raw in (request_body, following):
            for pieces in halves(raw):
                state.heads.clear()
                await state.given([*pieces, NEXT])

                assert not any("x-given" in head for _, head in state.heads), pieces


async def test_trailers_stay_with_their_response(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    """On a kept connection to an upstream, at any cut."""
    raw = head(200, "application/json", "transfer-encoding: chunked")
    raw += (
        http_chunk(json.dumps(legacy_completion()).encode())
        + b"0\r\nx-ratelimit-remaining-requests: 7\r\n\r\n"
    )
    pairs = list(halves(raw[-60:]))
    for pieces in pairs:
        upstream.then(sends(raw[:-60], *pieces), respond(legacy_completion()))
        for _ in range(2):
            assert (await proxy.complete()).status == 200
    records = await proxy.sink.wait(2 * len(pairs))

    assert upstream.connections == 1
    assert [record.attempts[0].remaining for record in records] == [{}] * len(records)
