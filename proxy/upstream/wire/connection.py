"""One connection to an upstream: a request goes out in one write, an answer is taken in pieces.

It holds no more of an answer than a bound; beyond it the upstream has to wait.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, cast

from proxy.errors import UpstreamError, UpstreamInvalid, UpstreamTimeout, UpstreamUnavailable
from proxy.errors.causes import cause_of
from proxy.upstream.reply import Take
from proxy.upstream.wire.alarm import SLACK_S, Alarm
from proxy.upstream.wire.head import BROKEN, CLOSED, Http1Head, protocol_error
from proxy.upstream.wire.response import Response

if TYPE_CHECKING:
    from proxy.upstream.wire.spare import SpareSocket

MAX_HELD_BYTES = 64 * 1024
WRITE_BYTES = 256 * 1024
STALE_S = 0.05  # what ends so soon after a request was closed before: later, it may be at work
Phase = Literal["first_byte", "idle", "total"]
_NOTHING = memoryview(b"")


class Connection(asyncio.Protocol):
    """Carries one request after the other: ``send``, ``head``, ``read`` to the end, ``release``.

    ``on_close`` is called once when it has ended. ``abort`` ends it at once, whatever is under way.
    """

    __slots__ = (
        *("_alarm", "_begun", "_cut_short", "_fault", "_held", "_held_bytes", "_idle"),
        *("_is_taken", "_loop", "_on_close", "_on_sent", "_phase", "_poll", "_reading"),
        *("_response", "_sent_at", "_spare", "_take", "_taken_at", "_to_write", "_total_at"),
        *("_room", "_transport", "_waiter", "_writing", "answered", "served"),
    )

    _transport: asyncio.Transport

    def __init__(self, on_close: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_close = on_close
        self._alarm = Alarm(self._loop, self._too_late)
        self._total_at = 0.0
        self._phase: Phase = "total"
        self._response: Response | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._fault: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._room = asyncio.Event()  # in which to write more
        self._to_write = _NOTHING
        self._on_sent: Callable[[], None] | None = None
        self._sent_at = 0.0
        self._spare: SpareSocket | None = None
        self._reading = self._writing = True
        self._begun = self._cut_short = self._is_taken = False
        self._take: Take | None = None
        self._idle = self._taken_at = 0.0
        self.answered = False
        self.served = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def send(self, head: bytes, body: bytes, until: float, on_sent: Callable[[], None]) -> None:
        """Begin a request, which may take until that moment of the loop's clock, answer too. Call
        ``on_sent`` once all of it is written. Raise ``UpstreamUnavailable`` when the connection has
        ended already."""
        self._response = Response()
        self._total_at = until
        self.answered = self._begun = False
        self.served += 1
        self._sent_at = self._loop.time()
        if self._transport.is_closing():
            raise UpstreamUnavailable(CLOSED).caused("closed")
        if len(body) <= WRITE_BYTES:
            self._transport.write(head + body)
            on_sent()
        else:
            self._keep_spare()
            self._transport.write(head)
            self._to_write, self._on_sent = memoryview(body), on_sent
            self._write_on()

    def _write_on(self) -> None:
        """Write a large body piece by piece, so that no copy or cipher holds up the loop.

        What has come is read before the next piece: it may be a refusal of a server that takes no
        more, and a write that fails ends a connection unread.
        """
        while self._to_write and self._writing and not self._transport.is_closing():
            if self._reading and self._poll.poll(0):
                self._loop.call_soon(self._write_on)
                return
            piece, rest = self._to_write[:WRITE_BYTES], self._to_write[WRITE_BYTES:]
            self._to_write = rest or _NOTHING  # an empty rest would keep the body in memory
            self._transport.write(piece)
        if not self._to_write and self._on_sent is not None:
            self._on_sent()
            self._on_sent = None

    async def write(self, piece: bytes) -> bool:
        """Write more of a request, once there is room. False where it has ended, or is answered."""
        self._keep_spare()
        if self._reading and self._poll.poll(0):  # maybe a refusal, which is to be read first
            await asyncio.sleep(0)
        while not self._writing and not self.takes_no_more:
            await self._room.wait()
        if self.takes_no_more:
            self._cut_short = True
            return False
        self._transport.write(piece)
        return True

    @property
    def takes_no_more(self) -> bool:
        is_answered = self._response is not None and self._response.head is not None
        return is_answered or self._fault is not None or self._transport.is_closing()

    def _stop_writing(self) -> None:
        """Write no more of a request that is answered before it is whole. What would follow on the
        connection is no begin of another."""
        self._to_write, self._on_sent = _NOTHING, None
        self._cut_short = True
        self._room.set()

    def _keep_spare(self) -> None:
        from proxy.upstream.wire.spare import SpareSocket  # noqa: PLC0415  # for large bodies

        self._spare = self._spare or SpareSocket(self._transport)

    def _close_spare(self) -> None:
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    @property
    def was_stale(self) -> bool:
        """True if a connection at rest has ended so soon after its request, and without a sign of
        life, that nobody can have taken it."""
        soon = self._loop.time() - self._sent_at <= STALE_S
        return self.served > 1 and not self.answered and soon

    async def head(self, patience: float) -> Http1Head:
        """Return the head of the answer, waiting ``patience`` seconds. Raises ``UpstreamError``."""
        response = self._response
        if response is None:
            raise RuntimeError("there is no answer without a request")
        if response.head is None and self._fault is None:
            try:
                await self._arrival(patience, "first_byte")
            finally:
                self._waiter = None
        if response.head is None:
            raise self._fault or protocol_error()
        return response.head

    async def read(self, first_byte: float, idle: float, take: Take | None = None) -> bytes:
        """Return what has come of the body, or wait for it; nothing at its end.

        Its first bytes are waited for as long as the head was, and silence after them for ``idle``
        seconds. What came before a fault is returned before the fault is raised. What comes while
        it is waited for may go to ``take`` instead: see ``Reply.read``.
        """
        response = self._response
        if response is None or response.body is None:
            raise RuntimeError("there is no body before its head")
        if self._held and self._loop.time() >= self._total_at:
            raise UpstreamTimeout("total")
        while not self._held:
            if response.body.ended:
                return b""
            if self._fault is not None:
                raise self._fault
            try:
                self._take, self._idle, self._is_taken = take, idle, False
                patience = idle if self._begun else first_byte
                await self._arrival(patience, "idle" if self._begun else "first_byte")
            finally:
                self._waiter = self._take = None
            if self._is_taken:
                return b""
        self._begun = True
        held, self._held, self._held_bytes = self._held, [], 0
        if not self._reading:
            self._read_on()
        return held[0] if len(held) == 1 else b"".join(held)

    def _read_on(self) -> None:
        """Read again, now that nothing is held."""
        if not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    @property
    def ended(self) -> bool:
        return self._response is not None and self._response.ended

    def release(self, seconds: float) -> bool:
        """Make ready for another request, if one can follow; without one it ends after so long."""
        response = self._response
        if (
            response is None
            or not response.keeps
            or self._fault is not None
            or self._to_write
            or self._cut_short
            or self._waiter is not None  # somebody still reads, and would read the next answer
            or self._transport.is_closing()
            or self._transport.get_write_buffer_size()
        ):
            return False
        self._held, self._held_bytes = [], 0
        if not self._reading:
            self._read_on()
        if self._spare is not None:
            self._close_spare()
        self._response = None
        self._alarm.expect(self._loop.time() + seconds)
        return True

    def linger(self, seconds: float, over: Callable[[], None]) -> None:
        """Call ``over`` once, in a later round of the loop: when the end that follows a finished
        answer is there, or will not come, as something else has, or so much time is over."""

        def woken(_: asyncio.Future[None]) -> None:
            self._waiter = None
            over()

        self._phase = "idle"
        self._alarm.expect(self._loop.time() + seconds)
        self._waiter = self._loop.create_future()
        self._waiter.add_done_callback(woken)
        if self._fault is not None:
            self._wake()

    def abort(self) -> None:
        """End the connection now, without a goodbye."""
        self._to_write, self._on_sent = _NOTHING, None
        self._transport.abort()

    @property
    def peer(self) -> str:
        """The address at the other end."""
        return str(self._transport.get_extra_info("peername")[0])

    @property
    def ready(self) -> bool:
        """Whether a connection at rest may be used: it stays, and nothing has come unasked. The
        system is asked, as the loop may not have come to read what would become the answer to
        somebody else's request."""
        return not self._transport.is_closing() and not self._poll.poll(0)

    # Called by the event loop.

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:  # nothing was asked: whatever it is, no later answer may begin with it
            self.abort()
            return
        self.answered = True
        body = response.body
        try:
            if body is None:
                response.feed(data, self._held)
                body = response.body
            else:
                body.feed(data, self._held)
        except UpstreamInvalid as fault:
            self._fail(fault)
            return
        if body is None:
            return
        if self._to_write or not self._writing:
            self._stop_writing()
        if self._held:
            if self._take is not None and not body.ended and self._give(self._take):
                return
            self._hold(len(data))  # its framing, too: a little more than is held
        self._wake()

    def _hold(self, size: int) -> None:
        """Count what is held. Where that is too much the upstream has to wait."""
        self._held_bytes += size
        too_much = self._held_bytes > MAX_HELD_BYTES and not self.ended
        if too_much and self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _give(self, take: Take) -> bool:
        """Hand what has come to who waits for it, if somebody does. Who goes on waiting is not
        woken: rounds of the loop and of a task cost more than most that is done with a chunk."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return False
        held, self._held = self._held, []
        self._begun = True
        try:
            if not take(held[0] if len(held) == 1 else b"".join(held)):
                self._is_taken = True
                waiter.set_result(None)
        except Exception as bug:  # noqa: BLE001  # it belongs to the call: its task raises it
            waiter.set_exception(bug)
        else:
            self._taken_at = now = self._loop.time()
            is_sooner = self._phase == "total" and now + self._idle < self._total_at
            if is_sooner or self._phase == "first_byte":
                self._expect(self._idle, "idle")
        return True

    def eof_received(self) -> None:
        self._over(None)

    def connection_lost(self, exc: Exception | None) -> None:
        while exc is not None and self._spare is not None and not self.ended and not self._fault:
            data = self._spare.read(MAX_HELD_BYTES)  # what had come when a write failed
            if not data or self._held_bytes > MAX_HELD_BYTES:
                break
            self.data_received(data)
        self._close_spare()
        self._over(exc)
        self._alarm.end()
        self._on_close(self)

    def _over(self, error: Exception | None) -> None:
        """Take the connection's end: the end of the response, or a failure of it."""
        response = self._response
        if response is None or response.ended or self._fault is not None:
            return
        if error is None and response.close():
            self._wake()
            return
        fault = UpstreamUnavailable(CLOSED) if response.head is None else UpstreamInvalid(BROKEN)
        self._fail(fault.caused(cause_of(error), str(error or "")))

    def pause_writing(self) -> None:
        self._writing = False
        self._room.clear()

    def resume_writing(self) -> None:
        self._writing = True
        self._room.set()
        self._write_on()

    def _fail(self, fault: UpstreamError) -> None:
        self._fault = fault
        self._room.set()
        self.abort()
        self._wake()

    # Waiting.

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _arrival(self, patience: float, phase: Phase) -> asyncio.Future[None]:
        """Return what is done once there are bytes, an end or a fault, which may be that none of
        them came in time. Who has waited for it sets ``_waiter`` to None again."""
        self._expect(patience, phase)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def _expect(self, patience: float, phase: Phase) -> None:
        """Wait no longer than so many seconds from now, and than the request may take."""
        until = self._loop.time() + patience
        if until >= self._total_at:
            until, phase = self._total_at, "total"
        self._phase = phase
        self._alarm.expect(until)

    def _too_late(self) -> None:
        if self._response is None:
            self.abort()
        elif self._waiter is not None:  # else nobody waits; who does next, expects another moment
            left = self._taken_at + self._idle - self._loop.time()
            if self._phase == "idle" and self._take is not None and left > SLACK_S:
                self._expect(left, "idle")
            else:
                self._fail(UpstreamTimeout(self._phase))
