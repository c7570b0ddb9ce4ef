"""Upstream connections over real sockets: timeouts, backpressure, ends, and reuse."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from proxy.errors import UpstreamError, UpstreamInvalid, UpstreamTimeout, UpstreamUnavailable
from proxy.types import Timeouts
from proxy.upstream.client import HttpClient, HttpReply
from proxy.upstream.reply import do_nothing
from proxy.upstream.wire.connection import MAX_BUFFER_BYTES
from proxy.upstream.wire.dialing import Dialer, DnsCache, Origin
from tests.doubles import (
    PATIENCE_S,
    TRUST,
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    closes,
    hang,
    head,
    http_chunk,
    sends,
)

SHORT_TIMEOUTS = Timeouts(connect=1, first_byte=0.1, idle=0.1, total=2)
PATIENT = Timeouts(connect=2, first_byte=5, idle=5, total=5)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
STREAM = head(200, "text/event-stream", "transfer-encoding: chunked")


async def ask(
    http: HttpClient, url: str, timeouts: Timeouts = PATIENT, body: bytes = b"{}"
) -> bytes:
    async with await http.request(url, {"x": "y"}, body, timeouts) as reply:
        return await read_body(reply)


async def read_body(reply: HttpReply) -> bytes:
    body = bytearray()
    while piece := await reply.read():
        body += piece
    return bytes(body)


async def test_exchanges_whole_messages(http: HttpClient, upstream: ScriptedUpstream) -> None:
    upstream.then(sends(OK))

    assert await ask(http, f"{upstream.url}/a/b?c=d", body=b"body") == b"ok"

    [request] = upstream.requests
    assert (request.method, request.path, request.body) == ("POST", "/a/b?c=d", b"body")
    assert request.headers == {
        "host": upstream.url.removeprefix("http://"),
        "x": "y",
        "content-length": "4",
    }


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb: c", "a\rb", "a\0b", "na\u00efve"])
async def test_header_with_line_break_is_refused(
    value: str, http: HttpClient, upstream: ScriptedUpstream
) -> None:
    with pytest.raises(UpstreamUnavailable):
        await http.request(upstream.url, {"x": value}, b"", PATIENT)

    assert upstream.connections == 0


USED_AGAIN = {
    "a length": sends(OK),
    "chunks": sends(STREAM, http_chunk(b"ok"), b"0\r\n\r\n"),
    "no content": sends(b"HTTP/1.1 204 X\r\n\r\n"),
    "after interim responses": sends(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nlink: x\r\n\r\n", OK
    ),
    "1.0 that says so": sends(
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok"
    ),
}
USED_ONCE = {
    "an answer that says so": sends(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")),
    "1.0": closes(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    "an answer without an end of its own": closes(b"HTTP/1.1 200 OK\r\n\r\nok"),
    "an answer that is longer than it said": sends(OK + b"EXTRA"),
    "chunks after the last": sends(
        STREAM + http_chunk(b"ok") + b"0\r\n\r\n" + http_chunk(b"EXTRA")
    ),
    "an answer before the next question": sends(OK + OK.replace(b"ok", b"no")),
}


@pytest.mark.parametrize(
    ("script", "connections"),
    [pytest.param(v, 1, id=k) for k, v in USED_AGAIN.items()]
    + [pytest.param(v, 2, id=k) for k, v in USED_ONCE.items()],
)
async def test_connection_is_reused_if_allowed(
    script: Script, connections: int, http: HttpClient, upstream: ScriptedUpstream
) -> None:
    upstream.then(script)
    upstream.answer_with(sends(OK))

    first_data = await ask(http, upstream.url)
    second = await ask(http, upstream.url)

    assert first_data in (b"ok", b"")
    assert second == b"ok"
    assert upstream.connections == connections


async def test_unexpected_bytes_close_it(http: HttpClient, upstream: ScriptedUpstream) -> None:
    extra, ended = asyncio.Event(), asyncio.Event()

    async def answer_then_speak(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(OK)
        await extra.wait()
        await wire.send(OK.replace(b"ok", b"no"))
        await request.closed.wait()
        ended.set()

    upstream.then(answer_then_speak)
    upstream.answer_with(sends(OK))

    await ask(http, upstream.url)
    extra.set()
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()

    assert await ask(http, upstream.url) == b"ok"
    assert upstream.connections == 2


SILENT_SCRIPTS = {
    "no head": (hang(), "first_byte"),
    "no body": (hang(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"), "first_byte"),
    "half a body": (hang(OK[:-1]), "idle"),
    "no last chunk": (hang(STREAM, http_chunk(b"ok")), "idle"),
}


@pytest.mark.parametrize(
    ("script", "phase"), [pytest.param(*v, id=k) for k, v in SILENT_SCRIPTS.items()]
)
async def test_silence_is_bounded_in_each_phase(
    script: Script, phase: str, http: HttpClient, upstream: ScriptedUpstream
) -> None:
    upstream.then(script)
    upstream.answer_with(sends(OK))

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(UpstreamTimeout) as timeout_error:
            await ask(http, upstream.url, SHORT_TIMEOUTS)
        await upstream.requests[0].closed.wait()

    assert timeout_error.value.code == f"upstream_{phase}_timeout"
    assert await ask(http, upstream.url) == b"ok"


def drips(begin: bytes, drip: bytes) -> Script:
    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(begin)
        while not request.closed.is_set():
            await wire.send(drip)
            await asyncio.sleep(0.02)

    return script


DRIPPING = {
    "a head": (drips(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"), "first_byte"),
    "a body": (drips(STREAM, http_chunk(b": ping\n\n")), "total"),
}


@pytest.mark.parametrize(("script", "phase"), [pytest.param(*v, id=k) for k, v in DRIPPING.items()])
async def test_slowly_dripping_response_times_out(
    script: Script, phase: str, http: HttpClient, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(script)

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(UpstreamTimeout) as timeout_error:
            await ask(http, upstream.url, Timeouts(connect=1, first_byte=0.2, idle=0.2, total=0.5))

    assert timeout_error.value.code == f"upstream_{phase}_timeout"


async def test_total_timeout_always_applies(http: HttpClient, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang(OK[:-1]))
    short = Timeouts(connect=1, first_byte=1, idle=1, total=0.1)

    async with await http.request(upstream.url, {}, b"", short) as reply:
        await asyncio.sleep(0.15)
        with pytest.raises(UpstreamTimeout) as timeout_error:
            await reply.read()

    assert timeout_error.value.code == "upstream_total_timeout"


async def test_later_request_may_have_a_shorter_timeout(
    http: HttpClient, upstream: ScriptedUpstream
) -> None:
    upstream.then(sends(OK), hang())

    await ask(http, upstream.url)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(UpstreamTimeout):
            await ask(http, upstream.url, SHORT_TIMEOUTS)


BROKEN = {
    "nothing": (closes(), UpstreamUnavailable),
    "half a body": (closes(OK[:-1]), UpstreamInvalid),
    "half a chunk": (closes(STREAM, b"5\r\nhel"), UpstreamInvalid),
}


@pytest.mark.parametrize(("script", "kind"), [pytest.param(*v, id=k) for k, v in BROKEN.items()])
async def test_incomplete_response_is_an_error(
    script: Script, kind: type[UpstreamError], http: HttpClient, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(script)

    with pytest.raises(kind) as broken:
        await ask(http, upstream.url)

    assert type(broken.value) is kind
    assert len(upstream.requests) == 1


async def test_reset_is_not_end_of_body(http: HttpClient, upstream: ScriptedUpstream) -> None:
    async def reset(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\nok")
        await go_on.wait()
        now = struct.pack("ii", 1, 0)  # no linger, so that closing resets the connection
        wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        wire.cut()

    go_on = asyncio.Event()
    upstream.answer_with(reset)

    async with await http.request(upstream.url, {}, b"", PATIENT) as reply:
        assert await reply.read() == b"ok"
        go_on.set()
        with pytest.raises(UpstreamInvalid):
            await reply.read()


async def test_bytes_before_fault_are_read(http: HttpClient, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(closes(STREAM + http_chunk(b"good") + b"zz\r\n"))

    async with await http.request(upstream.url, {}, b"", PATIENT) as reply:
        assert await reply.read() == b"good"
        with pytest.raises(UpstreamInvalid):
            await reply.read()


async def test_abandoned_reply_is_closed(http: HttpClient, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(sends(OK))
    async with await http.request(upstream.url, {}, b"", PATIENT) as reply:
        await read_body(reply)

    reply.release_after_last_frame()
    with pytest.raises(RuntimeError):
        await reply.read()


async def test_idle_reader_pauses_upstream(http: HttpClient, upstream: ScriptedUpstream) -> None:
    sent_value, block = 0, b"x" * 65536

    async def endless(request: ReceivedRequest, wire: Wire) -> None:
        nonlocal sent_value
        await wire.send(STREAM)
        while not request.closed.is_set():
            await wire.send(http_chunk(block))
            sent_value += len(block)

    upstream.answer_with(endless)
    async with await http.request(upstream.url, {}, b"", PATIENT) as reply:
        value_before = -1
        while value_before < sent_value:  # until the buffers of both sockets are full
            value_before = sent_value
            await asyncio.sleep(0.1)
        first_data = await reply.read() or b""
        read = len(first_data)
        while read < value_before + 2**20:  # reading makes it continue
            read += len(await reply.read() or b"")

    assert len(first_data) < MAX_BUFFER_BYTES + 2**20
    assert set(first_data) == {ord("x")}


async def test_buffered_bytes_outlive_connection(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang(STREAM, http_chunk(b"x" * 2**20)))

    async with HttpClient(TRUST) as http:
        reply = await http.request(upstream.url, {}, b"", PATIENT)
        await asyncio.sleep(0.1)  # until more arrived than the buffer holds, so reading paused

    assert set(await reply.read() or b"") == {ord("x")}
    with pytest.raises(UpstreamInvalid):
        await reply.read()


async def test_connection_closed_on_accept_is_an_upstream_error(http: HttpClient) -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(leave, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for _ in range(20):
            with pytest.raises(UpstreamUnavailable):
                await http.request(url, {}, b"x" * 2**20, PATIENT)


async def test_closed_connection_sends_nothing(upstream: ScriptedUpstream) -> None:
    address = Origin("127.0.0.1", int(upstream.url.rpartition(":")[2]), tls=False)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    dialer = Dialer(None, DnsCache())
    connection = await dialer.dial(address, 1, lambda _: ended.set())
    connection.abort()
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()

    with pytest.raises(UpstreamUnavailable):
        connection.send(b"POST", b"", loop.time() + 1, do_nothing)
