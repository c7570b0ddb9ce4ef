"""The open connections of the process: how many there may be, and which rest for the next call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from proxy.errors import UpstreamTimeout, UpstreamUnavailable
from proxy.runtime.turns import Turns
from proxy.upstream.wire.connection import Connection
from proxy.upstream.wire.dialing import Origin

KEEPALIVE_S = 60.0
LINGER_S = 0.5


class NoPlace(UpstreamTimeout):
    """All connections that the proxy may have were in use for as long as one may take: that says
    nothing of the upstream."""

    cause = "pool"

    def __init__(self) -> None:
        super().__init__("connect")


class Dial(Protocol):
    """What makes a connection; ``on_close`` is called once when it has ended."""

    async def dial(
        self, origin: Origin, patience: float, on_close: Callable[[Connection], None]
    ) -> Connection: ...


class Pool:
    """Lends each connection to one request at a time: ``take`` it, and ``give_back`` it once.

    There are at most ``bound`` of them over all origins, lent, being made or at rest. Whoever
    wants one more waits, first come first served. One may be lent for up to ``linger_s`` longer
    than its answer, for the end of it that lets it be used again.
    """

    def __init__(
        self,
        dialer: Dial,
        bound: int,
        keepalive_s: float = KEEPALIVE_S,
        linger_s: float = LINGER_S,
    ) -> None:
        self._dialer = dialer
        self._bound = bound
        self._keepalive_s = keepalive_s
        self._linger_s = linger_s
        self._places = Turns(bound)
        self._dialing = 0
        self._lent: dict[Connection, None] = {}
        self._resting: dict[Origin, list[Connection]] = {}
        self._closed = False
        self.waiting = 0

    @property
    def resting(self) -> int:
        return sum(map(len, self._resting.values()))

    @property
    def lent(self) -> int:
        return len(self._lent)

    def take_rested(self, origin: Origin) -> Connection | None:
        """Return the connection that rested last, without waiting. None where there is none, or
        where no place is free."""
        resting = self._resting.get(origin)
        if not resting or not self._places.take_free():
            return None
        connection = self._rested(resting)
        if connection is None:
            self._places.give_back(self)
        else:
            self._lent[connection] = None
        return connection

    async def take(self, origin: Origin, patience: float, *, fresh: bool = False) -> Connection:
        """Return the connection that rested last, else a new one, within ``patience`` seconds.

        ``fresh`` wants a new one. Raises ``UpstreamError``, and ``NoPlace`` where there is none.
        """
        until = asyncio.get_running_loop().time() + patience
        if not self._places.take_free():
            await self._wait_for_place(until)
        try:
            connection = None if fresh else self._rested(self._resting.get(origin))
            if connection is None:
                connection = await self._new(origin, until)
        except BaseException:
            self._places.give_back(self)
            raise
        self._lent[connection] = None
        return connection

    async def _wait_for_place(self, until: float) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout_at(until):
                await self._places.take(self)
        except TimeoutError:
            raise NoPlace from None
        finally:
            self.waiting -= 1

    def _rested(self, resting: list[Connection] | None) -> Connection | None:
        """Return the last that may be used of those that rest, and end those that may not."""
        while resting:
            connection = resting.pop()
            if connection.ready:
                return connection
            connection.abort()
        return None

    async def _new(self, origin: Origin, until: float) -> Connection:
        if self._closed:
            message = "The proxy is shutting down and has closed its connections."
            raise UpstreamUnavailable(message).caused("local")
        if len(self._lent) + self._dialing + self.resting >= self._bound:
            self._end_a_resting_one()
        self._dialing += 1
        try:
            patience = until - asyncio.get_running_loop().time()
            return await self._dialer.dial(origin, patience, partial(self._on_close, origin))
        finally:
            self._dialing -= 1

    def _end_a_resting_one(self) -> None:
        """Make place for another origin: of some origin, the one that has rested longest."""
        for resting in self._resting.values():
            if resting:
                resting.pop(0).abort()
                return

    def finish(self, origin: Origin, connection: Connection) -> None:
        """Take a connection back whose answer is finished, once its end is there. Nobody waits."""
        if connection in self._lent and not connection.ended:
            connection.linger(self._linger_s, partial(self.give_back, origin, connection))
        else:
            self.give_back(origin, connection)

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """Take a connection back. One that cannot carry another request is cut."""
        if connection not in self._lent:
            return
        del self._lent[connection]
        if self._closed or not connection.release(self._keepalive_s):
            connection.abort()
        elif origin in self._resting:
            self._resting[origin].append(connection)
        else:
            self._resting[origin] = [connection]
        self._places.give_back(self)

    def _on_close(self, origin: Origin, connection: Connection) -> None:
        """Forget a connection that ended at rest; one that is lent is given back by its owner."""
        resting = self._resting.get(origin)
        if resting is not None:
            if connection in resting:
                resting.remove(connection)
            if not resting:
                del self._resting[origin]

    def close(self) -> None:
        """Cut all connections, those that are lent too."""
        self._closed = True
        for resting in self._resting.values():
            for connection in resting:
                connection.abort()
        for connection in self._lent:
            connection.abort()
