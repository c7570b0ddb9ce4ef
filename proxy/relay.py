"""Relays a response: each frame is metered, inspected by guards and sent to the client."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from proxy.call.record import Record
from proxy.errors import ProxyError, UpstreamError
from proxy.ports import OutputGuards, Sink, UpstreamResponse
from proxy.runtime.fair_queue import TimeSlice, TimeSlices
from proxy.types.events import Frame

SEND_BATCH_SIZE = 64


class RetryRequested(Exception):
    """A guard requests another response."""


async def relay(
    response: UpstreamResponse,
    guards: OutputGuards,
    record: Record,
    client: Sink,
    turns: TimeSlices,
) -> None:
    """Relay all frames of a response. Frames that arrive together are sent together.

    Returns early if a guard requests another response (``guards.retry_requested``).

    Raises:
        GuardBlocked: A guard blocks the response. Text that it had cleared was sent.
        UpstreamError: The upstream failed. Text that waited for more context was sent.
    """
    turn = TimeSlice(record.now, turns, record.key)
    relayed = Relay(guards, record, client, turn)
    try:
        async for frames in response.frames(relayed.feed):
            turn.begin()
            pending = relayed.feed(frames)
            if pending is not None:
                await pending
            if turn.is_over():
                await turn.rest()
    except RetryRequested:
        return
    except UpstreamError:
        await relayed.send(guards.abort())
        raise


class Relay:
    """Path of frames to the client, also of those that arrive while their task waits."""

    __slots__ = ("_cleared", "_client", "_guards", "_record", "_turn")

    def __init__(self, guards: OutputGuards, record: Record, client: Sink, turn: TimeSlice) -> None:
        self._guards = guards
        self._record = record
        self._client = client
        self._turn = turn
        self._cleared: list[Frame] = []

    def feed(self, frames: Sequence[Frame]) -> Coroutine[Any, Any, None] | None:
        """Relay frames. Return what to await if guards or the client need time, or on an error."""
        cleared, guards = self._cleared, self._guards
        for index, frame in enumerate(frames):
            self._record.meter(frame)
            try:
                safe_frames = guards.try_inspect(frame)
            except ProxyError as error:
                return self._fail(error)
            if safe_frames is None:
                return self._feed_slowly(frames[index:])
            cleared += safe_frames
        if cleared and not self._client.try_send(cleared):
            return self._send_cleared()
        cleared.clear()
        return None

    async def _feed_slowly(self, frames: Sequence[Frame]) -> None:
        """Relay frames of which the first is metered and needs time."""
        guards, safe_frames = self._guards, None
        self._turn.begin()
        try:
            for index, frame in enumerate(frames):
                if index:
                    self._record.meter(frame)
                    safe_frames = guards.try_inspect(frame)
                if safe_frames is None:
                    safe_frames = await guards.inspect(frame)
                    if guards.retry_requested:
                        raise RetryRequested
                    if self._turn.is_over():
                        await self._turn.rest()
                self._cleared += safe_frames
        except ProxyError:
            await self._send_cleared()
            raise
        await self._send_cleared()

    async def _fail(self, error: ProxyError) -> None:
        """Send the frames that were cleared, then raise the error."""
        try:
            await self._send_cleared()
            raise error
        finally:
            del error  # its traceback refers to this frame

    async def _send_cleared(self) -> None:
        cleared, self._cleared = self._cleared, []
        await self.send(cleared)

    async def send(self, frames: Sequence[Frame]) -> None:
        for start in range(0, len(frames), SEND_BATCH_SIZE):
            await self._client.send(frames[start : start + SEND_BATCH_SIZE])
            if self._turn.is_over():
                await self._turn.rest()
