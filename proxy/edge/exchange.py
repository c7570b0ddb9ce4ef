"""One request and the way back to its client, over aiohttp: what the pipeline calls an exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from functools import partial

import orjson
from aiohttp import HttpVersion11, web

from proxy import dialects
from proxy.dialects import sse, writing
from proxy.dialects.writing import AnswerWriter, EventWriter, WholeWriter
from proxy.edge import headers
from proxy.edge.bodies import BodyShare
from proxy.edge.request import Bounds, Incoming
from proxy.errors import ClientGone, LoopDetected, ProxyError
from proxy.offload import LARGE_BYTES
from proxy.record import Record
from proxy.types import Call, Chunk, Head, RequestHead

SMALL = 32 * 1024
PIECE = 256 * 1024  # bytes of one write: each is copied before it goes out
MAX_HOPS = 8


class HttpExchange:
    """Reads one call and writes one answer. ``response`` is there once bytes have left."""

    _head: Head
    _writer: AnswerWriter
    _record: Record
    _call: Call

    def __init__(
        self, request: web.BaseRequest, request_id: str, via: str, bounds: Bounds, share: BodyShare
    ) -> None:
        self._request = request
        self._incoming = Incoming(request, bounds, share)
        self._share = share
        self._read = bounds.parsing.read
        self._offload = bounds.parsing.offload
        self._via = via
        self._stall_s = bounds.stall_s
        self._client = dialects.dialect_of(self._incoming.path, self._incoming.headers).client
        self._nonce = request_id
        self.request_id = self._incoming.given_id or request_id
        self.response: web.StreamResponse | None = None
        self._transport: asyncio.Transport | None = None  # that of an answer whose end was sent
        self._taken = False

    @property
    def gone(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    @property
    def served(self) -> bool:
        transport = self._transport
        if transport is None or self._taken:
            return self._taken
        return not transport.is_closing() and not transport.get_write_buffer_size()

    def _sent(self) -> None:
        """Note that the end of the answer was sent, and whether the system has taken it all."""
        self._transport = transport = self._request.transport
        self._taken = transport is not None and not transport.get_write_buffer_size()

    def read_head(self) -> RequestHead:
        incoming = self._incoming
        incoming.check_head()
        noted = dialects.Received(self.request_id, self._nonce, datetime.now(UTC))
        head = dialects.parse_head(self._request.method, incoming.path, incoming.headers, noted)
        if self._via in head.via or len(head.via) > MAX_HOPS:
            raise LoopDetected("An upstream of this proxy leads back to it.")
        return head

    async def read_call(self, head: RequestHead, caller: str) -> Call:
        if head.endpoint == "models":
            self._call = Call(head, {})
        else:
            self._share.charge_to(caller)
            raw = await self._incoming.body()
            make = partial(dialects.read_call, head, size=len(raw), caller=caller)
            self._call = await self._read(raw, make, caller, self._share.take_read)
        return self._call

    async def begin(self, head: Head, record: Record) -> None:
        self._head = head
        self._record = record
        self._writer = (
            EventWriter(self._client, wants_usage=self._call.wants_usage, verdicts=record.verdicts)
            if head.streamed
            else WholeWriter(self._client, self._call, record.verdicts)
        )

    async def send(self, chunk: Chunk) -> None:
        if self.response is None and chunk.is_keepalive:
            return  # until something is shown, whatever goes wrong is a clean error
        weight = self._writer.weight(chunk)
        if weight <= LARGE_BYTES:
            data = self._writer.feed(chunk)
        else:
            written = partial(self._writer.feed, chunk)
            data = await self._offload.run(weight, written, self._call.caller)
        if self._head.streamed:
            await self._stream(data, chunk)
        elif chunk.last:
            await self._respond(self._status(chunk), data, self._answer_headers(chunk))
            self._sent()

    def _status(self, chunk: Chunk) -> int:
        verdicts, flagged = self._record.verdicts(), self._head.flagged
        return writing.answer_status(self._client, verdicts, flagged=flagged, data=chunk.data)

    def _answer_headers(self, chunk: Chunk) -> dict[str, str]:
        data = None if self._head.streamed else chunk.data
        media_type = self._writer.media_type
        return headers.of_answer(self._record, self._head, self._client, media_type, data)

    async def _stream(self, data: bytes, chunk: Chunk) -> None:
        if self.response is None:
            named = self._named(self._answer_headers(Chunk(None)))
            response = web.StreamResponse(status=self._status(chunk), headers=named)
            if self._request.version < HttpVersion11:
                response.force_close()  # it knows no chunks: the stream ends with its connection
            self._note(response.status)
            self.response = response
            await self._out(response.prepare(self._request))
        if len(data) > PIECE:
            data = await self._write_pieces(self.response, data)
        if chunk.last:  # the last bytes and the end leave together
            await self._write(self.response.write_eof(data), len(data))
            self._sent()
        elif data:
            await self._write(self.response.write(data), len(data))

    async def _write_pieces(self, response: web.StreamResponse, data: bytes) -> bytes:
        """Write all but the last piece, and return that."""
        for at in range(0, len(data) - PIECE, PIECE):
            await self._patiently(response.write(memoryview(data)[at : at + PIECE]))
        return data[-(len(data) % PIECE or PIECE) :]

    async def _write(self, writing: Awaitable[object], size: int) -> None:
        """Write without a timer while the client keeps up, with one when it may block."""
        transport = self._request.transport
        backlog = transport.get_write_buffer_size() if transport is not None else 0
        if not backlog and size < SMALL:
            await self._out(writing)
        else:
            await self._patiently(writing)

    async def _patiently(self, writing: Awaitable[object]) -> None:
        """Wait for a client that reads slowly, but not for one that has stopped."""
        try:
            async with asyncio.timeout(self._stall_s):
                await self._out(writing)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ClientGone from None

    async def _out(self, writing: Awaitable[object]) -> None:
        try:
            await writing
        except (ConnectionError, RuntimeError):
            raise ClientGone from None

    async def _respond(self, status: int, body: bytes, fields: dict[str, str]) -> None:
        self.response = response = web.StreamResponse(status=status, headers=self._named(fields))
        response.content_length = len(body)
        self._note(status)
        await self._out(response.prepare(self._request))
        if self._request.method == "HEAD":
            body = b""  # what would follow the head would be read as the next answer
        if len(body) > PIECE:
            body = await self._write_pieces(response, body)
        await self._write(response.write_eof(body), len(body))

    def _named(self, fields: dict[str, str]) -> dict[str, str]:
        return {**fields, "x-request-id": self.request_id}

    def _note(self, status: int) -> None:
        self._record.status = status
        self._record.first_sent = self._record.now()

    async def refuse(self, error: ProxyError, record: Record) -> None:
        self._record = record
        if not isinstance(error, ClientGone) and not self.gone:
            try:
                await self._send_error(error)
            except ClientGone:
                record.status = ClientGone.status
        record.status = record.status or ClientGone.status

    async def _send_error(self, error: ProxyError) -> None:
        verdicts = self._record.verdicts()
        refusal = writing.refusal(self._client, error, self.request_id, verdicts)
        body = orjson.dumps(refusal.body)
        if self.response is None:
            fields = headers.of_refusal(self._record, error) | dict(refusal.headers)
            await self._respond(refusal.status, body, fields)
            return
        if not self._head.streamed:
            self._cut()
            return
        error_event = sse.event(body)
        if self._client.reads_error_events:
            await self._write(self.response.write_eof(error_event), len(error_event))
            return
        await self._write(self.response.write(error_event), len(error_event))
        self._cut()  # these clients do not look at the event: only a missing end tells them

    def _cut(self) -> None:
        transport = self._request.transport
        if transport is not None:
            transport.close()

    async def answer_bug(self) -> web.StreamResponse:
        """Answer for a bug: its number for the log, nothing of its insides."""
        if self.response is not None:
            self._cut()
            return self.response
        error = ProxyError(f"Something went wrong in the proxy. Request: {self.request_id}")
        refusal = self._client.refuse(error, self.request_id)
        fields = self._named({"content-type": "application/json", "server": "headrace"})
        fields[headers.ERROR] = error.code
        return web.Response(status=500, body=orjson.dumps(refusal.body), headers=fields)
