"""Writes responses, and their headers: the head is sent together with the first bytes.

Replaces aiohttp's response classes, which spend time on cookies and compression. Of an upstream's
headers only those that the dialect forwards are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from aiohttp import HttpVersion10, web
from aiohttp.helpers import rfc822_formatted_time

from proxy.call.record import Record
from proxy.dialects.base import ClientDialect
from proxy.dialects.families import choose_success_status, collect_data_for_response_head
from proxy.errors import ClientDisconnected, ProxyError
from proxy.limits.kinds import KINDS
from proxy.money.usage import format_usd
from proxy.types import UNBILLED_ENDPOINTS, ResponseHead
from proxy.types.events import Frame
from proxy.types.limit import READING_LENGTH, Limit, LimitDecision, LimitKind

TICKS_PER_INTERVAL = 4  # timer ticks in ``silence_s``
MAX_WRITE_BYTES = 256 * 1024  # bytes per write; asyncio copies them into its buffer
STATUS_LINES = {
    (is_old, status.value): f"HTTP/1.{0 if is_old else 1} {status.value} {status.phrase}".encode()
    for is_old in (False, True)
    for status in HTTPStatus
}
CONTROL_BYTES = bytes([*range(9), *range(10, 32), 127])  # bytes that no header may contain
LAST_CHUNK = b"0\r\n\r\n"
BODILESS_STATUSES = frozenset({204, 205, 304})  # statuses of responses without a body


class SentResponse(web.StreamResponse):
    """Placeholder for a response that was already sent."""

    def __init__(self, *, keeps_connection: bool) -> None:
        super().__init__()
        self._eof_sent = True
        self._keep_alive = keeps_connection


KEEP_OPEN, ANSWERED = SentResponse(keeps_connection=True), SentResponse(keeps_connection=False)


class ResponseWriter:
    """Writes one response.

    ``has_head`` is True once ``set_head`` was called, ``served`` once the end was written.
    ``has_written`` is set by each write. A write that waits ``stall_s`` raises ClientDisconnected.
    """

    def __init__(self, request: web.BaseRequest, stall_s: float) -> None:
        self._request = request
        self._protocol = request.protocol
        self._stall_s = stall_s
        self._head = b""
        self._bodiless = request.method == "HEAD"  # a client would read a body as the next response
        self._chunked = self._is_kept = False
        self.has_head = self.served = self.has_written = False
        self.aiohttp_response = ANSWERED  # returned to aiohttp's server

    @property
    def is_client_gone(self) -> bool:
        transport = self._protocol.transport
        return transport is None or transport.is_closing()

    def set_head(self, status: int, headers: dict[str, str], length: int | None = None) -> None:
        """Set status and headers, which are sent with the first bytes.

        Without ``length`` the body is chunked, or ends with the connection for HTTP/1.0.
        """
        request = self._request
        keep_alive = request.keep_alive
        is_old = request.version == HttpVersion10
        if status in BODILESS_STATUSES:
            self._bodiless = True
        elif length is not None:
            headers["Content-Length"] = str(length)
        elif is_old:
            keep_alive = False
        else:
            headers["Transfer-Encoding"] = "chunked"
            self._chunked = True
        headers["Date"] = rfc822_formatted_time()
        if keep_alive == is_old:
            headers["Connection"] = "keep-alive" if is_old else "close"
        fields = "\r\n".join(map(": ".join, headers.items())).encode("utf-8", "ignore")
        controls = len(fields) - len(fields.translate(None, CONTROL_BYTES))
        if controls != 2 * len(headers) - 2:  # more than the line breaks between the headers
            raise ValueError("a header contains a control character")
        if (is_old, status) in STATUS_LINES:
            line = STATUS_LINES[is_old, status]
        else:
            line = f"HTTP/1.{0 if is_old else 1} {status} ".encode()
        self._head = b"%b\r\n%b\r\n\r\n" % (line, fields)
        self._is_kept = keep_alive
        self.has_head = True

    @property
    def can_write_without_wait(self) -> bool:
        """True if the client is connected and the write buffer is not full."""
        return not (self.is_client_gone or self._protocol.writing_paused)

    @property
    def can_write_body_now(self) -> bool:
        """True if more of the body can be written without waiting."""
        protocol = self._protocol
        transport = protocol.transport
        if not self.has_head or self._bodiless or transport is None or protocol.writing_paused:
            return False
        return not transport.is_closing()

    def write_middle_of_body(self, data: bytes) -> None:
        """Write a middle part of the body to a client that is ready."""
        if self._protocol.transport is not None:
            self.has_written = True
            framed = b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data
            self._protocol.transport.write(framed)

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Write part of the body, and its end if these are the ``last`` bytes."""
        if self._bodiless:
            data = b""
        if len(data) > MAX_WRITE_BYTES:
            data = await self._write_pieces(data)
        self.write_without_wait(data, last=last)
        if self._protocol.writing_paused:
            await self._wait_for_slow_client()
        if last:
            self.served = True
            self.aiohttp_response = KEEP_OPEN if self._is_kept else ANSWERED

    async def _write_pieces(self, data: bytes) -> bytes:
        """Write all but the last piece, and return it."""
        for offset in range(0, len(data) - MAX_WRITE_BYTES, MAX_WRITE_BYTES):
            self.write_without_wait(memoryview(data)[offset : offset + MAX_WRITE_BYTES])
            if self._protocol.writing_paused:
                await self._wait_for_slow_client()
        return data[-(len(data) % MAX_WRITE_BYTES or MAX_WRITE_BYTES) :]

    def write_without_wait(self, data: bytes | memoryview, *, last: bool = False) -> None:
        """Write part of the body without waiting, and the head before the first part."""
        transport = self._protocol.transport
        if transport is None or transport.is_closing():
            raise ClientDisconnected
        self.has_written = True
        head, self._head = self._head, b""
        if not self._chunked:
            transport.write(head + data)
        elif data:
            end = LAST_CHUNK if last else b""
            transport.write(b"".join((head, b"%x\r\n" % len(data), data, b"\r\n", end)))
        else:
            transport.write(head + LAST_CHUNK if last else head)

    async def _wait_for_slow_client(self) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self._request.writer.drain()
        except TimeoutError:
            self.abort()
            raise ClientDisconnected from None
        except (ConnectionError, RuntimeError):
            raise ClientDisconnected from None

    def abort(self) -> None:
        if self._protocol.transport is not None:
            self._protocol.transport.abort()

    def close_without_end(self) -> None:
        """Close the connection after the written bytes. Some clients see no other error."""
        if self._protocol.transport is not None:
            self._protocol.transport.close()


class KeepaliveTimer:
    """Calls ``on_silence`` after ``silence_s`` to 1.25 ``silence_s`` without a write.

    After a ping of the upstream, the interval is half of that until the head is sent, and a quarter
    afterwards. Waiting for the head lets a stream that fails early have an error status.
    """

    __slots__ = ("_handle", "_loop", "_on_silence", "_out", "_quiet", "_record", "_step_s")

    def __init__(
        self,
        out: ResponseWriter,
        record: Record,
        silence_s: float,
        on_silence: Callable[[], None],
    ) -> None:
        self._out = out
        self._record = record
        self._step_s = silence_s / TICKS_PER_INTERVAL
        self._on_silence = on_silence
        self._quiet = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(self._step_s, self._tick)

    def _tick(self) -> None:
        out, record = self._out, self._record
        self._quiet = 0 if out.has_written else self._quiet + 1
        silent_ticks = (
            (1 if out.has_head else TICKS_PER_INTERVAL // 2)
            if record.has_ping
            else TICKS_PER_INTERVAL
        )
        if self._quiet >= silent_ticks:
            self._quiet = 0
            self._on_silence()
        out.has_written = record.has_ping = False
        self._handle = self._loop.call_later(self._step_s, self._tick)

    def close(self) -> None:
        self._handle.cancel()


MAX_WARNING_CHARS = 1024
EVENTS = "text/event-stream; charset=utf-8"
ERROR_HEADER = "x-headrace-error"
FLAGGED_WARNING = "flagged by a guard of the upstream"
RATE_KINDS = tuple(kind for kind in KINDS.values() if kind.headers is not None)


def make_common_headers(record: Record, *, flagged: bool = False) -> dict[str, str]:
    """Return the headers of every response, errors included."""
    headers = {
        "content-type": "application/json",
        "cache-control": "no-store",
        "server": "headrace",
        "x-trace-id": record.ids.trace_id,
        "x-headrace-cache": record.cache,
    }
    head, plan = record.head, record.plan
    if head is not None and head.echo:
        headers.update(head.echo)
    if record.revision is not None:
        headers["x-headrace-policy"] = record.revision
    if plan is not None and plan.deployment is not None:
        headers["x-headrace-deployment"] = plan.deployment
    if record.limit_decision is not None:
        headers.update(make_limit_headers(record.limit_decision))
    if warnings := _collect_warnings(record, flagged=flagged):
        headers["x-headrace-warning"] = "; ".join(warnings)[:MAX_WARNING_CHARS]
    return headers


def _collect_warnings(record: Record, *, flagged: bool) -> list[str]:
    warnings: list[str] = list(record.warnings)
    for warned in (record.call, record.head, record.plan):
        if warned is not None and warned.warnings:
            warnings += warned.warnings
    if flagged:
        warnings.append(FLAGGED_WARNING)
    return warnings


def make_error_headers(record: Record, error: ProxyError) -> dict[str, str]:
    """Return the headers of an error response, including our error code."""
    return {**make_common_headers(record), ERROR_HEADER: error.code}


def make_limit_headers(admission: LimitDecision) -> dict[str, str]:
    """Return the rate limit headers: for each kind, of the limit with the smallest share left."""
    tightest: dict[LimitKind, tuple[float, Limit, int, int]] = {}
    for index, claim in enumerate(admission.claims):
        limit = claim.limit
        kind = limit.kind
        if kind.headers is not None and not limit.shadow:
            debt = admission.readings[index * READING_LENGTH]
            available = limit.capacity + -debt // limit.debt_per_unit
            share = available / limit.capacity if available > 0 else 0.0
            if kind not in tightest or share < tightest[kind][0]:
                tightest[kind] = share, limit, available if available > 0 else 0, debt
    headers: dict[str, str] = {}
    for kind in RATE_KINDS:
        if kind in tightest and kind.headers is not None:
            size, remaining, reset = kind.headers
            _, limit, available, debt = tightest[kind]
            headers[size] = str(limit.capacity)
            headers[remaining] = str(available)
            headers[reset] = f"{-(-debt // limit.drain_per_ms) / 1000:g}s"
    return headers


def make_status_and_headers(
    record: Record, head: ResponseHead, client: ClientDialect, frame: Frame
) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of a response that begins with a frame.

    Streams lack the cost, which is known only at the end.
    """
    data, verdicts = collect_data_for_response_head(frame), record.list_guard_results()
    status = choose_success_status(client, verdicts, is_flagged=head.is_flagged, data=data)
    headers = make_common_headers(record, flagged=head.is_flagged)
    if head.passthrough is not None:
        headers["content-type"] = head.passthrough.media_type
    else:
        headers["content-type"] = EVENTS if head.streamed else "application/json"
    if head.headers:
        headers.update(head.headers)
    if client.make_response_headers is not None:
        shown = None if head.streamed else data
        headers.update(client.make_response_headers(shown, len(record.attempts), record.cache))
    request_head = record.head
    is_free = request_head is not None and request_head.endpoint in UNBILLED_ENDPOINTS
    is_priced = record.attempts or record.saved or is_free
    if head.streamed:
        headers["x-accel-buffering"] = "no"
    elif is_priced and (cost := record.billing.cost) is not None:
        headers["x-headrace-cost-usd"] = format_usd(cost)
    return head.passthrough.status if head.passthrough else status, headers
