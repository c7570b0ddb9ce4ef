"""Response that is fetched once for several equal calls.

The leader fetches; every listener gets all frames from the first on. This module starts no task.
"""

from __future__ import annotations

import asyncio
from typing import Self

from proxy.cache.cached_answer import CachedAnswer
from proxy.cache.echo import for_call
from proxy.call.billing import CacheSavings
from proxy.errors import ProxyError, UpstreamUnavailable
from proxy.ports import Sink
from proxy.types import Call, ResponseHead
from proxy.types.events import Frame


class Flight:
    """Frames of one response that is being fetched. ``kept`` is set instead if it was cached.

    Up to ``oversize`` all ``frames`` are held, and fetching never waits for listeners. An oversize
    flight cannot be joined, and its slowest listener sets the pace, so that memory stays bounded.
    ``base`` is the position of the first held frame. ``saved`` is set with the last frame.
    """

    __slots__ = (
        *("_waiting", "base", "frames", "closed", "error", "head", "kept"),
        *("oversize", "places", "saved", "whole"),
    )

    def __init__(self) -> None:
        self.kept: CachedAnswer | None = None
        self.head = ResponseHead(streamed=False)
        self.error: ProxyError | None = None
        self.saved: CacheSavings | None = None
        self.oversize = False
        self.whole = False
        self.closed = False
        self.frames: list[Frame] = []
        self.base = 0
        self.places: set[Listener] = set()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def joinable(self) -> bool:
        return not self.closed and not self.oversize

    @property
    def shows(self) -> bool:
        """True if there are frames and the flight has not failed."""
        return self._end > 0 and (self.whole or not self.closed)

    @property
    def _end(self) -> int:
        return self.base + len(self.frames)

    def tell(self) -> None:
        """Wake all waiting tasks, which check their own conditions."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if not each.done():  # cancelled
                    each.set_result(None)

    async def news(self) -> None:
        """Wait for the next change of the flight."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    async def add(self, frame: Frame) -> None:
        """Add a frame. If the flight is oversize, wait until every listener has taken the frame."""
        self.frames.append(frame)
        self.whole = frame.last
        self.tell()
        while self.oversize and not self.whole and self._lagging():
            await self.news()
        if self.oversize and not self.whole:
            self.base = self._end
            self.frames.clear()

    def add_at_once(self, frame: Frame) -> None:
        """Add a frame that is neither the first nor the last to a flight that is not oversize."""
        self.frames.append(frame)
        position, missed = self.base + len(self.frames) - 1, False
        for place in self.places:
            missed = not place.show(frame, position) or missed
        if missed:
            self.tell()

    def _lagging(self) -> bool:
        return any(place.position < self._end for place in self.places)

    def close(self, error: ProxyError | None = None) -> None:
        """End the flight. Without a last frame, listeners get ``error``."""
        self.error = self.error or error
        self.closed = True
        self.tell()

    def joined(self, call: Call | None = None) -> Listener:
        """Return a listener at the first frame, active while it is entered. With ``call``,
        frames repeat the request of that call."""
        return Listener(self, call)

    async def begun(self) -> None:
        """Wait for the first frame, a cached response, or the end."""
        while not self.frames and self.kept is None and not self.closed:
            await self.news()

    async def unneeded(self) -> None:
        """Wait until the flight is closed, or until an incomplete flight has no listeners.

        A cancellation is raised after that: the leader's client may disconnect while others listen.
        """
        left: asyncio.CancelledError | None = None
        while not self.closed and (self.places or self.whole):
            try:
                await self.news()
            except asyncio.CancelledError as error:
                left = error
        if left is not None:
            raise left

    def failure(self) -> ProxyError:
        """Return the error of the flight, a generic one if the leader failed without an error."""
        return self.error or UpstreamUnavailable("The request shared with another call failed.")


class Listener:
    """Position of one listener in a flight.

    While it waits for the next frame, that frame goes directly to the sink ``straight``. An error
    of that sink is raised by the listener alone.
    """

    __slots__ = ("_bug", "_call", "_flight", "_waits", "position", "straight")

    def __init__(self, flight: Flight, call: Call | None) -> None:
        self._flight = flight
        self._call = call
        self._waits = False
        self._bug: Exception | None = None
        self.position = 0
        self.straight: Sink | None = None

    def __enter__(self) -> Self:
        self._flight.places.add(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._flight.places.discard(self)
        self._flight.tell()

    async def next(self, most: int = 1) -> list[Frame]:
        """Wait for frames and return at most ``most``. Raises the error of the flight after its
        last frame."""
        flight = self._flight
        if flight.oversize:
            flight.tell()  # this listener has caught up
        while self.position - flight.base >= len(flight.frames):
            if flight.closed:
                raise flight.failure().with_traceback(None) from None
            self._waits = True
            try:
                await flight.news()
            finally:
                self._waits = False
            if self._bug is not None:
                raise self._bug
        at = self.position - flight.base
        frames = flight.frames[at : at + (1 if flight.oversize else most)]
        self.position += len(frames)
        call = self._call
        return frames if call is None else [for_call(each, call) for each in frames]

    def show(self, frame: Frame, position: int) -> bool:
        """Send a frame directly if it is the one that the listener waits for. Return False if
        the listener has to be woken."""
        if self.straight is None or not self._waits or self.position != position:
            return False
        if self._call is not None:
            frame = for_call(frame, self._call)
        try:
            is_shown = self.straight.try_send((frame,))
        except Exception as bug:  # noqa: BLE001 # raised by this listener alone
            self._bug, is_shown = bug, False
        self.position += is_shown
        return is_shown
