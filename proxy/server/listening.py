"""Listening sockets that accept all waiting connections at once.

asyncio accepts one connection per loop iteration. Under load an iteration takes 10 ms, so the last
of thirty simultaneous clients would wait for thirty iterations.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack, suppress

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from proxy.server import Stop
from proxy.server.server import HttpServer
from proxy.settings import Address, BadSetting

CLOSE_TIMEOUT_S = 1.0
BACKLOG_CONNECTIONS = 128  # connections that wait to be accepted
MAX_BATCH = 32  # connections accepted at once


class BatchAcceptor:
    """Creates the protocol of a new connection, and accepts other waiting connections too."""

    def __init__(self, server: HttpServer, listening: socket.socket) -> None:
        self._server = server
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self) -> RequestHandler:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._accept_connections)
        return self._server()

    def _accept_connections(self) -> None:
        self._is_due = False
        with suppress(OSError):  # no connection waits, or the socket is closed
            for _ in range(MAX_BATCH):
                connection, _ = self._listening.accept()
                task = self._loop.create_task(self._serve_connection(connection))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _serve_connection(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._server, connection)
        except OSError:  # the client has disconnected
            connection.close()


def require_free_addresses(addresses: Mapping[str, Address]) -> None:
    """Raise ``BadSetting`` unless all addresses are free. The keys name their settings."""
    with ExitStack() as probes:
        for source, address in addresses.items():
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            try:
                probe = socket.create_server((address.host, address.port), family=family)
            except OSError as error:
                advice = "Stop the program that uses it, or choose another address"
                raise BadSetting(
                    f"{address} ({source}): {_describe_error(error)}. {advice}."
                ) from None
            probes.enter_context(probe)


def _describe_error(error: OSError) -> str:
    """Return the system's error text, without the address that Python adds."""
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


async def listen(
    opened: AsyncExitStack, server: HttpServer, address: Address
) -> tuple[Address, Stop]:
    """Open a listener. Return its address and a function that stops it.

    Leaving ``opened`` stops it and closes its connections. Raises ``OSError`` with the address.
    """
    runner = web.ServerRunner(server, shutdown_timeout=CLOSE_TIMEOUT_S)
    await runner.setup()
    opened.push_async_callback(runner.cleanup)
    loop = asyncio.get_running_loop()
    try:
        bound = await loop.create_server(server, address.host, address.port)
    except OSError as error:
        raise OSError(f"{address}: {_describe_error(error)}") from None
    host, port, *_ = bound.sockets[0].getsockname()
    listeners: list[asyncio.Server] = []

    async def stop() -> None:
        for listener in listeners:
            listener.close()

    opened.push_async_callback(stop)
    for bound_socket in bound.sockets:
        listening = socket.socket(fileno=os.dup(bound_socket.fileno()))
        listening.setblocking(False)
        reception = BatchAcceptor(server, listening)
        listeners.append(
            await loop.create_server(reception, sock=listening, backlog=BACKLOG_CONNECTIONS)
        )
    bound.close()
    return Address(host, port), stop
