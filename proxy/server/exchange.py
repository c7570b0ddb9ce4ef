"""One HTTP request and its response, over aiohttp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from proxy import dialects
from proxy.call.record import Record
from proxy.dialects import families
from proxy.dialects.families import is_keepalive, make_response_writer
from proxy.dialects.family import FamilyWriter
from proxy.dialects.request_headers import build_missing_key_hint
from proxy.dialects.responses import stored
from proxy.dialects.responses.schema import CONVERSATION, PREVIOUS_RESPONSE_ID
from proxy.dialects.responses.state_refs import resolve_state_refs
from proxy.errors import BadRequest, ClientDisconnected, ProxyError, Unauthorized
from proxy.errors.wire import LoopDetected, MethodNotAllowed
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.server.request import BodyShare, IncomingRequest, RequestUpload
from proxy.server.response import (
    ERROR_HEADER,
    KeepaliveTimer,
    ResponseWriter,
    make_error_headers,
    make_status_and_headers,
)
from proxy.types import Call, RequestHead, ResponseHead
from proxy.types.events import Frame
from proxy.types.passthrough import PassthroughRequest

if TYPE_CHECKING:
    from proxy.server import ListenerState

FLUSH_BYTES = 32 * 1024  # bytes after which collected events are written
MAX_FRAMES_PER_WRITE = 8  # frames that are written at once
MAX_HOPS = 8
KEEPALIVE_FRAME = Frame(())


class HttpExchange:
    """Implements ``ports.Exchange``."""

    _head: ResponseHead
    _writer: FamilyWriter
    _record: Record
    _call: Call

    def __init__(self, request: web.BaseRequest, listener: ListenerState, share: BodyShare) -> None:
        self._request = request
        self._listener = listener
        self._share = share
        self._incoming = incoming = IncomingRequest(request, listener.bounds, share)
        self._parsing = listener.bounds.parsing
        self._out = ResponseWriter(request, listener.bounds.stall_s)
        self._silence: KeepaliveTimer | None = None
        self._is_sending = False
        self._dialect_match = match = dialects.find_dialect_and_joined_names(
            incoming.path, incoming.headers
        )
        self._client = match[0].client
        self._call_id = self.request_id = call_id = listener.new_id()
        self._cors: dict[str, str] = {}
        if "origin" in incoming.headers:
            cors, origin = listener.public.cross_origin, incoming.headers["origin"]
            self._cors = cors.make_response_headers(origin)
        if "x-request-id" in incoming.headers:
            self.request_id = incoming.read_request_id() or call_id

    @property
    def is_disconnected(self) -> bool:
        return self._out.is_client_gone

    @property
    def is_response_complete(self) -> bool:
        return self._out.served

    @property
    def aiohttp_response(self) -> web.StreamResponse:
        """Result of aiohttp's handler after the call has ended: the response is already sent."""
        if self._out.has_head:
            return self._out.aiohttp_response
        return web.Response(status=ClientDisconnected.status)

    def read_head(self) -> RequestHead:
        incoming = self._incoming
        incoming.check_version_and_headers()
        context = dialects.RequestContext(
            self.request_id,
            self._call_id,
            datetime.now(UTC),
            incoming.query,
            self._dialect_match,
            self._listener.get_passthrough_paths,
        )
        try:
            head = dialects.parse_request_head(
                self._request.method, incoming.path, incoming.headers, context
            )
        except MethodNotAllowed:
            incoming.raise_if_websocket_upgrade()
            raise
        if "upgrade" in incoming.headers:
            incoming.raise_if_websocket_upgrade()
        if self._listener.via in head.via or len(head.via) > MAX_HOPS:
            raise LoopDetected
        return head

    async def read_call(self, head: RequestHead, caller: str) -> Call:
        self._share.caller = caller
        if head.passthrough is not None:
            self._call = await self._read_passthrough(head, head.passthrough, caller)
        elif head.method != "POST" or head.endpoint in dialects.ENDPOINTS_WITHOUT_BODY:
            self._call = Call(head, {}, scheduling_key=caller)
        else:
            share = self._share
            raw = await self._incoming.read_body()
            size, reads = len(raw), dialects.read_call
            if head.endpoint == "conversations":
                reads = stored.read_conversation_call
            if size <= LARGE_BYTES:
                body = self._parsing.parse_small(raw, share.add_parsed)
                self._call = reads(head, body, size, caller)
            else:
                make = partial(reads, head, size=size, caller=caller)
                self._call = await self._parsing.parse(raw, make, caller, share.add_parsed)
        if head.endpoint in dialects.STATEFUL_ENDPOINTS:
            self._call = await self._resolve_state_refs(self._call)
        return self._call

    async def _read_passthrough(
        self, head: RequestHead, request: PassthroughRequest, caller: str
    ) -> Call:
        """Return the call. Raises ``RequestError``.

        JSON is parsed, other bodies are streamed. Text that looks like JSON must be valid JSON, or
        guards and rules would miss its fields.
        """
        from proxy.dialects.passthrough import request as passthrough  # noqa: PLC0415  # few calls

        incoming, raw = self._incoming, b""
        incoming.check_encoding()
        length = incoming.read_length_unless_chunked()
        if length != 0 and head.method == "GET":
            raise BadRequest("A GET request must not have a body.")
        media_type = incoming.headers.get("content-type", "")
        if length != 0 and not passthrough.can_be_json(media_type):
            media_type = passthrough.check_media_type_syntax(media_type)
            head = replace(head, passthrough=replace(request, media_type=media_type))
            return passthrough.make_upload_call(head, RequestUpload(incoming, length), caller)
        if length != 0:
            raw = await incoming.read_body()
        make = partial(passthrough.read_passthrough_call, head, size=len(raw), caller=caller)
        if not raw:
            return make({})
        return await self._parsing.parse(raw, make, caller, self._share.add_parsed)

    async def _resolve_state_refs(self, call: Call) -> Call:
        """Return the call with the stored state that it uses. Raises ``RequestError``."""
        if call.head.endpoint == "conversations":
            resolve = stored.resolve_conversation_call
            return await self._parsing.offload.run(
                call.size, partial(resolve, call, self._listener.ids), call.scheduling_key
            )
        body = call.body
        plain = body.get(PREVIOUS_RESPONSE_ID) is None and body.get(CONVERSATION) is None
        plain = plain and not call.background
        plain = plain and "tools" not in body and type(body.get("input")) is not list
        if plain and call.head.endpoint == "responses":
            return call
        resolve = partial(resolve_state_refs, call, self._listener.ids)  # may decrypt many ids
        return await self._parsing.offload.run(call.size, resolve, call.scheduling_key)

    def stop_keepalive(self) -> None:
        if self._silence is not None:
            self._silence.close()
            self._silence = None

    def start_keepalive(self, record: Record) -> None:
        self._record = record
        silence_s = self._listener.bounds.keepalive_s
        if self._call.stream and silence_s > 0:
            self._silence = KeepaliveTimer(self._out, record, silence_s, self._send_keepalive)

    def _send_keepalive(self) -> None:
        """Send a keepalive event, and the response head before the first one."""
        out = self._out
        if self._is_sending or out.served or not out.can_write_without_wait:
            return
        if not out.has_head:
            self._prepare_writer(ResponseHead(streamed=True))
            self._set_head_for_frame(KEEPALIVE_FRAME, None)
        out.write_without_wait(self._writer.feed(KEEPALIVE_FRAME))

    def _prepare_writer(self, head: ResponseHead) -> None:
        self._head, self._collected_bytes = head, 0
        self._writer = make_response_writer(self._call, head, self._record.list_guard_results)

    async def set_response_head(self, head: ResponseHead, record: Record) -> None:
        self._record = record
        if not self._out.has_head:  # a keepalive may have begun the stream and set the head
            self._prepare_writer(head)

    async def send(self, frames: Sequence[Frame]) -> None:
        out, is_streamed, pending = self._out, self._head.streamed, b""
        begins, record = False, self._record
        self._is_sending = True  # no keepalive may come between these writes
        for frame in frames:
            size = frame.size
            if not is_streamed:  # the writer collects the frames and writes them with the last one
                self._collected_bytes += size or len(frame.raw or b"")
                size = self._collected_bytes if frame.last else 0
            if size <= LARGE_BYTES:
                data = self._writer.feed(frame)
            else:  # large frames are encoded in a thread
                write = partial(self._writer.feed, frame)
                data = await self._parsing.offload.run(size, write, self._call.scheduling_key)
            if not out.has_head and (is_streamed or frame.last):
                self._set_head_for_frame(frame, None if is_streamed else len(data))
                begins = True
            if record.first_sent is None and out.has_head and not is_keepalive(frame):
                record.first_sent = record.now()
            pending = pending + data if pending else data
            if frame.last or len(pending) >= FLUSH_BYTES:
                # Sends the last bytes together with the end.
                await out.write(pending, last=frame.last)
                begins, pending = False, b""
        if begins or pending:
            await out.write(pending)
        self._is_sending = False

    def try_send(self, frames: Sequence[Frame]) -> bool:
        out, writer = self._out, self._writer
        if not out.can_write_body_now or len(frames) > MAX_FRAMES_PER_WRITE:
            return False
        for frame in frames:
            if frame.last or frame.size > LARGE_BYTES:
                return False
        data = writer.feed(frames[0])
        for frame in frames[1:]:
            data += writer.feed(frame)
        if data:
            record = self._record
            if record.first_sent is None and not all(map(is_keepalive, frames)):
                record.first_sent = record.now()  # a keepalive began the stream
            out.write_middle_of_body(data)
        return True

    def _set_head_for_frame(self, frame: Frame, length: int | None) -> None:
        """Set the HTTP head of a response that begins with a frame. Streams have no length."""
        head = self._head
        if head.passthrough is not None and head.streamed:
            length = head.passthrough.length
        status, fields = make_status_and_headers(self._record, head, self._client, frame)
        self._set_http_head(status, fields, length)

    def _set_http_head(self, status: int, fields: dict[str, str], length: int | None) -> None:
        fields["x-request-id"] = self.request_id
        if self._cors:
            fields |= self._cors
        self._out.set_head(status, fields, length)
        self._record.status, self._record.response_headers = status, fields

    async def send_error(self, error: ProxyError, record: Record) -> None:
        self._record = record
        self._is_sending = True
        if record.first_sent is None:
            record.status = None  # the response so far is a head with keepalives only
        if isinstance(error, Unauthorized) and error.key_problem == "missing":
            incoming = self._incoming
            client = dialects.find_dialect(incoming.path, incoming.headers).client
            hint = build_missing_key_hint(client, incoming.headers, incoming.query)
            error.set_message(f"{error.message} {hint}")
        if not isinstance(error, ClientDisconnected) and not self.is_disconnected:
            try:
                await self._send_error(error)
            except ClientDisconnected:
                record.status = ClientDisconnected.status
        record.status = record.status or ClientDisconnected.status

    async def _send_error(self, error: ProxyError) -> None:
        out, record = self._out, self._record
        refusal = families.make_client_error_response(
            self._client,
            error,
            self.request_id,
            record.list_guard_results(),
            ends_stream=out.has_head,
        )
        body = orjson.dumps(refusal.body)
        if not out.has_head:
            fields = make_error_headers(record, error) | dict(refusal.headers)
            self._set_http_head(refusal.status, fields, len(body))
            await out.write(body, last=True)
            return
        record.status = record.status or refusal.status
        if not self._head.streamed or self._head.passthrough is not None:
            out.close_without_end()
        else:
            reads_errors = self._call.head.endpoint in self._client.error_event_endpoints
            await out.write(self._writer.encode_error(body), last=reads_errors)
            if not reads_errors:
                out.close_without_end()  # these clients notice only a missing end

    async def send_internal_error(self) -> web.StreamResponse:
        """Send a 500 with the request id, without details of the error."""
        if self._out.has_head:
            self._out.close_without_end()
            return self._out.aiohttp_response
        error = ProxyError(f"The proxy failed. Report this request id: {self.request_id}")
        refusal = self._client.make_error_response(error, self.request_id)
        fields = {"content-type": "application/json", "server": "headrace"}
        fields |= {"x-request-id": self.request_id, ERROR_HEADER: error.code}
        fields |= dict(refusal.headers) | self._cors
        return web.Response(status=500, body=orjson.dumps(refusal.body), headers=fields)
