"""Reads requests: merges headers, and reads the body within bounds of size, memory and time.

Large JSON bodies are parsed in a thread, one at a time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, TypeVar

from aiohttp import HttpVersion11, web
from multidict import CIMultiDictProxy

from proxy.dialects import HEADER_PREFIXES, ONLY_DIALECT_OF_PATH
from proxy.dialects.request_headers import GEMINI_KEY, make_header_error
from proxy.dialects.vendors.other_gateways import HEADER_MEANINGS
from proxy.dialects.wire.strict_json import count_body_values, read_json
from proxy.errors import BadRequest, Overloaded, RequestTimeout, RequestTooLarge, wire
from proxy.errors.field_problems import describe_large_body
from proxy.runtime.fair_queue import LARGE_BYTES, Offload
from proxy.runtime.frozen import frozen
from proxy.server.server import CHUNKED, InvalidFraming, Request
from proxy.settings import KEY_SHARE
from proxy.types import Json

MAX_MEMORY_BYTES = 256 * 1024 * 1024


class BodyMemory:
    """Counts the memory of all bodies in progress, raw and parsed, until their calls end.

    One caller may use at most half, so that others are still served.
    """

    def __init__(self, max_bytes: int = MAX_MEMORY_BYTES, resource: str = "requests") -> None:
        self.max_bytes = max_bytes
        self.resource = resource
        self.max_bytes_per_caller = max_bytes // KEY_SHARE
        self.used_bytes = 0
        self.bytes_by_caller: dict[object, int] = {}


class BodyShare:
    """Bytes of one call's body, raw and parsed. ``caller`` is set before the first byte."""

    __slots__ = ("_bodies", "_size", "caller")

    def __init__(self, bodies: BodyMemory, caller: object = None) -> None:
        self._bodies = bodies
        self.caller = caller
        self._size = 0

    def take(self, size: int) -> None:
        """Charge received bytes to the caller. Raises ``Overloaded``."""
        bodies, caller = self._bodies, self.caller
        bytes_by_caller = bodies.bytes_by_caller
        total = bodies.used_bytes + size
        of_caller = bytes_by_caller[caller] + size if caller in bytes_by_caller else size
        if total > bodies.max_bytes or of_caller > bodies.max_bytes_per_caller:
            raise Overloaded(bodies.resource)
        bodies.used_bytes, bytes_by_caller[caller] = total, of_caller
        self._size += size

    def add_parsed(self, size: int) -> None:
        """Count the memory of the parsed body. A single body always fits. Raises ``Overloaded``."""
        remaining = self._bodies.max_bytes_per_caller - self._size
        if remaining > 0:
            self.take(size if size < remaining else remaining)

    def release(self) -> None:
        if self._size:
            bodies, caller = self._bodies, self.caller
            bodies.used_bytes -= self._size
            bodies.bytes_by_caller[caller] -= self._size
            if not bodies.bytes_by_caller[caller]:
                del bodies.bytes_by_caller[caller]
            self._size = 0


REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
HOST_PATTERN = re.compile(r"(?:[A-Za-z0-9._~%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
UNIQUE_HEADERS = frozenset(
    {"api-key", "apikey", "authorization", "content-encoding", "content-type", "expect", "host"}
    | {"traceparent", "x-api-key", GEMINI_KEY, "x-request-id", *HEADER_MEANINGS}
)
UNIQUE_HEADER_PREFIXES = ("x-headrace-", *HEADER_PREFIXES)
JSON_TYPE = "application/json"
JSON_PREFIX_BYTES = b" \t\r\n\0\xef\xbb\xbf\xfe\xff"
"""White space and byte order marks that may precede JSON."""
MAX_VALUES = 100_000
VALUE_BYTES = 192  # memory of a parsed value beside its text

T = TypeVar("T")


@frozen
class BodyParser:
    """Parses bodies of at most ``max_values`` JSON values, large ones in a thread.

    ``charge`` gets the estimated memory of the parsed body, in bytes, before it is parsed.
    """

    max_values: int = MAX_VALUES
    offload: Offload = Offload()  # it is frozen

    def parse_small(self, raw: bytes, charge: Callable[[int], None]) -> Json:
        """Parse a small body inline. ``charge`` gets its bytes first. Raises ``BadRequest``."""
        charge(VALUE_BYTES * count_body_values(raw, self.max_values))
        return read_json(raw)

    async def parse(
        self, raw: bytes, build: Callable[[Json], T], caller: object, charge: Callable[[int], None]
    ) -> T:
        """Parse a body and pass it to ``build``. Return the result. Raises ``BadRequest``."""
        if len(raw) <= LARGE_BYTES:
            return build(self.parse_small(raw, charge))
        count = partial(count_body_values, raw, self.max_values)
        charge(VALUE_BYTES * await self.offload.run(len(raw), count, caller))
        return await self.offload.run(len(raw), lambda: build(read_json(raw)), caller)


@frozen
class Bounds:
    """Bounds of requests, in bytes and seconds.

    ``bodies`` counts the memory of all calls. ``body_s`` bounds the arrival of a body, ``stall_s``
    a write to the client, and ``keepalive_s`` the silence of a stream (0: no keepalives).
    """

    body_bytes: int = 16 * 1024 * 1024
    bodies: BodyMemory = field(default_factory=BodyMemory)
    parsing: BodyParser = field(default_factory=BodyParser)
    body_s: float = 30.0
    stall_s: float = 60.0
    keepalive_s: float = 0.0


def parse_raw_path(target: str) -> str:
    """Return the undecoded path of a request target, without the authority of an absolute one."""
    if not target.startswith("/"):
        _, scheme, remainder = target.partition("://")
        target = f"/{remainder.partition('/')[2]}" if scheme else target
    return target.partition("?")[0]


class IncomingRequest:
    """One request. Header names are lower-case; ``path`` and ``query`` are undecoded."""

    __slots__ = (*("_bounds", "_repeated", "_request", "_share", "headers", "path", "query"),)

    def __init__(self, request: web.BaseRequest, bounds: Bounds, share: BodyShare) -> None:
        self._request = request
        self._bounds = bounds
        self._share = share
        self._repeated: str | None = None
        self.query = ""
        target = request.raw_path
        self.path = target
        if target not in ONLY_DIALECT_OF_PATH:
            self.path, self.query = parse_raw_path(target), target.partition("?")[2]
        raw_headers = request.headers
        self.headers = headers = {name.lower(): value for name, value in raw_headers.items()}
        if len(headers) < len(raw_headers):  # a header is repeated
            self._join_headers(raw_headers)

    def _join_headers(self, raw_headers: CIMultiDictProxy[str]) -> None:
        """Join repeated headers where the header allows it."""
        self.headers.clear()
        for written, value in raw_headers.items():
            name = written.lower()
            if name not in self.headers:
                self.headers[name] = value
            elif name in UNIQUE_HEADERS or name.startswith(UNIQUE_HEADER_PREFIXES):
                self._repeated = name
            else:
                self.headers[name] = f"{self.headers[name]}, {value}"

    def read_request_id(self) -> str | None:
        """Return the client's request id if it is valid in headers and logs."""
        client_id = self.headers.get("x-request-id")
        return client_id if client_id and REQUEST_ID.fullmatch(client_id) else None

    def check_version_and_headers(self) -> None:
        """Raise ``RequestError`` for other HTTP versions and repeated unique headers.

        Two parsers could use different values of a repeated header, or frame a body differently.
        """
        headers = self.headers
        if isinstance(self._request, Request) and self._request.is_unsupported:
            raise wire.VersionNotSupported
        if self._repeated is not None:
            raise make_header_error(self._repeated, "must not be repeated")
        if "host" in headers and HOST_PATTERN.fullmatch(headers["host"]) is None:
            raise make_header_error("host", "must be a host name with an optional port")
        if "transfer-encoding" in headers:
            if headers["transfer-encoding"].lower() != CHUNKED:
                raise wire.TransferCodingNotSupported
            if self._request.version < HttpVersion11:
                raise make_header_error("transfer-encoding", "is not supported in HTTP/1.0")

    def raise_if_websocket_upgrade(self) -> None:
        """Raise an error with status 426 for a WebSocket, after which clients fall back to HTTP."""
        if "websocket" in map(str.strip, self.headers.get("upgrade", "").lower().split(",")):
            raise wire.WebSocketNotSupported

    def read_length_unless_chunked(self) -> int | None:
        """Return ``Content-Length``, 0 without one, None if the body is chunked."""
        if "transfer-encoding" in self.headers:
            return None
        return int(self.headers.get("content-length", 0))

    async def read_piece(self, *, is_first: bool) -> bytes:
        """Return the next bytes, empty at the end. Raises ``RequestError`` for late or bad ones."""
        expectation = self.headers.get("expect", "").lower() if is_first else ""
        if expectation == "100-continue" and self._request.version >= HttpVersion11:
            await self._send_continue()
        try:
            async with asyncio.timeout(self._bounds.body_s):
                return await self._request.content.readany()
        except TimeoutError:
            raise RequestTimeout from None
        except InvalidFraming:
            raise BadRequest("The request body has invalid HTTP framing.") from None

    async def read_body(self) -> bytes:
        """Return the body. Raises ``RequestError`` if it is too large, late or not plain JSON.

        A body that arrived together with its head, the usual case, needs no timer.
        """
        self._check_body_headers()
        content = self._request.content
        if content.is_eof() and content.exception() is None and "expect" not in self.headers:
            return self._charge_piece(content.read_nowait())
        body = bytearray()
        try:
            async with asyncio.timeout(self._bounds.body_s):
                while piece := await self.read_piece(is_first=not body):
                    body += self._charge_piece(piece, len(body))
        except TimeoutError:
            raise RequestTimeout from None
        return bytes(body)

    def _charge_piece(self, piece: bytes, received: int = 0) -> bytes:
        if received + len(piece) > self._bounds.body_bytes:
            raise self._make_too_large_error()
        self._share.take(len(piece))
        return piece

    def _check_body_headers(self) -> None:
        headers = self.headers
        kind = headers.get("content-type", JSON_TYPE)
        if kind != JSON_TYPE and kind.partition(";")[0].strip().lower() != JSON_TYPE:
            raise wire.UnsupportedMedia(f"The content type must be {JSON_TYPE}.")
        if "content-encoding" in headers:
            self.check_encoding()
        if "content-length" in headers and int(headers["content-length"]) > self._bounds.body_bytes:
            raise self._make_too_large_error()

    def check_encoding(self) -> None:
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise wire.UnsupportedMedia("The request body must not be compressed.")

    def _make_too_large_error(self) -> RequestTooLarge:
        return RequestTooLarge(describe_large_body(self._bounds.body_bytes))

    async def _send_continue(self) -> None:
        writer: Any = self._request.writer
        await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.output_size = 0  # the interim response does not count as response output


class RequestUpload:
    """A request body as a stream. Backpressure reaches the client's connection.

    JSON objects and arrays are refused: the upstream might parse them whatever their content type.
    """

    __slots__ = ("_incoming", "_is_blank", "has_begun", "length")

    def __init__(self, incoming: IncomingRequest, length: int | None) -> None:
        self._incoming = incoming
        self._is_blank = True
        self.length = length
        self.has_begun = False

    async def read_chunk(self) -> bytes:
        is_first, self.has_begun = not self.has_begun, True
        piece = await self._incoming.read_piece(is_first=is_first)
        if self._is_blank and (begin := piece.lstrip(JSON_PREFIX_BYTES)[:1]):
            self._is_blank = False
            if begin in b"{[":
                raise wire.UnsupportedMedia(f"A JSON body must have the content type {JSON_TYPE}.")
        return piece
