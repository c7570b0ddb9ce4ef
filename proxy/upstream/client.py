"""HTTP client for upstreams, with one connection pool.

Follows no redirects, keeps no cookies, ignores proxy settings of the environment, and requests no
compression. It repeats no request: callers handle ``StaleConnection``.
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
from proxy.upstream.reply import OnData, do_nothing
from proxy.upstream.wire.connection import Connection
from proxy.upstream.wire.dialing import Dialer, GetAddrInfo, NameCache, Origin, Resolver, Trust
from proxy.upstream.wire.pool import LINGER_S, Pool

if TYPE_CHECKING:
    from proxy.types.passthrough import BoundedUpload

MAX_URLS = 1024
BODY_OPTIONAL = frozenset({"DELETE", "GET"})


class RequestTarget(NamedTuple):
    """Origin, request line and ``host`` header of a URL."""

    origin: Origin
    line: str
    host: str


def parse_url(url: str, method: str = "POST") -> RequestTarget:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    default_port = 443 if tls else 80
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.removesuffix(f":{default_port}")
    origin = Origin(parts.hostname or "", parts.port or default_port, tls)
    return RequestTarget(origin, f"{method} {path} HTTP/1.1\r\n", host)


def write_head(target: RequestTarget, headers: Mapping[str, str]) -> bytes:
    """Write the head of a request without its framing header.

    Raises ``UpstreamUnavailable`` if a header contains a line break, NUL or non-ASCII characters.
    """
    host = "" if "host" in headers else f"host: {target.host}\r\n"
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    text = f"{target.line}{host}{fields}"
    lines = len(headers) + (2 if host else 1)
    if text.count("\r") != lines or text.count("\n") != lines or "\0" in text or not text.isascii():
        raise UpstreamUnavailable("A header for the upstream has control or non-ASCII characters.")
    return text.encode("ascii")


def _framing(method: str, length: int | None) -> bytes:
    """Return the framing header and the end of a head. ``length`` is None for a chunked body."""
    if length is None:
        return b"transfer-encoding: chunked\r\n\r\n"
    if not length and method in BODY_OPTIONAL:
        return b"\r\n"
    return b"content-length: %d\r\n\r\n" % length


@dataclass(slots=True)
class HttpReply:
    """A ``Reply``. Closing it before its end makes the upstream stop working on it."""

    status: int
    headers: Mapping[str, str]
    _timeouts: Timeouts
    _pool: Pool
    _origin: Origin
    _connection: Connection | None

    def read(self, on_data: OnData | None = None) -> Awaitable[bytes | None]:
        connection, timeouts = self._connection, self._timeouts
        if connection is None:  # another request may use the connection
            raise RuntimeError("the response was already released")
        return connection.read(timeouts.first_byte, timeouts.idle, on_data)

    async def body(self, limit: int) -> bytes:
        body = bytearray()
        while len(body) < limit and (piece := await self.read()):
            body += piece
        return bytes(body[:limit])

    def finish(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.finish(self._origin, connection)

    def leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(self._origin, connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.leave()


class HttpClient:
    """An ``Http``. Enter it before use; leaving closes all connections.

    ``trust`` is the TLS context (the system's if None). ``connections`` bounds the pool over all
    upstreams. ``linger_s`` is the wait for the end of a response after its last frame.
    """

    def __init__(
        self,
        trust: ssl.SSLContext | None,
        connections: int = 1000,
        getaddrinfo: GetAddrInfo = socket.getaddrinfo,
        linger_s: float = LINGER_S,
    ) -> None:
        self._linger_s = linger_s
        self._connections = connections
        self._trust = Trust(trust)
        self._getaddrinfo = getaddrinfo
        self._targets: dict[str, RequestTarget] = {}

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._now = loop.time
        names = NameCache(Resolver(self._getaddrinfo), loop.time)
        dialer = Dialer(self._trust, names)
        self._pool = Pool(dialer, self._connections, linger_s=self._linger_s)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._pool.close()
        await asyncio.sleep(0)  # the loop closes sockets in its next iteration

    async def prepare(self) -> None:
        """Load the TLS certificates."""
        await self._trust.context()

    @property
    def open(self) -> int:
        """Number of connections, in use or idle."""
        return self._pool.in_use + self._pool.idle

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a connection."""
        return self._pool.waiting

    async def post(  # noqa: PLR0913  # a request, and how it is sent
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | BoundedUpload,
        timeouts: Timeouts,
        on_sent: Callable[[], None] = do_nothing,
        *,
        fresh: bool = False,
        method: str = "POST",
    ) -> HttpReply:
        upload: BoundedUpload | None = None
        if not isinstance(body, bytes):
            upload, body, fresh = body, b"", True
        target = self._target(url, method)
        length = len(body) if upload is None else upload.upload.length
        request, origin = write_head(target, headers) + _framing(method, length), target.origin
        deadline = self._now() + timeouts.total
        connection = None if fresh else self._pool.try_take_idle(origin)
        if connection is None:
            connection = await self._connect(origin, timeouts, deadline, fresh=fresh)
        try:
            connection.send(request, body, deadline, on_sent if upload is None else do_nothing)
            if upload is not None:
                from proxy.upstream.wire.uploads import send_upload  # noqa: PLC0415  # few calls

                await send_upload(connection.write, upload, timeouts.idle, deadline, on_sent)
            head = await connection.head(timeouts.first_byte)
        except BaseException as error:
            was_stale = isinstance(error, UpstreamUnavailable) and connection.was_stale
            self._pool.give_back(origin, connection)
            if was_stale and isinstance(error, UpstreamUnavailable):
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

    def _target(self, url: str, method: str) -> RequestTarget:
        """Parse a URL. Those of other methods name one object and are not cached."""
        if method != "POST":
            return parse_url(url, method)
        if url not in self._targets:
            if len(self._targets) >= MAX_URLS:
                self._targets.clear()
            self._targets[url] = parse_url(url)
        return self._targets[url]

    async def _connect(
        self, origin: Origin, timeouts: Timeouts, deadline: float, *, fresh: bool
    ) -> Connection:
        remaining_s = deadline - self._now()
        try:
            return await self._pool.take(origin, min(timeouts.connect, remaining_s), fresh=fresh)
        except UpstreamTimeout as timeout:
            if remaining_s < timeouts.connect:
                raise UpstreamTimeout("total").caused(timeout.cause, timeout.system_text) from None
            raise
