"""Opens connections to upstreams: looks up names, tries addresses, verifies TLS.

Lookups run in dedicated threads, because the loop's own are few and a lookup may hang. A hanging
lookup delays only requests that look up the same name for the first time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from proxy.errors import UpstreamTimeout, UpstreamUnavailable
from proxy.errors.causes import get_cause
from proxy.upstream.wire.connection import Connection

NAME_TTL_S = 30.0
NAME_RETRY_S = 1.0
OVERDUE_S = 1.0
MAX_NAMES = 1024
MAX_ADDRESSES = 4
MAX_LOOKUPS = 64
UNREACHABLE_MESSAGE = "The upstream cannot be reached."
Lookup: TypeAlias = "asyncio.Future[list[Any]]"
"""Holds the result of ``socket.getaddrinfo``."""
_UNKNOWN_NAME = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})  # a result, not a failure


class GetAddrInfo(Protocol):
    """``socket.getaddrinfo``, which blocks."""

    def __call__(self, host: str, port: int, *, type: int) -> list[Any]: ...


class StartLookup(Protocol):
    """Starts a lookup without blocking."""

    def __call__(self, host: str, port: int, *, type: int) -> Lookup: ...


class Resolver:
    """Runs at most ``max_lookups`` lookups in threads, which do not keep the process alive."""

    def __init__(
        self, getaddrinfo: GetAddrInfo = socket.getaddrinfo, max_lookups: int = MAX_LOOKUPS
    ) -> None:
        self._getaddrinfo = getaddrinfo
        self._max_lookups = max_lookups
        self._running = 0
        self._waiting: deque[tuple[Lookup, Callable[[], list[Any]]]] = deque()

    def __call__(self, host: str, port: int, *, type: int) -> Lookup:
        lookup: Lookup = asyncio.get_running_loop().create_future()
        self._waiting.append((lookup, partial(self._getaddrinfo, host, port, type=type)))
        self._start_lookups()
        return lookup

    def _start_lookups(self) -> None:
        while self._waiting and self._running < self._max_lookups:
            lookup, resolve = self._waiting.popleft()
            if lookup.done():
                continue
            run = partial(self._run_lookup, lookup, resolve)
            try:
                threading.Thread(target=run, daemon=True).start()
            except RuntimeError:
                lookup.set_exception(OSError("no thread can be started for the DNS lookup"))
            else:
                self._running += 1

    def _run_lookup(self, lookup: Lookup, resolve: Callable[[], list[Any]]) -> None:
        """Run in a thread. The loop may be closed when the lookup ends."""
        try:
            finish = partial(self._finish_lookup, lookup, resolve(), None)
        except (OSError, ValueError, OverflowError) as error:
            finish = partial(self._finish_lookup, lookup, [], error)
        with suppress(RuntimeError):
            lookup.get_loop().call_soon_threadsafe(finish)

    def _finish_lookup(self, lookup: Lookup, addresses: list[Any], error: Exception | None) -> None:
        self._running -= 1
        self._start_lookups()
        if lookup.done():
            return
        if error is None:
            lookup.set_result(addresses)
        else:
            lookup.set_exception(error)


@dataclass(slots=True)
class DnsEntry:
    """Addresses of a name, their expiry, and the running lookup with its ``overdue_s`` deadline."""

    addresses: list[str] = field(default_factory=list)
    expires_at: float = 0.0
    lookup: Lookup | None = None
    overdue_at: float = 0.0


class DnsCache:
    """Addresses of hosts, cached for ``NAME_TTL_S``.

    Runs one lookup per name at a time. If it fails or takes ``overdue_s``, uses the last addresses.
    """

    def __init__(
        self, resolve: StartLookup, now: Callable[[], float], overdue_s: float = OVERDUE_S
    ) -> None:
        self._resolve = resolve
        self._now = now
        self._overdue_s = overdue_s
        self._entries: dict[str, DnsEntry] = {}

    async def resolve_addresses(self, host: str, port: int) -> list[str]:
        """Return at least one address, unreachable ones last.

        Raises ``OSError`` or ``ValueError``.
        """
        with suppress(ValueError):
            ipaddress.ip_address(host)
            return [host]
        entry = self._entries.get(host)
        if entry is None:
            if len(self._entries) >= MAX_NAMES:
                self._entries.clear()
            entry = self._entries[host] = DnsEntry()
        if self._now() >= entry.expires_at:
            lookup = entry.lookup or self._start_lookup(entry, host, port)
            if lookup.done():  # its callback has not run yet
                self._on_lookup_done(entry, lookup)
            if entry.addresses:
                await asyncio.wait({lookup}, timeout=max(0.0, entry.overdue_at - self._now()))
            if not entry.addresses:
                await asyncio.shield(lookup)
        return entry.addresses[:MAX_ADDRESSES]

    def _start_lookup(self, entry: DnsEntry, host: str, port: int) -> Lookup:
        entry.overdue_at = self._now() + self._overdue_s
        entry.lookup = self._resolve(host, port, type=socket.SOCK_STREAM)
        entry.lookup.add_done_callback(partial(self._on_lookup_done, entry))
        return entry.lookup

    def _on_lookup_done(self, entry: DnsEntry, lookup: Lookup) -> None:
        """Store the result once, before the waiting calls are woken."""
        if entry.lookup is not lookup:
            return
        entry.lookup = None
        error = None if lookup.cancelled() else lookup.exception()
        if error is None and not lookup.cancelled():
            entry.addresses = list(dict.fromkeys(str(info[4][0]) for info in lookup.result()))
            entry.expires_at = self._now() + NAME_TTL_S
        elif isinstance(error, OSError) and error.errno in _UNKNOWN_NAME:
            entry.addresses = []
        else:
            entry.expires_at = self._now() + NAME_RETRY_S if entry.addresses else 0.0

    def demote_address(self, host: str, address: str) -> None:
        """Try an unreachable address last from now on."""
        entry = self._entries.get(host)
        if entry is not None and address in entry.addresses:
            entry.addresses = [
                other_address for other_address in entry.addresses if other_address != address
            ] + [address]


class Origin(NamedTuple):
    """Scheme, host and port. Requests to the same origin share connections."""

    host: str
    port: int
    tls: bool


class TlsContextLoader:
    """Holds a TLS context. Without one, loads the system's in a thread, which takes 25 ms."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._lock = asyncio.Lock()

    async def load_context(self) -> ssl.SSLContext:
        async with self._lock:
            if self._context is None:
                self._context = await asyncio.to_thread(load_system_context)
            return self._context


def load_system_context() -> ssl.SSLContext:
    """Return a TLS context with the system's certificates, for HTTP/1.1."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


@dataclass(slots=True)
class DialAttempt:
    """A connection being opened: its current step, and the host or address of that step."""

    origin: Origin
    deadline: float
    on_close: Callable[[Connection], None]
    peer: str
    step: Literal["name lookup", "TCP connect", "TLS handshake"] = "name lookup"

    def to_error(self, error: Exception) -> UpstreamUnavailable:
        """Return the error for the failed step."""
        cause = get_cause(error)
        text, message = str(error), UNREACHABLE_MESSAGE
        if cause == "tls_certificate":
            message = "The upstream's TLS certificate is invalid."
        elif self.step == "TLS handshake":
            cause = "tls"
        elif isinstance(error, OSError) and error.errno and self.step == "TCP connect":
            text = os.strerror(error.errno)  # the text of asyncio has no reason
        unavailable = UpstreamUnavailable(message).set_cause(cause, f"{self.peer}: {text}")
        unavailable.reached_upstream = False
        return unavailable


class Dialer:
    """Opens connections."""

    def __init__(self, trust: TlsContextLoader, names: DnsCache) -> None:
        self._trust = trust
        self._names = names

    async def dial(
        self, origin: Origin, timeout_s: float, on_close: Callable[[Connection], None]
    ) -> Connection:
        """Connect within ``timeout_s``, including name lookup and TLS.

        Raises ``UpstreamTimeout`` and ``UpstreamUnavailable``.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        attempt = DialAttempt(origin, deadline, on_close, peer=origin.host)
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._names.resolve_addresses(origin.host, origin.port)
                return await self._try_addresses_in_turn(attempt, addresses)
        except TimeoutError:
            text = f"{attempt.step} with {attempt.peer}"
            raise UpstreamTimeout("connect").set_cause("timeout", text) from None
        except (OSError, UnicodeError) as error:
            raise attempt.to_error(error) from None

    async def _try_addresses_in_turn(
        self, attempt: DialAttempt, addresses: list[str]
    ) -> Connection:
        """Try each address for an equal share of the remaining time."""
        loop = asyncio.get_running_loop()
        for remaining in range(len(addresses), 1, -1):
            address = addresses[-remaining]
            try:
                async with asyncio.timeout((attempt.deadline - loop.time()) / remaining):
                    return await self._connect(attempt, address)
            except ssl.SSLCertVerificationError:
                raise
            except OSError:  # includes TimeoutError
                self._names.demote_address(attempt.origin.host, address)
        return await self._connect(attempt, addresses[-1])

    async def _connect(self, attempt: DialAttempt, address: str) -> Connection:
        host, port, tls = attempt.origin
        attempt.peer, attempt.step = f"{address} port {port}", "TCP connect"
        context = await self._trust.load_context() if tls else None
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, (address, port))
        except BaseException:
            sock.close()
            raise
        if tls:
            attempt.step = "TLS handshake"
        _, connection = await loop.create_connection(
            lambda: Connection(attempt.on_close),
            sock=sock,
            ssl=context,
            server_hostname=host.rstrip(".") if tls else None,
        )
        return connection
