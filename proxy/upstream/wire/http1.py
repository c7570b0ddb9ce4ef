"""Parser of HTTP/1.1 responses: head, then body in each framing, fed in arbitrary pieces.

Follows RFC 9112, sections 4 to 6. Where the standard lets a recipient choose, the parser rejects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from proxy.errors import UpstreamInvalid

MAX_HEAD_BYTES = 64 * 1024
MAX_LINE_BYTES = 16 * 1024
MAX_FIELDS = 256
CLOSED = "The upstream closed the connection."
BROKEN = "The upstream sent an incomplete or malformed response."

_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r\n")
_LENGTH = re.compile("[0-9]{1,18}")
# Possessive, so that a run of spaces is scanned once.
_FIELD = re.compile(
    r"^([!#$%&'*+\-.^_`|~0-9A-Za-z]++):[ \t]*+([\t\x20-\x7e\x80-\xff]*+)\r\n", re.MULTILINE
)
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_AFTER_DATA, _SIZE_LINE, _TRAILERS = range(3)
MAX_INTERIM_RESPONSES = 16
_START, _END = b"HTTP/1.", b"\r\n\r\n"


def make_protocol_error() -> UpstreamInvalid:
    """Return the error for bytes that are not HTTP/1.1."""
    return UpstreamInvalid(BROKEN).set_cause("protocol")


class Http1Head(NamedTuple):
    """Status and headers of a response.

    Header names are lower-case, repeated headers are joined. If ``length`` is None, the body is
    chunked or ends with the connection. ``keeps_alive`` allows another request on the connection.
    """

    status: int
    headers: Mapping[str, str]
    length: int | None
    chunked: bool
    keeps_alive: bool


def parse_head(raw: bytes) -> Http1Head:
    """Parse status line and headers. Raises ``UpstreamInvalid``."""
    text = raw.decode("latin-1")
    status_line = _STATUS.match(text)
    if status_line is None or (start := status_line.end()) > MAX_LINE_BYTES + len("\r\n"):
        raise make_protocol_error()
    status, headers = int(status_line[2]), parse_headers(text, start)
    is_1_1 = keeps_alive = status_line[1] == "1"
    if "connection" in headers:
        options = {option.strip() for option in headers["connection"].lower().split(",")}
        keeps_alive = "close" not in options and (is_1_1 or "keep-alive" in options)
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if status < 200 or status in (204, 304):  # no body, whatever the headers say
        is_bare = length in (None, "0") and coding is None
        if status == 101 or (status < 200 and not is_bare):
            raise make_protocol_error()
        return Http1Head(status, headers, 0, chunked=False, keeps_alive=keeps_alive and is_bare)
    if coding is not None:
        if length is not None or not is_1_1 or coding.lower() != "chunked":
            raise make_protocol_error()
        return Http1Head(status, headers, None, chunked=True, keeps_alive=keeps_alive)
    if length is not None and _LENGTH.fullmatch(length) is None:  # two lengths do not match either
        raise make_protocol_error()
    size = None if length is None else int(length)
    keeps_alive = keeps_alive and size is not None
    return Http1Head(status, headers, size, chunked=False, keeps_alive=keeps_alive)


def parse_headers(text: str, start: int = 0) -> dict[str, str]:
    """Parse all header lines from ``start`` on. Raises ``UpstreamInvalid``."""
    lines = _FIELD.findall(text, start)
    count = len(lines)
    # Each match is a whole line: as many matches as lines means that every line matches.
    if count != text.count("\n", start) or count > MAX_FIELDS:
        raise make_protocol_error()
    is_long = len(text) - start > MAX_LINE_BYTES
    if is_long and max(map(len, text[start:].split("\n"))) > MAX_LINE_BYTES:
        raise make_protocol_error()
    fields = {name.lower(): value for name, value in lines}
    if len(fields) < count or " \r\n" in text or "\t\r\n" in text:
        fields.clear()
        for given_name, given_value in lines:
            name, value = given_name.lower(), given_value.rstrip(" \t")
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


class PlainBodyParser:
    """Parser of a body of ``length`` bytes, or up to the connection's end if it is None.

    ``has_surplus`` is True if bytes followed its end. A truncated body without a length is not
    detected.
    """

    __slots__ = ("_remaining", "has_surplus", "is_complete")

    def __init__(self, length: int | None) -> None:
        self._remaining = length
        self.is_complete = length == 0
        self.has_surplus = False

    def feed(self, data: bytes, pieces: list[bytes]) -> None:
        """Append the bytes of the body to ``pieces``."""
        if self._remaining is not None:
            remaining = self._remaining - len(data)
            if remaining < 0:
                self.has_surplus = True
                data, remaining = data[:remaining], 0
            self._remaining = remaining
            self.is_complete = remaining == 0
        if data:
            pieces.append(data)

    def feed_eof(self) -> bool:
        """Process the end of the connection. Return True if the body is complete."""
        self.is_complete = self.is_complete or self._remaining is None
        return self.is_complete


class ChunkedBodyParser:
    """Parser of a chunked body, otherwise like ``PlainBodyParser``.

    Extensions and trailers are validated, bounded and dropped.
    """

    __slots__ = ("_buffer", "_remaining", "_step", "has_surplus", "is_complete")

    def __init__(self) -> None:
        self._buffer = b""
        self._remaining = 0  # bytes of the current chunk
        self._step = _SIZE_LINE
        self.is_complete = self.has_surplus = False

    def feed(self, data: bytes, pieces: list[bytes]) -> None:
        """Append the bytes of the body. Raises ``UpstreamInvalid``; earlier bytes are valid."""
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        offset, end = 0, len(data)
        while offset < end and not self.is_complete:
            if self._remaining:
                piece = data[offset : offset + self._remaining]
                pieces.append(piece)
                offset += len(piece)
                self._remaining -= len(piece)
                continue
            next_offset = self._try_read_whole_chunk(data, offset, pieces)
            next_offset = next_offset or self._read_framing_line(data, offset)
            if next_offset == offset:  # the line is incomplete
                if end - offset > MAX_LINE_BYTES:
                    raise make_protocol_error()
                self._buffer = data[offset:]
                return
            offset = next_offset
        self.has_surplus = self.has_surplus or offset < end

    def feed_eof(self) -> bool:
        return self.is_complete

    def _try_read_whole_chunk(self, data: bytes, offset: int, pieces: list[bytes]) -> int:
        """Append a chunk if it is complete, which is the usual case. Return its end, or 0."""
        line = _SIZE.match(data, offset) if self._step == _SIZE_LINE else None
        if line is None:
            return 0
        start = line.end()
        end = start + int(line[1], 16)
        if end == start or start - offset > MAX_LINE_BYTES or data[end : end + 2] != b"\r\n":
            return 0
        pieces.append(data[start:end])
        return end + 2

    def _read_framing_line(self, data: bytes, offset: int) -> int:
        """Parse the line between chunks. Return its end, or ``offset`` if it is incomplete."""
        if self._step == _AFTER_DATA:
            if not b"\r\n".startswith(data[offset : offset + 2]):
                raise make_protocol_error()
            if len(data) - offset < 2:
                return offset
            self._step = _SIZE_LINE
            return offset + 2
        if self._step == _TRAILERS:
            return self._read_trailers(data, offset)
        line = _SIZE.match(data, offset)
        if line is None:
            if data.find(b"\n", offset) >= 0:
                raise make_protocol_error()
            return offset
        if line.end() - offset > MAX_LINE_BYTES:
            raise make_protocol_error()
        self._remaining = int(line[1], 16)
        self._step = _AFTER_DATA if self._remaining else _TRAILERS
        return line.end()

    def _read_trailers(self, data: bytes, offset: int) -> int:
        if data.startswith(b"\r\n", offset):
            self.is_complete = True
            return offset + 2
        end = data.find(b"\r\n\r\n", offset)
        if end < 0:
            return offset
        parse_headers(data[offset : end + 2].decode("latin-1"))
        self.is_complete = True
        return end + 4


class ResponseParser:
    """Parser of one response. ``body`` is set with ``head``, and may then be fed directly.

    Skips up to ``MAX_INTERIM_RESPONSES`` interim responses.
    """

    __slots__ = ("_buffer", "_interim_count", "body", "head")

    def __init__(self) -> None:
        self.head: Http1Head | None = None
        self.body: PlainBodyParser | ChunkedBodyParser | None = None
        self._buffer = bytearray()
        self._interim_count = 0

    @property
    def is_complete(self) -> bool:
        return self.body is not None and self.body.is_complete

    @property
    def can_reuse_connection(self) -> bool:
        """True if the response is complete and another request may follow."""
        head, body = self.head, self.body
        is_complete = bool(body and body.is_complete and not body.has_surplus)
        return head is not None and head.keeps_alive and is_complete

    def feed(self, data: bytes, pieces: list[bytes]) -> None:
        """Append the bytes of the body to ``pieces``. Raises ``UpstreamInvalid``."""
        if self.body is not None:
            self.body.feed(data, pieces)
            return
        if self._buffer:
            search_from = max(0, len(self._buffer) - len(_END))
            self._buffer += data
            if self._buffer.find(_END, search_from) < 0:
                self._check_partial_head()
                return
            data, self._buffer = bytes(self._buffer), bytearray()
        self._read_heads(data, pieces)

    def _read_heads(self, data: bytes, pieces: list[bytes]) -> None:
        offset = 0
        while (end := data.find(_END, offset)) >= 0:
            if end - offset > MAX_HEAD_BYTES:
                raise make_protocol_error()
            head = parse_head(data[offset : end + 2])
            offset = end + 4
            if head.status >= 200:
                self.head = head
                self.body = ChunkedBodyParser() if head.chunked else PlainBodyParser(head.length)
                if body_start := data[offset:]:
                    self.body.feed(body_start, pieces)
                return
            self._interim_count += 1
            if self._interim_count > MAX_INTERIM_RESPONSES:
                raise make_protocol_error()
        self._buffer += data[offset:]
        self._check_partial_head()

    def _check_partial_head(self) -> None:
        """Reject bytes that cannot become a head, whose end may never arrive."""
        if len(self._buffer) > MAX_HEAD_BYTES or b"\n\n" in self._buffer:
            raise make_protocol_error()
        if not _START.startswith(self._buffer[: len(_START)]):
            raise make_protocol_error()

    def feed_eof(self) -> bool:
        """Process the end of the connection. Return True if the response is complete."""
        return self.body is not None and self.body.feed_eof()
