"""Server-sent events, read by the standard and written in a form that all SDKs accept.

Source of the format: WHATWG HTML, section 9.2 "Server-sent events".
"""

from __future__ import annotations

from proxy.errors import ResponseTooLarge

DONE = b"[DONE]"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
KEEPALIVE = b": keep-alive\n\n"  # a comment, which every reader skips


def encode_event(payload: bytes) -> bytes:
    """Return the bytes of one event. Some SDKs do not accept ``id`` and ``event`` lines."""
    return b"data: " + payload + b"\n\n"


def encode_named_event(kind: str, document: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), document)


class EventReader:
    """Parses a byte stream, and returns the data of each complete event.

    Line ends may be LF, CR or CRLF. A byte order mark, comments and other fields are skipped.
    Data lines of one event are joined by a newline. Raises ``ResponseTooLarge`` for an event of
    more than ``limit`` bytes, empty lines included. Takes linear time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._skip_lf = False
        self._begun = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that the next bytes complete."""
        is_between = self._begun and not (self._line or self._data or self._skip_lf)
        if is_between and piece[:6] == b"data: " and piece[-2:] == b"\n\n" and b"\r" not in piece:
            breaks = piece.count(b"\n")
            if breaks == 2:
                return [piece[6:-2]]
            events = piece[6:-2].split(b"\n\ndata: ")
            if breaks == 2 * len(events):
                return events
        return self._parse_piece(piece) if piece else []

    def _parse_piece(self, piece: bytes) -> list[bytes]:
        """Parse bytes that may begin or end anywhere in an event."""
        if self._skip_lf:
            self._skip_lf = False
            if piece[0] == 0x0A:
                piece = piece[1:]
        if not self._begun:
            piece = self._skip_byte_order_mark(piece)
        if b"\r" in piece:
            self._skip_lf = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        line_end, *lines = piece.split(b"\n")
        self._line += line_end
        events: list[bytes] = []
        if lines:
            events = self._parse_lines([bytes(self._line), *lines[:-1]])
            self._line = bytearray(lines[-1])
        if len(self._line) + self._size > self._limit:
            raise ResponseTooLarge("The upstream sent a stream event that is too large.")
        return events

    def _skip_byte_order_mark(self, piece: bytes) -> bytes:
        """Return the first bytes without a byte order mark; none while it may still become one."""
        piece, self._line = bytes(self._line + piece), bytearray()
        if len(piece) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(piece):
            self._line += piece
            return b""
        self._begun = True
        return piece.removeprefix(BYTE_ORDER_MARK)

    def close(self) -> list[bytes]:
        """Return the last event at the end of the stream, even without its blank line."""
        line, self._line = bytes(self._line), bytearray()
        return self._parse_lines([line, b""])

    def _parse_lines(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                data = line[6:] if line[5:6] == b" " else line[5:]
                self._size += len(line) + 1
                self._data.append(data)
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._size = 0
        return events
