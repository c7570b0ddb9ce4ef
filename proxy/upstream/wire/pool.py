"""Pool of the process's connections to upstreams: bounded, with idle connections for reuse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from proxy.errors import UpstreamTimeout, UpstreamUnavailable
from proxy.runtime.fair_queue import FairSemaphore
from proxy.upstream.wire.connection import Connection
from proxy.upstream.wire.dialing import Origin

KEEPALIVE_S = 60.0
LINGER_S = 0.5


class PoolExhausted(UpstreamTimeout):
    """All connections stayed in use until the timeout. The upstream is not at fault."""

    cause = "pool"

    def __init__(self) -> None:
        super().__init__("connect")


class Dial(Protocol):
    """Opens connections. ``on_close`` is called once when a connection has ended."""

    async def dial(
        self, origin: Origin, timeout_s: float, on_close: Callable[[Connection], None]
    ) -> Connection: ...


class Pool:
    """Lends each connection to one request at a time.

    At most ``max_connections`` are in use, being opened or idle, over all origins. Further
    requests wait in order of arrival. A connection may be in use for up to ``linger_s`` after its
    response, until the end has arrived that allows its reuse.
    """

    def __init__(
        self,
        dialer: Dial,
        max_connections: int,
        keepalive_s: float = KEEPALIVE_S,
        linger_s: float = LINGER_S,
    ) -> None:
        self._dialer = dialer
        self._max_connections = max_connections
        self._keepalive_s = keepalive_s
        self._linger_s = linger_s
        self._slots = FairSemaphore(max_connections)
        self._dialing = 0
        self._in_use: dict[Connection, None] = {}
        self._idle: dict[Origin, list[Connection]] = {}
        self._is_closed = False
        self.waiting = 0

    @property
    def idle(self) -> int:
        return sum(map(len, self._idle.values()))

    @property
    def in_use(self) -> int:
        return len(self._in_use)

    def try_take_idle(self, origin: Origin) -> Connection | None:
        """Return the most recently used idle connection, or None if it would have to wait."""
        idle = self._idle.get(origin)
        if not idle or not self._slots.take_free():
            return None
        connection = self._pop_ready(idle)
        if connection is None:
            self._slots.give_back(self)
        else:
            self._in_use[connection] = None
        return connection

    async def take(self, origin: Origin, timeout_s: float, *, fresh: bool = False) -> Connection:
        """Return an idle connection, unless ``fresh``, or a new one.

        Raises ``UpstreamError``, or ``PoolExhausted`` if no slot becomes free.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        if not self._slots.take_free():
            await self._wait_for_slot(deadline)
        try:
            connection = None if fresh else self._pop_ready(self._idle.get(origin))
            if connection is None:
                connection = await self._dial(origin, deadline)
        except BaseException:
            self._slots.give_back(self)
            raise
        self._in_use[connection] = None
        return connection

    async def _wait_for_slot(self, deadline: float) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.take(self)
        except TimeoutError:
            raise PoolExhausted from None
        finally:
            self.waiting -= 1

    def _pop_ready(self, idle: list[Connection] | None) -> Connection | None:
        """Pop the last connection that is usable, and close those that are not."""
        while idle:
            connection = idle.pop()
            if connection.is_ready:
                return connection
            connection.abort()
        return None

    async def _dial(self, origin: Origin, deadline: float) -> Connection:
        if self._is_closed:
            message = "The proxy is shutting down and has closed its connections."
            raise UpstreamUnavailable(message).caused("local")
        if len(self._in_use) + self._dialing + self.idle >= self._max_connections:
            self._close_oldest_idle()
        self._dialing += 1
        try:
            timeout_s = deadline - asyncio.get_running_loop().time()
            return await self._dialer.dial(origin, timeout_s, partial(self._on_close, origin))
        finally:
            self._dialing -= 1

    def _close_oldest_idle(self) -> None:
        for idle in self._idle.values():
            if idle:
                idle.pop(0).abort()
                return

    def finish(self, origin: Origin, connection: Connection) -> None:
        """Take back a connection whose response is finished, once its end has arrived."""
        if connection in self._in_use and not connection.ended:
            connection.linger(self._linger_s, partial(self.give_back, origin, connection))
        else:
            self.give_back(origin, connection)

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """Take back a connection. Close it if it cannot be reused."""
        if connection not in self._in_use:
            return
        del self._in_use[connection]
        if self._is_closed or not connection.release(self._keepalive_s):
            connection.abort()
        elif origin in self._idle:
            self._idle[origin].append(connection)
        else:
            self._idle[origin] = [connection]
        self._slots.give_back(self)

    def _on_close(self, origin: Origin, connection: Connection) -> None:
        """Drop an idle connection that has ended. One in use is given back by its request."""
        idle = self._idle.get(origin)
        if idle is not None:
            if connection in idle:
                idle.remove(connection)
            if not idle:
                del self._idle[origin]

    def close(self) -> None:
        """Close all connections, including those in use."""
        self._is_closed = True
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        for connection in self._in_use:
            connection.abort()
