"""An answer that is being fetched once for all who ask the same: they see every frame of it.

Who leads it fetches, whoever else joins listens from the first frame on. Nothing here knows where
the answer comes from, or starts a task.
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
    """One answer on its way. ``kept`` is set instead when it turns out to be there already.

    Up to ``oversize`` it holds all that was said and runs ahead of those who listen; beyond, nobody
    can join any more and the slowest who listens sets the pace, so that memory stays bounded.
    ``saved`` is what listening instead of asking has saved, known with the last frame.
    ``frames`` are those that are held, from the one at ``base`` on; ``places`` those who listen.
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
        """Whether there is something to show, and no sign yet that it will not end well."""
        return self._end > 0 and (self.whole or not self.closed)

    @property
    def _end(self) -> int:
        return self.base + len(self.frames)

    def tell(self) -> None:
        """Wake all who wait, for whatever they wait: they look for themselves."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if not each.done():  # it may have been cancelled
                    each.set_result(None)

    async def news(self) -> None:
        """Wait until something is told."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    async def add(self, frame: Frame) -> None:
        """Take the next frame; once oversize, wait until all who listen have taken it."""
        self.frames.append(frame)
        self.whole = frame.last
        self.tell()
        while self.oversize and not self.whole and self._lagging():
            await self.news()
        if self.oversize and not self.whole:
            self.base = self._end
            self.frames.clear()

    def add_at_once(self, frame: Frame) -> None:
        """Take the next frame of one that is not oversize, and neither the first nor the last."""
        self.frames.append(frame)
        position, missed = self.base + len(self.frames) - 1, False
        for place in self.places:
            missed = not place.show(frame, position) or missed
        if missed:
            self.tell()

    def _lagging(self) -> bool:
        return any(place.position < self._end for place in self.places)

    def close(self, error: ProxyError | None = None) -> None:
        """No more comes. Without a last frame, whoever listens is told the error."""
        self.error = self.error or error
        self.closed = True
        self.tell()

    def joined(self, call: Call | None = None) -> Listener:
        """Return a place at the first frame; it counts as listening until its block is left. With
        ``call`` the answer repeats the request of that call, not of the one that it was for."""
        return Listener(self, call)

    async def begun(self) -> None:
        """Wait until there is something to show, or it is known that there will be nothing."""
        while not self.frames and self.kept is None and not self.closed:
            await self.news()

    async def unneeded(self) -> None:
        """Wait until it is closed, or nobody listens while it is not whole, whoever wants to leave
        sooner: who leads is told twice of a client that goes, by a write that fails and by a
        cancellation, and a stop cancels those who listen as well."""
        left: asyncio.CancelledError | None = None
        while not self.closed and (self.places or self.whole):
            try:
                await self.news()
            except asyncio.CancelledError as error:
                left = error
        if left is not None:
            raise left

    def failure(self) -> ProxyError:
        """Return what ended the flight; a leader that broke has left no error of its own."""
        return self.error or UpstreamUnavailable("The request shared with another call failed.")


class Listener:
    """How far one listener has come. Who has shown what it was given so far may have the rest go
    ``straight`` to where it shows it, while it waits for that. What goes wrong there is its own."""

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
        """Return the next frames, so many at the most, as soon as one is there. Raise what ended
        the flight before it."""
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
        """Show the frame at a position where it is the next, and waits for nobody. False where the
        listener has to be woken for it."""
        if self.straight is None or not self._waits or self.position != position:
            return False
        if self._call is not None:
            frame = for_call(frame, self._call)
        try:
            is_shown = self.straight.try_send((frame,))
        except Exception as bug:  # noqa: BLE001  # who fetches, and who else listens, has no part in it
            self._bug, is_shown = bug, False
        self.position += is_shown
        return is_shown
