"""The end of a listener whose clients keep connections: nobody is cut off in a call.

From the signal on each answer says that its connection closes. For a grace new calls are still
taken, as who sends them may not have heard yet; then nobody is let in, and connections that have
been idle for the grace are closed. Calls under way go on until the time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.edge.calls import Calls
from proxy.edge.server import HttpServer
from proxy.frozen import frozen

LOOK_S = 0.05
Stop = Callable[[], Awaitable[None]]


@frozen
class Drain:
    """How long the calls under way may go on, and for how long connections may stay idle."""

    limit_seconds: float
    grace_seconds: float

    async def run(self, server: HttpServer, calls: Calls, stop_listening: Stop) -> None:
        """Wait until no connection is left or the time is over, then end the calls that remain."""
        now = asyncio.get_running_loop().time
        begun, listening = now(), True
        server.draining = True
        while server.connections and now() < begun + self.limit_seconds:
            if now() >= begun + self.grace_seconds:
                if listening:
                    await stop_listening()
                    listening = False
                server.close_idle(now() - self.grace_seconds)
            await asyncio.sleep(LOOK_S)
        if listening:
            await stop_listening()
        await calls.drain(max(0.0, begun + self.limit_seconds - now()))
