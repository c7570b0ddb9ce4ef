"""aiohttp's low-level server with stricter framing, and connections that can be drained."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

import orjson
from aiohttp import HttpVersion10, HttpVersion11, http_parser, streams, web, web_protocol
from aiohttp.http import StreamWriter

from proxy.errors.wire import VersionNotSupported
from proxy.server.response import SentResponse

HEAD_TIMEOUT_S = 10.0
MAX_HEAD_BYTES = 64 * 1024
MAX_FRAMING_BYTES = 64 * 1024  # maximum framing bytes of a chunked body
BODY_BYTES_PER_FRAMING_BYTE = 8  # plus one byte per this many bytes of the body
PARSE_BYTES = 4 * 1024  # bytes parsed between two counts of framing bytes
MAX_FRAMING_AT_ONCE = 1024  # framing bytes parsed before other connections are served, about 1 ms
MAX_UNREAD_CHUNKS = 256  # unread chunks at which reading pauses
CHUNKED = "chunked"
VERSIONS = (HttpVersion10, HttpVersion11)
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)
_USER_AGENT = b"user-agent:"
# In messages of aiohttp's parser.
_OTHER_VERSION = ("Invalid HTTP version", "Expected dot", "Pause on PRI")
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class InvalidFraming(Exception):
    """The chunked framing of a body is malformed or too large. The connection must be closed."""


class Request(web.BaseRequest):
    """A request whose connection closes while draining, or if the next request may be misparsed.

    aiohttp's parser adds trailers to the next request, and drops data after an upgrade request.
    """

    server: HttpServer
    is_unsupported = False  # the HTTP version is neither 1.0 nor 1.1

    @property
    def keep_alive(self) -> bool:
        message = self._message
        if message.should_close or message.chunked or message.upgrade or self.server.draining:
            return False
        return not isinstance(self._payload.exception(), InvalidFraming)


class ConnectionHandler(web.RequestHandler):
    """aiohttp's connection handler, changed for safety and speed.

    - One task per connection serves all its requests. aiohttp starts a task per request to isolate
      context variables, which are not used here.
    - Errors for malformed requests contain none of their bytes, and are not logged.
    - A connection without a complete request head in time is closed.
    - A head is parsed once it is complete. ``User-Agent`` may be repeated, because proxies do that.
    - A body with malformed framing raises ``InvalidFraming`` in its reader.
    - Other connections are served between groups of chunks, whose processing takes long.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _head = b""
    _head_at = 0.0
    _body: streams.StreamReader | None = None  # body that is being received
    _length = 0  # Content-Length of ``_body``, 0 if it is chunked
    _framing = 0  # framing bytes received with ``_body``
    _waiting = b""  # bytes to parse after other connections were served
    _next_slice: asyncio.Handle | None = None
    server: HttpServer  # server that accepted the connection

    async def start(self) -> None:
        while not self._force_close:
            if self._messages:
                await asyncio.sleep(0)  # other connections are served between pipelined requests
            else:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            if not await self._serve_next_request() or self._close or self._force_close:
                break
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _serve_next_request(self) -> bool:
        """Serve the oldest request. Return True if the connection can be kept."""
        message, payload = self._messages.popleft()
        is_whole = payload.is_eof()
        if is_whole and self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        try:
            response, is_reset = await self._start_request(message, payload)
            self._keepalive = bool(response.keep_alive) and not is_reset
            if not is_reset and not payload.is_eof():
                await self._discard_unread_body(payload)
            if not is_whole and self._parser is not None:  # the body may have paused reading
                self._parser.message_consumed()
                self.data_received(b"")
        except ConnectionError:
            return False
        except BaseException:
            self.force_close()
            raise
        self._next_keepalive_close_time = rested = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None and self._keepalive:
            self._keepalive_handle = self._loop.call_at(rested, self._process_keepalive)
        return self._keepalive

    def _start_request(
        self, message: Any, payload: streams.StreamReader
    ) -> Coroutine[Any, Any, tuple[web.StreamResponse, bool]]:
        server = self.server
        server.requests_count += 1
        handler = server.request_handler
        if not isinstance(message, http_parser.RawRequestMessage):
            handler, message = self._make_error_handler(message), web_protocol.ERROR
        request = server.request_factory(
            message,
            payload,
            self,
            StreamWriter(self, self._loop),
            cast("Any", None),  # the connection's task would create a reference cycle
        )
        return self._handle_request(request, None, handler)

    async def _discard_unread_body(self, payload: streams.StreamReader) -> None:
        """Discard the rest of a body for a short time: a reset could lose the response."""
        with suppress(TimeoutError, web.RequestPayloadError):
            async with asyncio.timeout(self._lingering_time):
                while not payload.is_eof():
                    await payload.readany()
        if not payload.is_eof():
            self.close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, SentResponse) and not self._upgraded:
            return resp, False
        return await super().finish_response(request, resp, start_time)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._head_timer = self._loop.call_later(HEAD_TIMEOUT_S, self._close_if_never_requested)

    def connection_lost(self, exc: BaseException | None) -> None:
        for timer in (self._head_timer, self._next_slice):
            if timer is not None:
                timer.cancel()
        self._waiting, self._body = b"", None  # a body refers to its connection
        super().connection_lost(exc)

    def _close_if_never_requested(self) -> None:
        """Close the connection if it has not had a request. A timer calls this."""
        if self._request_count == 0 and self.transport is not None:
            self.transport.abort()

    @property
    def is_idle(self) -> bool:
        """True while no request is being served."""
        return not self._messages and (self._waiter is not None or self._request_count == 0)

    def get_idle_start(self) -> float:
        """Return the loop time at which the connection became idle or its partial head began."""
        idle_at: float = self._next_keepalive_close_time - self._keepalive_timeout
        return max(idle_at, self._head_at) if self._head else idle_at

    def data_received(self, data: bytes) -> None:
        # While no request is served, the parser expects a head or the rest of one. Data that begins
        # with a letter cannot be the end of a body, so everything up to the empty line is a head.
        if (self._head or data[:1].isalpha()) and self.is_idle:
            data = self._collect_head(data)
        if data and self._waiting:  # data that arrived before the transport was paused
            self._waiting += data
            return
        offset, framing_before = 0, self._framing
        while offset + PARSE_BYTES < len(data):
            if self._is_within_sized_body(len(data) - offset):
                super().data_received(data[offset:])
                return
            self._parse(data[offset : offset + PARSE_BYTES])
            offset += PARSE_BYTES
            if self._framing - framing_before > MAX_FRAMING_AT_ONCE:
                self._postpone_parsing(data[offset:])
                return
        self._parse(data[offset:])

    def _is_within_sized_body(self, size: int) -> bool:
        """Return True if the next ``size`` bytes all belong to a body with a known length."""
        body = self._body
        if body is None or self._reading_paused or self._buffer_paused:  # the parser may hold some
            return False
        return body.total_bytes + size <= self._length

    def _parse(self, data: bytes) -> None:
        body_before = self._body.total_bytes if self._body is not None else 0
        super().data_received(data)
        if self._body is not None or (self._messages and not self._messages[-1][1].is_eof()):
            self._count_framing(len(data), body_before)

    def _postpone_parsing(self, data: bytes) -> None:
        """Defer parsing until other connections were served, and pause reading until then."""
        self._waiting = data
        self._pause_transport_reading()
        if not self._reading_paused:
            self._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        """Resume, or first parse the bytes that were received before the pause."""
        if not self._waiting:
            super()._resume_transport_reading()
        elif self._next_slice is None:
            self._next_slice = self._loop.call_soon(self._parse_next_slice)

    def _parse_next_slice(self) -> None:
        """Parse the next slice, unless chunks are unread. Their reader then continues parsing."""
        self._next_slice = None
        if self._reading_paused or self._buffer_paused or self.transport is None:
            return
        data, self._waiting = self._waiting, b""
        self.data_received(data)
        if not self._waiting and not self._reading_paused and not self._buffer_paused:
            self._resume_transport_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume after a pause. aiohttp calls this for each chunk that is read."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _count_framing(self, size: int, body_before: int) -> None:
        """Count framing bytes of a chunked body: chunk sizes, extensions and trailers.

        Data that the parser holds while reading is paused is counted later.
        """
        body = self._get_incomplete_body()
        if body is None or body is not self._body:
            self._body, self._framing = body, 0
            if body is not None:
                body._high_water_chunks = MAX_UNREAD_CHUNKS
                body._low_water_chunks = MAX_UNREAD_CHUNKS // 2
                self._length = self._get_last_content_length()
            return
        self._framing += size - (body.total_bytes - body_before)
        broken = bool(self._messages) and not _is_request(self._messages[-1][0])
        max_framing = MAX_FRAMING_BYTES + body.total_bytes // BODY_BYTES_PER_FRAMING_BYTE
        if broken or (self._framing > max_framing and not self._reading_paused):
            self._body = None
            body.set_exception(InvalidFraming())
            body.feed_eof()
            self.close()  # closes after the response; further data is not parsed

    def _get_last_content_length(self) -> int:
        """Return the Content-Length of the last request, 0 if it is chunked."""
        for message, _ in reversed(self._messages):
            if isinstance(message, http_parser.RawRequestMessage):
                return 0 if message.chunked else int(message.headers.get("content-length", 0))
        return 0

    def _get_incomplete_body(self) -> streams.StreamReader | None:
        bodies = [body for message, body in self._messages if _is_request(message)]
        last_body = bodies[-1] if bodies else self._body
        return None if last_body is None or last_body.is_eof() else last_body

    def _collect_head(self, data: bytes) -> bytes:
        """Return a complete head and the data after it. Store an incomplete one, return ``b""``."""
        if not self._head:
            end = data.find(b"\r\n\r\n")
            if 0 <= end <= MAX_HEAD_BYTES and data[:end].lower().count(_USER_AGENT) < 2:
                return data  # the usual case
        searched = max(0, len(self._head) - 3)
        data, self._head = self._head + data, b""
        end = data.find(b"\r\n\r\n", searched)
        if end < 0 and b"\n\n" not in data and len(data) <= MAX_HEAD_BYTES:
            if not searched:
                self._head_at = self._loop.time()
            self._head = data
            return b""
        if end > MAX_HEAD_BYTES or (end < 0 and len(data) > MAX_HEAD_BYTES):
            if self.transport is not None:
                self.transport.write(_TOO_LARGE)
            self.force_close()
            return b""
        if data[:end].lower().count(_USER_AGENT) > 1:
            data = drop_repeated_user_agents(data[:end]) + data[end:]
        return data

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError(
                "the response has begun, so only closing the connection can report an error"
            )
        text = "The request is not valid HTTP." if status < 500 else "The proxy failed."
        if any(fault in (message or "") for fault in _OTHER_VERSION):
            status, text = 505, str(VersionNotSupported())
        error = {"message": text, "type": "invalid_request_error", "param": None, "code": None}
        body = orjson.dumps({"error": error})
        response = web.Response(status=status, body=body, content_type="application/json")
        response.headers["server"] = "headrace"
        response.force_close()
        return response


def _is_request(message: object) -> bool:
    """Return False for the placeholder of bytes that are not a request."""
    return isinstance(message, http_parser.RawRequestMessage)


def drop_repeated_user_agents(head: bytes) -> bytes:
    """Return a head with its first ``User-Agent`` only, unless it has folded lines."""
    lines = head.split(b"\r\n")
    if any(line[:1] in (b" ", b"\t") for line in lines):
        return head
    agents = [line for line in lines if line[: len(_USER_AGENT)].lower() == _USER_AGENT]
    repeated = {id(line) for line in agents[1:]}
    return b"\r\n".join(line for line in lines if id(line) not in repeated)


class InsecureParser(RuntimeError):
    """aiohttp uses its Python parser, which has had vulnerabilities that the C parser lacks."""


class HttpServer(web.Server):
    """A server whose handlers are canceled when the client disconnects.

    Bodies are never decompressed, because a few bytes could cost seconds of CPU. While
    ``draining``, each response closes its connection. Raises ``InsecureParser`` if aiohttp lacks
    its C parser.
    """

    def __init__(self, handler: Handler, **options: Any) -> None:
        if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
            raise InsecureParser("aiohttp is installed without its C parser. Reinstall it")
        options = {"auto_decompress": False, "request_factory": self._build_request, **options}
        super().__init__(handler, handler_cancellation=True, **options)
        self.draining = False

    def __call__(self) -> web.RequestHandler:
        connection = ConnectionHandler(self, loop=self._loop, **self._kwargs)
        connection.server = self
        return connection

    def _build_request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        is_supported = message.version in VERSIONS
        if not is_supported:  # the error response needs a supported version
            message = message._replace(version=HttpVersion11, should_close=True)
        headers = message.headers
        if "transfer-encoding" in headers and headers["transfer-encoding"].lower() != CHUNKED:
            message = message._replace(should_close=True)
        request = Request(message, payload, protocol, writer, task, self._loop)
        request.server = self
        request.is_unsupported = not is_supported
        return request

    def close_idle_connections(self, idle_since: float) -> None:
        """Close the connections that have been idle since ``idle_since`` or longer."""
        for connection in self.connections:
            if not isinstance(connection, ConnectionHandler) or not connection.is_idle:
                continue
            if connection.get_idle_start() <= idle_since:
                connection.force_close()
