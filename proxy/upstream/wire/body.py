"""The body of a response in each of its framings, fed in pieces however they were cut."""

from __future__ import annotations

import re
from typing import Protocol

from proxy.upstream.wire.head import MAX_LINE_BYTES, Http1Head, protocol_error, read_fields

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_AFTER_DATA, _SIZE_LINE, _TRAILERS = range(3)


class Body(Protocol):
    """Feed it bytes; it adds those of the body to ``pieces``.

    ``feed`` raises ``UpstreamInvalid``; what it had added by then is good. ``surplus`` says that
    more came than belongs. ``close`` takes the connection's end: is the body whole?
    """

    ended: bool
    surplus: bool

    def feed(self, data: bytes, pieces: list[bytes]) -> None: ...

    def close(self) -> bool: ...


def body_of(head: Http1Head) -> Body:
    """Choose the framing that a head announces."""
    if head.length is not None:
        return FixedLength(head.length)
    return Chunked() if head.chunked else UntilClose()


class FixedLength:
    """So many bytes."""

    __slots__ = ("_left", "ended", "surplus")

    def __init__(self, length: int) -> None:
        self._left = length
        self.ended = length == 0
        self.surplus = False

    def feed(self, data: bytes, pieces: list[bytes]) -> None:
        left = self._left - len(data)
        if left < 0:
            self.surplus = True
            data, left = data[:left], 0
        self._left = left
        self.ended = left == 0
        if data:
            pieces.append(data)

    def close(self) -> bool:
        return self.ended


class UntilClose:
    """All bytes until the connection ends in good order; whether that was all, nobody can tell."""

    __slots__ = ("ended", "surplus")

    def __init__(self) -> None:
        self.ended = False
        self.surplus = False

    def feed(self, data: bytes, pieces: list[bytes]) -> None:
        pieces.append(data)

    def close(self) -> bool:
        self.ended = True
        return True


class Chunked:
    """Chunks, each under its size, the last one empty. Extensions and trailers are checked,
    bounded and thrown away."""

    __slots__ = ("_kept", "_left", "_step", "ended", "surplus")

    def __init__(self) -> None:
        self._kept = b""
        self._left = 0
        self._step = _SIZE_LINE
        self.ended = False
        self.surplus = False

    def feed(self, data: bytes, pieces: list[bytes]) -> None:
        if self._kept:
            data, self._kept = self._kept + data, b""
        at, end = 0, len(data)
        while at < end and not self.ended:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                continue
            before, at = at, self._whole(data, at, pieces) or self._line(data, at)
            if at == before:  # the line is not whole yet
                self._keep(data[at:])
                return
        self.surplus = self.surplus or at < end

    def close(self) -> bool:
        return self.ended

    def _whole(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Add a chunk that is there to its very end, as most are; return where that is, or 0."""
        line = _SIZE.match(data, at) if self._step == _SIZE_LINE else None
        if line is None:
            return 0
        begin = line.end()
        end = begin + int(line[1], 16)
        if end == begin or begin - at > MAX_LINE_BYTES or data[end : end + 2] != b"\r\n":
            return 0
        pieces.append(data[begin:end])
        return end + 2

    def _line(self, data: bytes, at: int) -> int:
        """Read what stands between chunks; return where it ends, or ``at`` when it is not whole."""
        if self._step == _AFTER_DATA:
            if not b"\r\n".startswith(data[at : at + 2]):
                raise protocol_error()
            if len(data) - at < 2:
                return at
            self._step = _SIZE_LINE
            return at + 2
        return self._size(data, at) if self._step == _SIZE_LINE else self._trailers(data, at)

    def _size(self, data: bytes, at: int) -> int:
        line = _SIZE.match(data, at)
        if line is None:
            if data.find(b"\n", at) >= 0:
                raise protocol_error()
            return at
        if line.end() - at > MAX_LINE_BYTES:
            raise protocol_error()
        self._left = int(line[1], 16)
        self._step = _AFTER_DATA if self._left else _TRAILERS
        return line.end()

    def _trailers(self, data: bytes, at: int) -> int:
        if data.startswith(b"\r\n", at):
            self.ended = True
            return at + 2
        end = data.find(b"\r\n\r\n", at)
        if end < 0:
            return at
        read_fields(data[at : end + 2].decode("latin-1"))
        self.ended = True
        return end + 4

    def _keep(self, rest: bytes) -> None:
        if len(rest) > MAX_LINE_BYTES:
            raise protocol_error()
        self._kept = rest
