"""HTTP client for upstreams, and its pool of connections: bounded, with idle ones for reuse.

Follows no redirects, keeps no cookies, ignores proxy settings of the environment, and requests no
compression. It repeats no request: callers handle ``StaleConnection``.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import urlsplit

from proxy.errors import StaleConnection, UpstreamTimeout, UpstreamUnavailable
from proxy.runtime.fair_queue import FairSemaphore
from proxy.types import Timeouts
from proxy.upstream.reply import OnData, do_nothing
from proxy.upstream.wire.connection import Connection
from proxy.upstream.wire.dialing import Dialer, DnsCache, GetAddrInfo, Origin

if TYPE_CHECKING:
    from proxy.types.passthrough import BoundedUpload

MAX_URLS = 1024
KEEPALIVE_S = 60.0
LINGER_S = 0.5
BODY_OPTIONAL = frozenset({"DELETE", "GET"})


class RequestTarget(NamedTuple):
    """Origin, request line and ``host`` header of a URL."""

    origin: Origin
    line: str
    host: str


def build_request_target(url: str, method: str = "POST") -> RequestTarget:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    default_port = 443 if tls else 80
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.removesuffix(f":{default_port}")
    origin = Origin(parts.hostname or "", parts.port or default_port, tls)
    return RequestTarget(origin, f"{method} {path} HTTP/1.1\r\n", host)


def encode_head_without_framing(target: RequestTarget, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request as bytes, without its framing header.

    Raises ``UpstreamUnavailable`` if a header contains a line break, NUL or non-ASCII characters.
    """
    host = "" if "host" in headers else f"host: {target.host}\r\n"
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    text = f"{target.line}{host}{fields}"
    lines = len(headers) + (2 if host else 1)
    if text.count("\r") != lines or text.count("\n") != lines or "\0" in text or not text.isascii():
        raise UpstreamUnavailable("A header for the upstream has control or non-ASCII characters.")
    return text.encode("ascii")


def _encode_framing_and_end(method: str, length: int | None) -> bytes:
    """Return the framing header and the end of a head. ``length`` is None for a chunked body."""
    if length is None:
        return b"transfer-encoding: chunked\r\n\r\n"
    if not length and method in BODY_OPTIONAL:
        return b"\r\n"
    return b"content-length: %d\r\n\r\n" % length


class PoolExhausted(UpstreamTimeout):
    """All connections stayed in use until the timeout. The upstream is not at fault."""

    cause = "pool"

    def __init__(self) -> None:
        super().__init__("connect")


class Pool:
    """Lends each connection to one request at a time.

    At most ``max_connections`` are in use, being opened or idle, over all origins. Further
    requests wait in order of arrival. After the last frame of a response, its connection stays in
    use for up to ``linger_s`` until the body ends, so that it can be reused.
    """

    def __init__(
        self,
        dialer: Dialer,
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
    def in_use(self) -> int:
        return len(self._in_use)

    @property
    def idle(self) -> int:
        return sum(map(len, self._idle.values()))

    def try_take_idle(self, origin: Origin) -> Connection | None:
        """Return the most recently used idle connection, None if there is none."""
        idle = self._idle.get(origin)
        if not idle or not self._slots.try_take():
            return None
        connection = self._pop_ready(idle)
        if connection is None:
            self._slots.release(self)
        else:
            self._in_use[connection] = None
        return connection

    async def take(
        self, origin: Origin, timeout_s: float, *, new_connection: bool = False
    ) -> Connection:
        """Return an idle connection, or a new one if none is idle or ``new_connection`` is True.

        Raises ``UpstreamError``, or ``PoolExhausted`` if no slot becomes free.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        if not self._slots.try_take():
            await self._wait_for_slot(deadline)
        try:
            connection = None if new_connection else self._pop_ready(self._idle.get(origin))
            if connection is None:
                connection = await self._open_connection(origin, deadline)
        except BaseException:
            self._slots.release(self)
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

    async def _open_connection(self, origin: Origin, deadline: float) -> Connection:
        if self._is_closed:
            message = "The proxy is shutting down and has closed its connections."
            raise UpstreamUnavailable(message).set_cause("local")
        if len(self._in_use) + self._dialing + self.idle >= self._max_connections:
            self._close_one_idle()
        self._dialing += 1
        try:
            timeout_s = deadline - asyncio.get_running_loop().time()
            return await self._dialer.dial(origin, timeout_s, partial(self._drop_from_idle, origin))
        finally:
            self._dialing -= 1

    def _close_one_idle(self) -> None:
        for idle in self._idle.values():
            if idle:
                idle.pop(0).abort()
                return

    def return_when_complete(self, origin: Origin, connection: Connection) -> None:
        """Return a connection to the pool once the body ends, at the latest after ``linger_s``."""
        if connection in self._in_use and not connection.is_response_complete:
            on_end = partial(self.return_connection, origin, connection)
            connection.watch_for_end(self._linger_s, on_end)
        else:
            self.return_connection(origin, connection)

    def return_connection(self, origin: Origin, connection: Connection) -> None:
        """Return a connection to the pool, or close it if it cannot be reused."""
        if connection not in self._in_use:
            return
        del self._in_use[connection]
        if self._is_closed or not connection.release(self._keepalive_s):
            connection.abort()
        else:
            self._idle.setdefault(origin, []).append(connection)
        self._slots.release(self)

    def _drop_from_idle(self, origin: Origin, connection: Connection) -> None:
        """Drop an idle connection that has ended. A connection in use is not in the pool."""
        idle = self._idle.get(origin)
        if idle is not None:
            if connection in idle:
                idle.remove(connection)
            if not idle:
                del self._idle[origin]

    def abort_all(self) -> None:
        """Close all connections, idle or in use."""
        self._is_closed = True
        for connection in chain(*self._idle.values(), self._in_use):
            connection.abort()


@dataclass(slots=True)
class HttpReply:
    """A ``Reply``. A release before the end of the body makes the upstream stop its work."""

    status: int
    headers: Mapping[str, str]
    timeouts: Timeouts
    pool: Pool
    origin: Origin
    connection: Connection | None

    def read(self, on_data: OnData | None = None) -> Awaitable[bytes | None]:
        connection, timeouts = self.connection, self.timeouts
        if connection is None:  # another request may use the connection
            raise RuntimeError("the response was already released")
        return connection.read(timeouts.first_byte, timeouts.idle, on_data)

    def release_after_last_frame(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            self.pool.return_when_complete(self.origin, connection)

    def release(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            self.pool.return_connection(self.origin, connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.release()


class HttpClient:
    """An ``Http``. Enter it before use; leaving closes all connections.

    - ``trust``: the TLS context, None for the system's.
    - ``connections``: maximum connections over all upstreams.
    - ``linger_s``: maximum wait for the end of a body after the last frame.
    """

    def __init__(
        self,
        trust: ssl.SSLContext | None,
        connections: int = 1000,
        getaddrinfo: GetAddrInfo = socket.getaddrinfo,
        linger_s: float = LINGER_S,
    ) -> None:
        self._names = DnsCache(getaddrinfo)
        self._dialer = Dialer(trust, self._names)
        self.pool = Pool(self._dialer, connections, linger_s=linger_s)
        self._targets: dict[str, RequestTarget] = {}

    async def __aenter__(self) -> Self:
        self._now = asyncio.get_running_loop().time
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._names.cancel_lookups()
        self.pool.abort_all()
        await asyncio.sleep(0)  # the loop closes sockets in its next iteration

    async def load_certificates(self) -> None:
        await self._dialer.load_context()

    async def request(  # noqa: PLR0913  # a request, and how it is sent
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | BoundedUpload,
        timeouts: Timeouts,
        on_sent: Callable[[], None] = do_nothing,
        *,
        new_connection: bool = False,
        method: str = "POST",
    ) -> HttpReply:
        upload: BoundedUpload | None = None
        if not isinstance(body, bytes):
            upload, body, new_connection = body, b"", True
        target = self._get_request_target(url, method)
        length = len(body) if upload is None else upload.upload.length
        origin = target.origin
        request = encode_head_without_framing(target, headers)
        request += _encode_framing_and_end(method, length)
        deadline = self._now() + timeouts.total
        connection = None if new_connection else self.pool.try_take_idle(origin)
        if connection is None:
            connection = await self._connect(origin, timeouts, deadline, is_new=new_connection)
        try:
            connection.send(request, body, deadline, on_sent if upload is None else do_nothing)
            if upload is not None:
                from proxy.upstream.wire.uploads import send_upload  # noqa: PLC0415  # few calls

                await send_upload(connection.write, upload, timeouts.idle, deadline, on_sent)
            head = await connection.read_head(timeouts.first_byte)
        except BaseException as error:
            was_stale = isinstance(error, UpstreamUnavailable) and connection.was_stale
            self.pool.return_connection(origin, connection)
            if was_stale and isinstance(error, UpstreamUnavailable):
                raise StaleConnection().set_cause(error.cause, error.system_text) from None
            raise
        return HttpReply(
            head.status,
            head.headers,
            timeouts,
            pool=self.pool,
            origin=origin,
            connection=connection,
        )

    def _get_request_target(self, url: str, method: str) -> RequestTarget:
        """Parse a URL. Only URLs of POST requests are cached: others contain ids of objects."""
        if method != "POST":
            return build_request_target(url, method)
        if url not in self._targets:
            if len(self._targets) >= MAX_URLS:
                self._targets.clear()
            self._targets[url] = build_request_target(url)
        return self._targets[url]

    async def _connect(
        self, origin: Origin, timeouts: Timeouts, deadline: float, *, is_new: bool
    ) -> Connection:
        remaining_s = deadline - self._now()
        connect_s = min(timeouts.connect, remaining_s)
        try:
            return await self.pool.take(origin, connect_s, new_connection=is_new)
        except UpstreamTimeout as timeout:
            if connect_s == timeouts.connect:
                raise
            total = UpstreamTimeout("total")
            raise total.set_cause(timeout.cause, timeout.system_text) from None
