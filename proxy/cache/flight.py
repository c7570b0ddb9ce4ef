"""Response that is fetched once for several equal calls.

The leader fetches the response. Every listener gets all frames. This module starts no task.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from proxy.cache.cached_answer import CachedAnswer, replace_echoed_user_fields
from proxy.call.attempts import CacheSavings
from proxy.errors import ProxyError, UpstreamUnavailable
from proxy.ports import Sink
from proxy.types import Call, ResponseHead
from proxy.types.events import Frame

LEADER_FAILED = "The request shared with another call failed."


@dataclass(slots=True)
class Flight:
    """Frames of one response that is being fetched.

    A flight holds all its frames, and fetching never waits for listeners. If the response becomes
    too large for the cache, the flight is oversize: it cannot be joined, and fetching waits for the
    slowest listener, so that memory stays bounded.

    Attributes:
        cached: Response found in the cache. If it is set, the flight has no frames.
        saved: Tokens and cost that each other listener saves. Set with the last frame.
        base: Position of the first held frame in the response.
    """

    cached: CachedAnswer | None = None
    head: ResponseHead = field(default_factory=partial(ResponseHead, streamed=False))
    error: ProxyError | None = None
    saved: CacheSavings | None = None
    is_oversize: bool = False
    is_complete: bool = False
    is_closed: bool = False
    frames: list[Frame] = field(default_factory=list)
    base: int = 0
    listeners: set[FlightListener] = field(default_factory=set)
    _change: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_joinable(self) -> bool:
        return not self.is_closed and not self.is_oversize

    @property
    def has_frames_to_relay(self) -> bool:
        """True if there are frames and the flight has not failed."""
        return self._end_position > 0 and (self.is_complete or not self.is_closed)

    @property
    def _end_position(self) -> int:
        return self.base + len(self.frames)

    def notify(self) -> None:
        """Wake all waiting tasks, which check their own conditions."""
        self._change.set()
        self._change = asyncio.Event()

    async def wait_for_change(self) -> None:
        await self._change.wait()

    async def add(self, frame: Frame) -> None:
        """Add a frame. If the flight is oversize, wait until every listener has taken the frame."""
        self.frames.append(frame)
        self.is_complete = frame.last
        self.notify()
        while self.is_oversize and not self.is_complete:
            if all(listener.position >= self._end_position for listener in self.listeners):
                break
            await self.wait_for_change()
        if self.is_oversize and not self.is_complete:
            self.base = self._end_position
            self.frames.clear()

    def add_nowait(self, frame: Frame) -> None:
        """Add a frame that is neither the first nor the last to a flight that is not oversize."""
        self.frames.append(frame)
        position, must_wake = self.base + len(self.frames) - 1, False
        for listener in self.listeners:
            must_wake = not listener.deliver(frame, position) or must_wake
        if must_wake:
            self.notify()

    def close(self, error: ProxyError | None = None) -> None:
        """End the flight. Without a last frame, listeners get ``error``."""
        self.error = self.error or error
        self.is_closed = True
        self.notify()

    async def wait_until_started(self) -> None:
        """Wait for the first frame, a cached response, or the end."""
        while not self.frames and self.cached is None and not self.is_closed:
            await self.wait_for_change()

    async def wait_until_unneeded(self) -> None:
        """Wait until the flight is closed, or until an incomplete flight has no listeners.

        A cancellation is raised after that: the leader's client may disconnect while others listen.
        """
        cancellation: asyncio.CancelledError | None = None
        while not self.is_closed and (self.listeners or self.is_complete):
            try:
                await self.wait_for_change()
            except asyncio.CancelledError as error:
                cancellation = error
        if cancellation is not None:
            raise cancellation


class FlightListener:
    """Context manager that reads the frames of a flight for one client, from the first on.

    With ``call``, the parts of the response that repeat the request are those of ``call``.
    While the listener waits for the next frame, that frame goes directly to ``sink``. An error of
    the sink affects only this listener.
    """

    __slots__ = ("_call", "_error", "_flight", "_is_waiting", "position", "sink")

    def __init__(self, flight: Flight, call: Call | None = None) -> None:
        self._flight = flight
        self._call = call
        self._is_waiting = False
        self._error: Exception | None = None
        self.position = 0
        self.sink: Sink | None = None

    def __enter__(self) -> Self:
        self._flight.listeners.add(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._flight.listeners.discard(self)
        self._flight.notify()

    async def next_frames(self, limit: int = 1) -> list[Frame]:
        """Wait for frames and return at most ``limit``.

        Raises the error of the flight after its last frame.
        """
        flight = self._flight
        if flight.is_oversize:
            flight.notify()  # this listener has caught up
        while self.position - flight.base >= len(flight.frames):
            if flight.is_closed:
                error = flight.error or UpstreamUnavailable(LEADER_FAILED)
                raise error.with_traceback(None) from None
            self._is_waiting = True
            try:
                await flight.wait_for_change()
            finally:
                self._is_waiting = False
            if self._error is not None:
                raise self._error
        index = self.position - flight.base
        frames = flight.frames[index : index + (1 if flight.is_oversize else limit)]
        self.position += len(frames)
        call = self._call
        if call is None:
            return frames
        return [replace_echoed_user_fields(frame, call) for frame in frames]

    def deliver(self, frame: Frame, position: int) -> bool:
        """Send a frame to ``sink`` if the listener waits for it.

        Return False if the listener has to be woken.
        """
        if self.sink is None or not self._is_waiting or self.position != position:
            return False
        if self._call is not None:
            frame = replace_echoed_user_fields(frame, self._call)
        try:
            is_sent = self.sink.try_send((frame,))
        except Exception as error:  # noqa: BLE001 # raised by this listener alone
            self._error, is_sent = error, False
        self.position += is_sent
        return is_sent
