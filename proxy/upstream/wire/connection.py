"""One connection to an upstream: writes a request at once, and returns the response in pieces.

Buffers up to ``MAX_BUFFER_BYTES`` of a response. Beyond that the upstream has to wait.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, cast

from proxy.errors import UpstreamError, UpstreamInvalid, UpstreamTimeout, UpstreamUnavailable
from proxy.errors.causes import get_cause
from proxy.upstream.reply import OnData
from proxy.upstream.wire.http1 import BROKEN, CLOSED, Http1Head, ResponseParser, make_protocol_error

if TYPE_CHECKING:
    from proxy.upstream.wire.uploads import DuplicateSocket

MAX_BUFFER_BYTES = 64 * 1024
WRITE_BYTES = 256 * 1024
SLACK_S = 0.002  # timers may fire this much early
STALE_S = 0.05  # a connection that ends later than this after a request may have carried it
Phase = Literal["first_byte", "idle", "total"]
_NOTHING = memoryview(b"")


class Connection(asyncio.Protocol):
    """Carries one request after another: ``send``, ``read_head``, ``read`` to the end, ``release``.

    Calls ``on_close`` once when the connection has ended.
    """

    _transport: asyncio.Transport

    def __init__(self, on_close: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_close = on_close
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = self._deadline = self._total_at = 0.0
        self._phase: Phase = "total"
        self._response: ResponseParser | None = None
        self._buffer: list[bytes] = []
        self._buffer_bytes = 0
        self._fault: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._can_write = asyncio.Event()
        self._unsent = _NOTHING
        self._on_sent: Callable[[], None] | None = None
        self._sent_at = 0.0
        self._duplicate: DuplicateSocket | None = None
        self._is_reading = self._is_writable = True
        self._was_read = self._was_cut_short = self._reader_must_wake = False
        self._on_data: OnData | None = None
        self._idle_s = self._data_at = 0.0
        self.has_response = False
        self.request_count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def send(self, head: bytes, body: bytes, deadline: float, on_sent: Callable[[], None]) -> None:
        """Start a request. ``deadline`` of the loop's clock includes the response.

        Calls ``on_sent`` once it is written. Raises ``UpstreamUnavailable`` on a closed connection.
        """
        self._response = ResponseParser()
        self._total_at = deadline
        self.has_response = self._was_read = False
        self.request_count += 1
        self._sent_at = self._loop.time()
        if self._transport.is_closing():
            raise UpstreamUnavailable(CLOSED).set_cause("closed")
        if len(body) <= WRITE_BYTES:
            self._transport.write(head + body)
            on_sent()
        else:
            self._duplicate_socket()
            self._transport.write(head)
            self._unsent, self._on_sent = memoryview(body), on_sent
            self._write_unsent()

    def _write_unsent(self) -> None:
        """Write a large body in pieces, so that copies and encryption do not block the loop.

        Reads what has arrived before each piece: a failed write would discard an early refusal.
        """
        while self._unsent and self._is_writable and not self._transport.is_closing():
            if self._is_reading and self._poll.poll(0):
                self._loop.call_soon(self._write_unsent)
                return
            piece, unsent = self._unsent[:WRITE_BYTES], self._unsent[WRITE_BYTES:]
            self._unsent = unsent or _NOTHING  # an empty slice would keep the body in memory
            self._transport.write(piece)
        if not self._unsent and self._on_sent is not None:
            self._on_sent()
            self._on_sent = None

    async def write(self, piece: bytes) -> bool:
        """Write a piece of an upload. Return False once the upstream has responded."""
        self._duplicate_socket()
        if self._is_reading and self._poll.poll(0):  # may be an early refusal: read it first
            await asyncio.sleep(0)
        while not self._is_writable and not self._should_stop_upload:
            await self._can_write.wait()
        if self._should_stop_upload:
            self._was_cut_short = True
            return False
        self._transport.write(piece)
        return True

    @property
    def _should_stop_upload(self) -> bool:
        has_head = self._response is not None and self._response.head is not None
        return has_head or self._fault is not None or self._transport.is_closing()

    def _duplicate_socket(self) -> None:
        from proxy.upstream.wire.uploads import DuplicateSocket  # noqa: PLC0415  # large bodies

        self._duplicate = self._duplicate or DuplicateSocket(self._transport)

    def _close_duplicate(self) -> None:
        if self._duplicate is not None:
            self._duplicate.close()
            self._duplicate = None

    @property
    def was_stale(self) -> bool:
        """True if a reused connection closed too soon after a request to have delivered it."""
        is_soon = self._loop.time() - self._sent_at <= STALE_S
        return self.request_count > 1 and not self.has_response and is_soon

    async def read_head(self, timeout_s: float) -> Http1Head:
        """Return the head of the response. Raises ``UpstreamError``."""
        response = self._response
        if response is None:
            raise RuntimeError("no request was sent")
        if response.head is None and self._fault is None:
            try:
                await self._wait(timeout_s, "first_byte")
            finally:
                self._waiter = None
        if response.head is None:
            raise self._fault or make_protocol_error()
        return response.head

    async def read(
        self, first_byte_s: float, idle_s: float, on_data: OnData | None = None
    ) -> bytes | None:
        """Return the next bytes of the body, or ``b""`` at its end. See ``Reply.read``.

        The first bytes time out after ``first_byte_s``, later ones after ``idle_s``. Bytes received
        before a fault are returned before the fault is raised.
        """
        response = self._response
        if response is None or response.body is None:
            raise RuntimeError("the response has no head yet")
        if self._buffer and self._loop.time() >= self._total_at:
            raise UpstreamTimeout("total")
        while not self._buffer:
            if response.body.is_complete:
                return b""
            if self._fault is not None:
                raise self._fault
            try:
                self._on_data, self._idle_s, self._reader_must_wake = on_data, idle_s, False
                phase: Phase = "idle" if self._was_read else "first_byte"
                await self._wait(idle_s if self._was_read else first_byte_s, phase)
            finally:
                self._waiter = self._on_data = None
            if self._reader_must_wake:
                return None
        self._was_read = True
        pieces, self._buffer, self._buffer_bytes = self._buffer, [], 0
        if not self._is_reading:
            self._resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    @property
    def is_response_complete(self) -> bool:
        return self._response is not None and self._response.is_complete

    def release(self, idle_s: float) -> bool:
        """Make the connection idle for up to ``idle_s``. Return False if it cannot be reused."""
        response = self._response
        if (
            response is None
            or not response.can_reuse_connection
            or self._fault is not None
            or self._unsent
            or self._was_cut_short
            or self._waiter is not None  # a reader would get the next response
            or self._transport.is_closing()
            or self._transport.get_write_buffer_size()
        ):
            return False
        self._buffer, self._buffer_bytes = [], 0
        if not self._is_reading:
            self._resume_reading()
        if self._duplicate is not None:
            self._close_duplicate()
        self._response = None
        self._set_timer(self._loop.time() + idle_s)
        return True

    def watch_for_end(self, timeout_s: float, on_end: Callable[[], None]) -> None:
        """Call ``on_end`` once the body ends, the connection fails, or ``timeout_s`` passes."""

        def wake(_: asyncio.Future[None]) -> None:
            self._waiter = None
            on_end()

        self._phase = "idle"
        self._waiter = self._loop.create_future()
        self._waiter.add_done_callback(wake)
        if self._fault is None:
            self._set_timer(self._loop.time() + timeout_s)
        else:
            self._wake_waiter()

    def abort(self) -> None:
        self._unsent, self._on_sent = _NOTHING, None
        self._transport.abort()

    @property
    def peer_ip(self) -> str:
        """IP address of the upstream, without the port."""
        return str(self._transport.get_extra_info("peername")[0])

    @property
    def is_ready(self) -> bool:
        """True if an idle connection is open and has no unread bytes.

        Polls the socket: unread bytes would become the response to another request.
        """
        return not self._transport.is_closing() and not self._poll.poll(0)

    # Called by the event loop.

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:  # unsolicited: must not become the start of a later response
            self.abort()
            return
        self.has_response = True
        body = response.body
        try:
            if body is None:
                response.feed(data, self._buffer)
                body = response.body
            else:
                body.feed(data, self._buffer)
        except UpstreamInvalid as fault:
            self._fail(fault)
            return
        if body is None:
            return
        if self._unsent or not self._is_writable:  # drop the rest of the request
            self._unsent, self._on_sent, self._was_cut_short = _NOTHING, None, True
            self._can_write.set()
        if self._buffer:
            on_data = self._on_data
            if on_data is not None and not body.is_complete and self._try_push_to_reader(on_data):
                return
            self._count_and_pause_if_full(len(data))  # includes the framing
        self._wake_waiter()

    def _count_and_pause_if_full(self, size: int) -> None:
        self._buffer_bytes += size
        is_full = self._buffer_bytes > MAX_BUFFER_BYTES and not self.is_response_complete
        if is_full and self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def _try_push_to_reader(self, on_data: OnData) -> bool:
        """Pass the buffer to ``on_data`` if the reader waits.

        Return False if the reader does not wait. Waking the reader's task for each chunk would cost
        more than processing most chunks.
        """
        waiter = self._waiter
        if waiter is None or waiter.done():
            return False
        pieces, self._buffer = self._buffer, []
        self._was_read = True
        try:
            if not on_data(pieces[0] if len(pieces) == 1 else b"".join(pieces)):
                self._reader_must_wake = True
                waiter.set_result(None)
        except Exception as bug:  # noqa: BLE001  # raised in the task of the call
            waiter.set_exception(bug)
        else:
            self._data_at = now = self._loop.time()
            is_sooner = self._phase == "total" and now + self._idle_s < self._total_at
            if is_sooner or self._phase == "first_byte":
                self._set_timeout(self._idle_s, "idle")
        return True

    def eof_received(self) -> None:
        self._handle_end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        while (
            exc is not None
            and self._duplicate
            and not self.is_response_complete
            and not self._fault
        ):
            data = self._duplicate.read(MAX_BUFFER_BYTES)  # received before a write failed
            if not data or self._buffer_bytes > MAX_BUFFER_BYTES:
                break
            self.data_received(data)
        self._close_duplicate()
        self._handle_end(exc)
        if self._timer is not None:
            self._timer.cancel()
        self._on_close(self)

    def _handle_end(self, error: Exception | None) -> None:
        """Handle the end of the connection: complete or fail the response."""
        response = self._response
        if response is None or response.is_complete or self._fault is not None:
            return
        if error is None and response.feed_eof():
            self._wake_waiter()
            return
        fault = UpstreamUnavailable(CLOSED) if response.head is None else UpstreamInvalid(BROKEN)
        self._fail(fault.set_cause(get_cause(error), str(error or "")))

    def pause_writing(self) -> None:
        self._is_writable = False
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._can_write.set()
        self._write_unsent()

    def _fail(self, fault: UpstreamError) -> None:
        self._fault = fault
        self._can_write.set()
        self.abort()
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _wait(self, timeout_s: float, phase: Phase) -> asyncio.Future[None]:
        """Return a future that is done on bytes, end or fault. The caller resets ``_waiter``."""
        self._set_timeout(timeout_s, phase)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def _set_timeout(self, timeout_s: float, phase: Phase) -> None:
        deadline = self._loop.time() + timeout_s
        if deadline >= self._total_at:
            deadline, phase = self._total_at, "total"
        self._phase = phase
        self._set_timer(deadline)

    def _set_timer(self, deadline: float) -> None:
        """Replace the deadline. If it is later, the running timer is set again when it fires."""
        self._deadline = deadline
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._loop.time() + SLACK_S < self._deadline:
            self._set_timer(self._deadline)
        else:
            self._on_timeout()

    def _on_timeout(self) -> None:
        if self._response is None:
            self.abort()
        elif self._waiter is not None:  # otherwise nobody waits, and the next reader sets a timeout
            remaining_s = self._data_at + self._idle_s - self._loop.time()
            if self._phase == "idle" and self._on_data is not None and remaining_s > SLACK_S:
                self._set_timeout(remaining_s, "idle")
            else:
                self._fail(UpstreamTimeout(self._phase))
