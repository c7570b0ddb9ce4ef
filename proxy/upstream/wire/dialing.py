"""A new connection to an upstream: by name, over TLS that is always verified."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from proxy.errors import UpstreamTimeout, UpstreamUnavailable
from proxy.errors.causes import cause_of
from proxy.upstream.wire.connection import Connection
from proxy.upstream.wire.names import Names


class Origin(NamedTuple):
    """What connections are shared by: two requests to one origin may take the same."""

    host: str
    port: int
    tls: bool


class Trust:
    """Whose certificates are believed: ``context``'s, or without one the system's, which are read
    in a thread, as that takes 25 ms."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._reading = asyncio.Lock()

    async def context(self) -> ssl.SSLContext:
        """Return what verifies a connection; the first time it may have to be read."""
        async with self._reading:
            if self._context is None:
                self._context = await asyncio.to_thread(trusted)
            return self._context


UNREACHED = "The upstream cannot be reached."


@dataclass(slots=True)
class DialAttempt:
    """A connection being made. ``step`` is what it waits for, ``peer`` the host or the address."""

    origin: Origin
    until: float
    on_close: Callable[[Connection], None]
    peer: str
    step: Literal["name lookup", "TCP connect", "TLS handshake"] = "name lookup"

    def failed(self, error: Exception) -> UpstreamUnavailable:
        """Return the error of a step that failed."""
        cause = cause_of(error)
        text, message = str(error), UNREACHED
        if cause == "tls_certificate":
            message = "The upstream's TLS certificate is invalid."
        elif self.step == "TLS handshake":
            cause = "tls"
        elif isinstance(error, OSError) and error.errno and self.step == "TCP connect":
            text = os.strerror(error.errno)  # asyncio's own text has no reason
        unreached = UpstreamUnavailable(message).caused(cause, f"{self.peer}: {text}")
        unreached.reached_upstream = False
        return unreached


class Dialer:
    """Makes connections. ``trust`` says whose certificates are believed."""

    def __init__(self, trust: Trust, names: Names) -> None:
        self._trust = trust
        self._names = names

    async def dial(
        self, origin: Origin, patience: float, on_close: Callable[[Connection], None]
    ) -> Connection:
        """Connect within so many seconds, names and TLS included, trying several addresses.

        Raises ``UpstreamTimeout`` and ``UpstreamUnavailable``.
        """
        until = asyncio.get_running_loop().time() + patience
        attempt = DialAttempt(origin, until, on_close, peer=origin.host)
        try:
            async with asyncio.timeout_at(until):
                addresses = await self._names.addresses(origin.host, origin.port)
                return await self._first_of(attempt, addresses)
        except TimeoutError:
            text = f"{attempt.step} with {attempt.peer}"
            raise UpstreamTimeout("connect").caused("timeout", text) from None
        except (OSError, UnicodeError) as error:
            raise attempt.failed(error) from None

    async def _first_of(self, attempt: DialAttempt, addresses: list[str]) -> Connection:
        """Try each address for its share of the time that is left."""
        loop = asyncio.get_running_loop()
        for left in range(len(addresses), 1, -1):
            address = addresses[-left]
            try:
                async with asyncio.timeout((attempt.until - loop.time()) / left):
                    return await self._connect(attempt, address)
            except ssl.SSLCertVerificationError:
                raise
            except OSError:  # TimeoutError is one
                self._names.failed(attempt.origin.host, address)
        return await self._connect(attempt, addresses[-1])

    async def _connect(self, attempt: DialAttempt, address: str) -> Connection:
        host, port, tls = attempt.origin
        attempt.peer, attempt.step = f"{address} port {port}", "TCP connect"
        context = await self._trust.context() if tls else None
        loop = asyncio.get_running_loop()
        connected = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            connected.setblocking(False)
            await loop.sock_connect(connected, (address, port))
        except BaseException:
            connected.close()
            raise
        if tls:
            attempt.step = "TLS handshake"
        _, connection = await loop.create_connection(
            lambda: Connection(attempt.on_close),
            sock=connected,
            ssl=context,
            server_hostname=host.rstrip(".") if tls else None,
        )
        return connection


def trusted() -> ssl.SSLContext:
    """Trust what the system trusts, and speak HTTP/1.1 alone."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
