"""Requests as the server has them, and the short way of those that come in the plainest form of
HTTP/1.1: whole, in one read, with nothing in them that two readers could take otherwise.

What is odd in any way goes the long way, through aiohttp's parser, which decides then.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, cast

from aiohttp import HttpVersion11, web
from aiohttp.http import RawRequestMessage, StreamWriter
from aiohttp.streams import StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from proxy.dialects import PLAIN_ROUTES

MOST_HEAD = 4 * 1024
MOST_FIELDS = 64
HIGH_WATER = 64 * 1024
LINES = {
    f"POST {path} HTTP/1.1\r\n": path
    for verb, path in PLAIN_ROUTES
    if verb == "POST" and path.isascii()
}
_FIELD = re.compile(
    r"^([!#$%&'*+\-.^_`|~0-9A-Za-z]++): ([\x21-\x7e]++(?: [\x21-\x7e]++)*+)\r\n", re.MULTILINE
)
_ODD = frozenset(
    {"content-encoding", "expect", "http2-settings", "keep-alive", "proxy-connection", "te"}
    | {"trailer", "transfer-encoding", "upgrade"}
)
"""What says something of the connection, or of how the body is written. So does ``connection``,
unless it says what holds without it."""
KEPT = "keep-alive"


class Unframed(Exception):
    """The framing of a body is broken, or is more than a body needs: where it ends nobody knows."""


class Draining(Protocol):
    """A server that may be about to stop: each connection ends with the answer it carries then."""

    draining: bool


class Request(web.BaseRequest):
    """A request whose connection ends with its answer once its server is to stop, or once nobody
    knows where the next one begins. A chunked one may bring trailers, of which aiohttp's parser
    makes a header of the next request, maybe another client's; behind one that asks for another
    protocol the parser drops what has come with it: there is no next one."""

    server: Draining
    is_unsupported = False  # a version of HTTP that is not spoken here

    @property
    def keep_alive(self) -> bool:
        message = self._message
        if message.should_close or message.chunked or message.upgrade or self.server.draining:
            return False
        return not isinstance(self._payload.exception(), Unframed)


class PlainRequest(Request):
    """A request that came in the plainest form: ``fields`` are its headers by lower-case name,
    ``whole`` is its body. All that aiohttp knows of a request besides is made for who asks."""

    def __init__(
        self, protocol: web.RequestHandler, target: str, fields: dict[str, str], whole: bytes
    ) -> None:
        self.target = target
        self.fields = fields
        self.whole = whole
        self._protocol = protocol
        self._method = "POST"
        self._version = HttpVersion11
        self._cache = {}

    @property
    def keep_alive(self) -> bool:
        return not self.server.draining

    def _cancel(self, exc: BaseException) -> None:
        """Nobody waits for the body: it is here."""

    def __getattr__(self, name: str) -> Any:
        if "_message" in self.__dict__:
            raise AttributeError(name)
        protocol, loop = self._protocol, self._protocol._loop
        message = RawRequestMessage(
            method=self._method,
            path=self.target,
            version=self._version,
            headers=CIMultiDictProxy(CIMultiDict(self.fields)),
            raw_headers=tuple((k.encode(), v.encode()) for k, v in self.fields.items()),
            should_close=False,
            compression=None,
            upgrade=False,
            chunked=False,
            url=URL.build(path=self.target, encoded=True),
        )
        payload = StreamReader(protocol, HIGH_WATER, loop=loop)
        payload.feed_data(self.whole)
        payload.feed_eof()
        writer = StreamWriter(protocol, loop)
        super().__init__(message, payload, protocol, writer, cast("Any", None), loop)
        return getattr(self, name)


def plain_request(
    data: bytes, protocol: web.RequestHandler, server: Draining
) -> PlainRequest | None:
    """Return the request that some bytes are, from their first to their last. None for a part of
    one, for more than one, and for one that is odd in any way."""
    end = data.find(b"\r\n\r\n", 0, MOST_HEAD)
    raw = data[: end + 2]
    if end < 0 or not raw.isascii():
        return None
    head = raw.decode("ascii")
    begin = head.find("\n") + 1
    target = LINES.get(head[:begin])
    if target is None:
        return None
    found = _FIELD.findall(head, begin)
    count = len(found)
    # A match begins at a line's begin and ends at its end: as many as lines means every line.
    if count != head.count("\n", begin) or not 0 < count <= MOST_FIELDS:
        return None
    names, values = zip(*found, strict=True)
    fields = dict(zip("\n".join(names).lower().split("\n"), values, strict=True))
    if len(fields) < count or "host" not in fields or not _ODD.isdisjoint(fields):
        return None
    whole = data[end + 4 :]
    if fields.get("content-length") != str(len(whole)):
        return None
    if fields.get("connection", KEPT).lower() != KEPT:
        return None
    request = PlainRequest(protocol, target, fields, whole)
    request.server = server
    return request
