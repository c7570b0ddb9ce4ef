"""The wall towards upstreams: aiohttp's client, and every fault it can raise, in our own words.

No redirects, no cookies, no proxy settings from the environment, no compressed answers. A pooled
connection that turns out dead before any byte of an answer is replaced by a fresh one, once.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

from proxy.errors import UpstreamError, UpstreamInvalid, UpstreamTimeout, UpstreamUnavailable
from proxy.types import Timeouts

MAX_LINE_BYTES = 16 * 1024
READ_BYTES = 64 * 1024
LARGE_BYTES = 1024 * 1024  # beyond it aiohttp wants a body that it can send piece by piece
LINGER_S = 0.5
KEEPALIVE_S = 60.0


FAULTS = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


def in_our_words(fault: BaseException, *, before_head: bool) -> UpstreamError:
    """Translate what aiohttp raises; its own messages may hold addresses, ours never do."""
    if isinstance(fault, aiohttp.ConnectionTimeoutError):
        return UpstreamTimeout("connect")
    if isinstance(fault, aiohttp.SocketTimeoutError):
        return UpstreamTimeout("first_byte" if before_head else "idle")
    if isinstance(fault, TimeoutError):
        return UpstreamTimeout("total")
    if isinstance(fault, aiohttp.ClientConnectorCertificateError):
        return UpstreamUnavailable("The upstream's certificate is not valid.")
    if isinstance(fault, aiohttp.ClientConnectorError):
        return UpstreamUnavailable("The upstream cannot be reached.")
    if isinstance(fault, (aiohttp.ClientPayloadError, aiohttp.ClientResponseError, ValueError)):
        return UpstreamInvalid("The upstream broke its answer off or garbled it.")
    return UpstreamUnavailable("The upstream closed the connection.")


@dataclass(slots=True)
class Reply:
    """An upstream's response whose head is there. Entering owns it; leaving closes it.

    A reply that was read to its end gives its connection back to the pool; any other is cut, so
    that an upstream stops working for a client that has left.
    """

    response: aiohttp.ClientResponse
    idle: float
    _begun: bool = False

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self.response.headers

    async def piece(self) -> bytes:
        """Give the next bytes of the body, none at its end. Raises ``UpstreamError``.

        The first byte is waited for as long as the head was; after it silence is bounded by
        ``idle``.
        """
        try:
            piece = await self.response.content.readany()
        except FAULTS as fault:
            raise in_our_words(fault, before_head=not self._begun) from None
        if not self._begun:
            self._begun = True
            self._allow_silence(self.idle)
        return piece

    def _allow_silence(self, seconds: float) -> None:
        connection = self.response.connection
        if connection is not None and connection.protocol is not None:
            connection.protocol.read_timeout = seconds

    async def body(self, limit: int) -> bytes:
        """Give the whole body, cut at ``limit`` bytes."""
        whole = bytearray()
        while len(whole) < limit and (piece := await self.piece()):
            whole += piece
        return bytes(whole[:limit])

    async def finish(self) -> None:
        """Wait a moment for the end that follows a finished answer, so that the connection can
        be used again. What comes instead is not read."""
        self._allow_silence(LINGER_S)
        with suppress(*FAULTS):
            await self.response.content.readany()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.response.content.at_eof():
            self.response.release()
        else:
            self.response.close()


class HttpClient:
    """One pool of connections for the whole process; enter it before use, leave it to close all.

    ``connections`` bounds the pool over all upstreams.
    """

    def __init__(self, connections: int = 1000) -> None:
        self._connections = connections

    async def __aenter__(self) -> Self:
        self._pooled = self._session(pooled=True)
        self._fresh = self._session(pooled=False)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._pooled.close()
        await self._fresh.close()

    def _session(self, pooled: bool) -> aiohttp.ClientSession:
        reuse = aiohttp.TraceConfig()
        reuse.on_connection_reuseconn.append(_note_reuse)
        connector = aiohttp.TCPConnector(
            limit=self._connections,
            ttl_dns_cache=30,
            force_close=not pooled,
            keepalive_timeout=KEEPALIVE_S if pooled else None,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            skip_auto_headers=("user-agent", "accept-encoding"),
            trace_configs=[reuse],
            read_bufsize=READ_BYTES,
        )

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> Reply:
        """Send a request, give the reply once its head is there. Raises ``UpstreamError``."""
        reused = _Reuse()
        try:
            return await self._send(self._pooled, url, headers, body, timeouts, reused)
        except UpstreamUnavailable:
            if not reused.happened:
                raise
        return await self._send(self._fresh, url, headers, body, timeouts, _Reuse())

    async def _send(
        self,
        session: aiohttp.ClientSession,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        timeouts: Timeouts,
        reused: _Reuse,
    ) -> Reply:
        patience = aiohttp.ClientTimeout(
            total=timeouts.total, sock_connect=timeouts.connect, sock_read=timeouts.first_byte
        )
        try:
            response = await session.post(
                URL(url, encoded=True),
                headers=headers,
                data=body if len(body) <= LARGE_BYTES else io.BytesIO(body),
                allow_redirects=False,
                timeout=patience,
                trace_request_ctx=reused,
            )
        except FAULTS as fault:
            raise in_our_words(fault, before_head=True) from None
        return Reply(response, timeouts.idle)


@dataclass(slots=True)
class _Reuse:
    """Whether a request went out on a connection that had served before."""

    happened: bool = False


async def _note_reuse(session: aiohttp.ClientSession, context: object, params: object) -> None:
    reused = getattr(context, "trace_request_ctx", None)
    if isinstance(reused, _Reuse):
        reused.happened = True
