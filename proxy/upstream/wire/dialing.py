"""Where an upstream is, and a new connection to it: by name, over TLS that is always verified."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from proxy.errors import UpstreamTimeout, UpstreamUnavailable
from proxy.upstream.wire.connection import Connection

NAMES_KEPT_S = 30.0
MAX_NAMES = 1024
MAX_ADDRESSES = 4


class Origin(NamedTuple):
    """What connections are shared by: two requests to one origin may take the same."""

    host: str
    port: int
    tls: bool


@dataclass(slots=True)
class _Name:
    """What a host's name led to, until when, and who is asking now."""

    addresses: list[str] = field(default_factory=list)
    until: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Resolve(Protocol):
    """What asks the system for a name: an event loop's ``getaddrinfo``."""

    def __call__(self, host: str, port: int, *, type: int) -> Awaitable[list[Any]]: ...


class Names:
    """The addresses of hosts, kept for ``NAMES_KEPT_S`` by the clock ``now``."""

    def __init__(self, resolve: Resolve, now: Callable[[], float]) -> None:
        self._resolve = resolve
        self._now = now
        self._names: dict[str, _Name] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """Give at least one address; those that could not be reached come last.

        Raises ``OSError``.
        """
        if _is_address(host):
            return [host]
        name = self._names.get(host)
        if name is None:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            name = self._names[host] = _Name()
        async with name.asking:  # many calls may want a new connection: one of them asks
            if self._now() >= name.until:
                found = await self._resolve(host, port, type=socket.SOCK_STREAM)
                name.addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
                name.until = self._now() + NAMES_KEPT_S
        return name.addresses[:MAX_ADDRESSES]

    def failed(self, host: str, address: str) -> None:
        """Let an address that was not reached be the last to be tried."""
        name = self._names.get(host)
        if name is not None and address in name.addresses:
            name.addresses = [each for each in name.addresses if each != address] + [address]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Dialer:
    """Makes connections. ``trust`` says whose certificates are believed."""

    def __init__(self, trust: ssl.SSLContext, names: Names) -> None:
        self._trust = trust
        self._names = names

    async def dial(
        self, origin: Origin, patience: float, gone: Callable[[Connection], None]
    ) -> Connection:
        """Connect within so many seconds, names and TLS included, trying several addresses.

        Raises ``UpstreamTimeout`` and ``UpstreamUnavailable``.
        """
        until = asyncio.get_running_loop().time() + patience
        try:
            async with asyncio.timeout_at(until):
                addresses = await self._names.addresses(origin.host, origin.port)
                return await self._first_of(origin, addresses, until, gone)
        except TimeoutError:
            raise UpstreamTimeout("connect") from None
        except ssl.SSLCertVerificationError:
            raise UpstreamUnavailable("The upstream's certificate is not valid.") from None
        except (OSError, UnicodeError):
            raise UpstreamUnavailable("The upstream cannot be reached.") from None

    async def _first_of(
        self,
        origin: Origin,
        addresses: list[str],
        until: float,
        gone: Callable[[Connection], None],
    ) -> Connection:
        """Try each address for its share of the time that is left."""
        loop = asyncio.get_running_loop()
        for left in range(len(addresses), 1, -1):
            address = addresses[-left]
            try:
                async with asyncio.timeout((until - loop.time()) / left):
                    return await self._connect(origin, address, gone)
            except ssl.SSLCertVerificationError:
                raise
            except OSError:  # TimeoutError is one
                self._names.failed(origin.host, address)
        return await self._connect(origin, addresses[-1], gone)

    async def _connect(
        self, origin: Origin, address: str, gone: Callable[[Connection], None]
    ) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(gone),
            address,
            origin.port,
            ssl=self._trust if origin.tls else None,
            server_hostname=origin.host.rstrip(".") if origin.tls else None,
        )
        return connection


def trusted() -> ssl.SSLContext:
    """Trust what the system trusts, and speak HTTP/1.1 alone."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
