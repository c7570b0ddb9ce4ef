"""A new connection to an upstream: by name, over TLS that is always verified."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from proxy.causes import ErrorCause, cause_of
from proxy.errors import UpstreamTimeout, UpstreamUnavailable
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


@dataclass(slots=True)
class Progress:
    """The step that connecting has reached, and the host or address that it is about."""

    peer: str
    step: Literal["name lookup", "TCP connect", "TLS handshake"] = "name lookup"

    def late(self) -> UpstreamTimeout:
        """Return the error of a step that took too long."""
        return UpstreamTimeout("connect").caused("timeout", f"{self.step} with {self.peer}")

    def failed(self, error: Exception) -> UpstreamUnavailable:
        """Return the error of a step that failed."""
        cause: ErrorCause = cause_of(error)
        if self.step == "TLS handshake" and cause != "tls_certificate":
            cause = "tls"
        invalid = cause == "tls_certificate"
        message = "The upstream's TLS certificate is invalid." if invalid else UNREACHED
        text = str(error)
        if self.step == "TCP connect" and isinstance(error, OSError) and error.errno:
            text = os.strerror(error.errno)  # asyncio's own text has no reason
        unreached = UpstreamUnavailable(message).caused(cause, f"{self.peer}: {text}")
        unreached.reached = False
        return unreached


UNREACHED = "The upstream cannot be reached."


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
        progress = Progress(origin.host)
        try:
            async with asyncio.timeout_at(until):
                addresses = await self._names.addresses(origin.host, origin.port)
                return await self._first_of(origin, addresses, until, progress, on_close)
        except TimeoutError:
            raise progress.late() from None
        except (OSError, UnicodeError) as error:
            raise progress.failed(error) from None

    async def _first_of(
        self,
        origin: Origin,
        addresses: list[str],
        until: float,
        progress: Progress,
        on_close: Callable[[Connection], None],
    ) -> Connection:
        """Try each address for its share of the time that is left."""
        loop = asyncio.get_running_loop()
        for left in range(len(addresses), 1, -1):
            address = addresses[-left]
            try:
                async with asyncio.timeout((until - loop.time()) / left):
                    return await self._connect(origin, address, progress, on_close)
            except ssl.SSLCertVerificationError:
                raise
            except OSError:  # TimeoutError is one
                self._names.failed(origin.host, address)
        return await self._connect(origin, addresses[-1], progress, on_close)

    async def _connect(
        self,
        origin: Origin,
        address: str,
        progress: Progress,
        on_close: Callable[[Connection], None],
    ) -> Connection:
        progress.peer, progress.step = f"{address} port {origin.port}", "TCP connect"

        def connected() -> Connection:
            progress.step = "TLS handshake"
            return Connection(on_close)

        _, connection = await asyncio.get_running_loop().create_connection(
            connected,
            address,
            origin.port,
            ssl=await self._trust.context() if origin.tls else None,
            server_hostname=origin.host.rstrip(".") if origin.tls else None,
        )
        return connection


def trusted() -> ssl.SSLContext:
    """Trust what the system trusts, and speak HTTP/1.1 alone."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
