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
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

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
GetAddrInfo = Callable[..., list[Any]]
"""``socket.getaddrinfo``, which blocks."""
_UNKNOWN_NAME = frozenset({socket.EAI_NONAME, socket.EAI_NODATA})  # a result, not a failure


@dataclass(slots=True)
class DnsEntry:
    """Addresses of a name, their expiry, and the running lookup with its ``overdue_s`` deadline.

    The lookup returns its error.
    """

    addresses: list[str] = field(default_factory=list)
    expires_at: float = 0.0
    lookup: asyncio.Task[Exception | None] | None = None
    overdue_at: float = 0.0


class DnsCache:
    """Addresses of hosts, cached for ``NAME_TTL_S``.

    Runs one lookup per name and ``MAX_LOOKUPS`` in all at a time. If a lookup fails or takes
    ``overdue_s``, uses the last addresses.
    """

    def __init__(
        self,
        getaddrinfo: GetAddrInfo = socket.getaddrinfo,
        now: Callable[[], float] = time.monotonic,
        overdue_s: float = OVERDUE_S,
    ) -> None:
        self._getaddrinfo = getaddrinfo
        self._now = now
        self._overdue_s = overdue_s
        self._entries: dict[str, DnsEntry] = {}
        self._slots = asyncio.Semaphore(MAX_LOOKUPS)
        self._lookups: set[asyncio.Task[Exception | None]] = set()

    async def resolve_addresses(self, host: str, port: int) -> list[str]:
        """Return at least one address, unreachable ones last.

        Raises ``OSError`` or ``ValueError``.
        """
        with suppress(ValueError):
            ipaddress.ip_address(host)
            return [host]
        if host not in self._entries and len(self._entries) >= MAX_NAMES:
            self._entries.clear()
        entry = self._entries.setdefault(host, DnsEntry())
        if self._now() >= entry.expires_at:
            if entry.lookup is None:
                entry.overdue_at = self._now() + self._overdue_s
                look_up = self._look_up(entry, host, port)
                entry.lookup = asyncio.get_running_loop().create_task(look_up)
                self._lookups.add(entry.lookup)
                entry.lookup.add_done_callback(self._lookups.discard)
            lookup = entry.lookup
            if entry.addresses:
                await asyncio.wait({lookup}, timeout=max(0.0, entry.overdue_at - self._now()))
            if not entry.addresses:
                await asyncio.wait({lookup})
                if lookup.cancelled():
                    raise OSError("closed")
                if (error := lookup.result()) is not None:
                    raise error
        return entry.addresses[:MAX_ADDRESSES]

    async def _look_up(self, entry: DnsEntry, host: str, port: int) -> Exception | None:
        """Store the addresses of a name, also if no call waits for them any more."""
        look_up = partial(self._getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            async with self._slots:
                infos = await _run_in_daemon_thread(look_up)
        except (OSError, ValueError, OverflowError) as error:
            if isinstance(error, OSError) and error.errno in _UNKNOWN_NAME:
                entry.addresses = []
            entry.expires_at = self._now() + NAME_RETRY_S if entry.addresses else 0.0
            return error
        else:
            entry.addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
            entry.expires_at = self._now() + NAME_TTL_S
            return None
        finally:
            entry.lookup = None

    def cancel_lookups(self) -> None:
        for lookup in self._lookups:
            lookup.cancel()

    def demote_address(self, host: str, address: str) -> None:
        """Try an unreachable address last from now on."""
        entry = self._entries.get(host)
        if entry is not None and address in entry.addresses:
            entry.addresses = [*(a for a in entry.addresses if a != address), address]


def _run_in_daemon_thread(look_up: Callable[[], list[Any]]) -> asyncio.Future[list[Any]]:
    """Run a lookup in a thread that does not keep the process alive."""
    result: Future[list[Any]] = Future()
    result.set_running_or_notify_cancel()  # from now on, only the thread completes it

    def run() -> None:
        try:
            result.set_result(look_up())
        except Exception as error:  # noqa: BLE001  # raised by the task that waits
            result.set_exception(error)

    try:
        threading.Thread(target=run, daemon=True).start()
    except RuntimeError:
        raise OSError("no thread can be started for the DNS lookup") from None
    return asyncio.wrap_future(result)


class Origin(NamedTuple):
    """Scheme, host and port. Requests to the same origin share connections."""

    host: str
    port: int
    tls: bool


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
    """Opens connections. Without a TLS context, loads the system's in a thread: it takes 25 ms."""

    def __init__(self, context: ssl.SSLContext | None, names: DnsCache) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._names = names

    async def load_context(self) -> ssl.SSLContext:
        async with self._lock:
            if self._context is None:
                self._context = await asyncio.to_thread(load_system_context)
            return self._context

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
        context = await self.load_context() if tls else None
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
