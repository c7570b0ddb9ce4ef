"""The wall towards upstreams: one request, one reply, every fault in our own words.

No redirects, no cookies, no proxy settings from the environment, no compressed answers. Nothing is
sent twice here: who asks is told where a connection at rest turned out to be closed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import urlsplit

from proxy.errors import StaleConnection, UpstreamTimeout, UpstreamUnavailable
from proxy.types import Timeouts
from proxy.upstream.reply import Take, nothing
from proxy.upstream.wire.connection import Connection
from proxy.upstream.wire.dialing import Dialer, Origin, Trust
from proxy.upstream.wire.names import LookUp, Names, Resolver
from proxy.upstream.wire.pool import LINGER_S, Pool

if TYPE_CHECKING:
    from proxy.types.passthrough import BoundedUpload

MAX_PLACES = 1024
MAYBE_EMPTY = frozenset({"DELETE", "GET"})


class RequestTarget(NamedTuple):
    """Where a URL leads: whom to connect to, the request line, and the host's own name."""

    origin: Origin
    line: str
    host: str


def place_of(url: str, method: str = "POST") -> RequestTarget:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    usual = 443 if tls else 80
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.removesuffix(f":{usual}")
    origin = Origin(parts.hostname or "", parts.port or usual, tls)
    return RequestTarget(origin, f"{method} {target} HTTP/1.1\r\n", host)


def written(place: RequestTarget, headers: Mapping[str, str]) -> bytes:
    """Write the head of a request, but for its length, which is its last field.

    Raises ``UpstreamUnavailable`` when a header could be read as more than one.
    """
    own = "" if "host" in headers else f"host: {place.host}\r\n"
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    text = f"{place.line}{own}{fields}"
    lines = len(headers) + (2 if own else 1)
    if text.count("\r") != lines or text.count("\n") != lines or "\0" in text or not text.isascii():
        raise UpstreamUnavailable("A header for the upstream has control or non-ASCII characters.")
    return text.encode("ascii")


def _framing(method: str, length: int | None) -> bytes:
    """Return the last field of a head, which says where a body of so many bytes ends, or one of
    chunks where that is None; a request by ``GET`` has none."""
    if length is None:
        return b"transfer-encoding: chunked\r\n\r\n"
    if not length and method in MAYBE_EMPTY:
        return b"\r\n"
    return b"content-length: %d\r\n\r\n" % length


def _framed(
    url: str, headers: Mapping[str, str], body: bytes, upload: BoundedUpload | None, method: str
) -> tuple[bytes, Origin]:
    """Return the head of a request that is about one thing, so that where it leads is not kept."""
    target = place_of(url, method)
    length = len(body) if upload is None else upload.upload.length
    return written(target, headers) + _framing(method, length), target.origin


@dataclass(slots=True)
class KnownPlace:
    """Where a URL leads, and the head of the last request to it: the next is mostly the same."""

    target: RequestTarget
    headers: Mapping[str, str] | None = None
    head: bytes = b""

    def written(self, headers: Mapping[str, str], length: int) -> bytes:
        """Write the head of a request of so many bytes. Raises ``UpstreamUnavailable``."""
        if self.headers != headers:
            self.head = written(self.target, headers)
            self.headers = dict(headers)
        return b"%bcontent-length: %d\r\n\r\n" % (self.head, length)


@dataclass(slots=True)
class HttpReply:
    """An upstream's response whose head is there. Entering owns it; leaving closes it.

    A reply that has come to its end gives its connection back to the pool; any other is cut, so
    that an upstream stops working for a client that has left.
    """

    status: int
    headers: Mapping[str, str]
    _timeouts: Timeouts
    _pool: Pool
    _origin: Origin
    _connection: Connection | None

    def read(self, take: Take | None = None) -> Awaitable[bytes]:
        """Return the next bytes of the body, none at its end. Raises ``UpstreamError``."""
        connection, timeouts = self._connection, self._timeouts
        if connection is None:  # it may be carrying the answer to somebody else by now
            raise RuntimeError("a reply that was left cannot be read")
        return connection.read(timeouts.first_byte, timeouts.idle, take)

    async def body(self, limit: int) -> bytes:
        """Return the whole body, cut at ``limit`` bytes."""
        whole = bytearray()
        while len(whole) < limit and (piece := await self.read()):
            whole += piece
        return bytes(whole[:limit])

    def finish(self) -> None:
        """Leave a reply whose answer is finished, without waiting for the end that follows it. The
        connection can be used again once that is there; what comes instead is not read."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.finish(self._origin, connection)

    def leave(self) -> None:
        """Return the connection to the pool, which cuts it if the reply has not come to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(self._origin, connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.leave()


class HttpClient:
    """One pool of connections for the whole process; enter it before use, leave it to close all.

    ``trust`` says whose certificates are believed, the system's where it is None; ``connections``
    bounds the pool over all upstreams; ``look_up`` asks the system for names; ``linger_s`` is how
    long a connection is kept for the end of an answer that is finished.
    """

    def __init__(
        self,
        trust: ssl.SSLContext | None,
        connections: int = 1000,
        look_up: LookUp = socket.getaddrinfo,
        linger_s: float = LINGER_S,
    ) -> None:
        self._linger_s = linger_s
        self._connections = connections
        self._trust = Trust(trust)
        self._look_up = look_up
        self._places: dict[str, KnownPlace] = {}

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._now = loop.time
        names = Names(Resolver(self._look_up), loop.time)
        dialer = Dialer(self._trust, names)
        self._pool = Pool(dialer, self._connections, linger_s=self._linger_s)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._pool.close()
        await asyncio.sleep(0)  # the loop closes sockets in its next round

    async def prepare(self) -> None:
        """Read in a thread what the first connection over TLS asks for."""
        await self._trust.context()

    @property
    def open(self) -> int:
        """How many connections there are, at work or at rest."""
        return self._pool.lent + self._pool.resting

    @property
    def waiting(self) -> int:
        """How many requests wait for a connection, as all that may be open are in use."""
        return self._pool.waiting

    async def post(  # noqa: PLR0913  # a request, and how it is sent
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | BoundedUpload,
        timeouts: Timeouts,
        on_sent: Callable[[], None] = nothing,
        *,
        fresh: bool = False,
        method: str = "POST",
    ) -> HttpReply:
        """Send a request, return the reply once its head is there. Raises ``UpstreamError``, and
        ``Refused`` where an upload does. An upload has a connection of its own, and is sent as it
        comes, as fast as the upstream takes it."""
        upload: BoundedUpload | None = None
        if not isinstance(body, bytes):
            upload, body, fresh = body, b"", True
        if upload is None and method == "POST":
            place = self._places[url] if url in self._places else self._place(url)
            request, origin = place.written(headers, len(body)), place.target.origin
        else:
            request, origin = _framed(url, headers, body, upload, method)
        until = self._now() + timeouts.total
        connection = None if fresh else self._pool.take_rested(origin)
        if connection is None:
            connection = await self._connected(origin, timeouts, until, fresh=fresh)
        try:
            connection.send(request, body, until, on_sent if upload is None else nothing)
            if upload is not None:
                await _send_upload(connection, upload, timeouts.idle, until, on_sent)
            head = await connection.head(timeouts.first_byte)
        except BaseException as error:
            stale = isinstance(error, UpstreamUnavailable) and connection.was_stale
            self._pool.give_back(origin, connection)
            if stale and isinstance(error, UpstreamUnavailable):
                raise StaleConnection().caused(error.cause, error.system_text) from None
            raise
        return HttpReply(
            status=head.status,
            headers=head.headers,
            _timeouts=timeouts,
            _pool=self._pool,
            _origin=origin,
            _connection=connection,
        )

    def _place(self, url: str) -> KnownPlace:
        place = KnownPlace(place_of(url))
        if len(self._places) >= MAX_PLACES:
            self._places.clear()
        self._places[url] = place
        return place

    async def _connected(
        self, origin: Origin, timeouts: Timeouts, until: float, *, fresh: bool
    ) -> Connection:
        left = until - self._now()
        try:
            return await self._pool.take(origin, min(timeouts.connect, left), fresh=fresh)
        except UpstreamTimeout as late:
            if left < timeouts.connect:
                raise UpstreamTimeout("total").caused(late.cause, late.system_text) from None
            raise


async def _send_upload(
    connection: Connection,
    body: BoundedUpload,
    idle: float,
    until: float,
    on_sent: Callable[[], None],
) -> None:
    from proxy.upstream.wire.sending import Sending  # noqa: PLC0415  # few calls are such

    sending = Sending(connection=connection, most_bytes=body.most_bytes, idle=idle, until=until)
    await sending.run(body.upload, on_sent)
