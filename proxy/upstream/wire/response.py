"""One response, fed in pieces: its head once that is whole, then the bytes of its body."""

from __future__ import annotations

from proxy.upstream.wire.body import Body, body_of
from proxy.upstream.wire.head import MAX_HEAD_BYTES, Http1Head, protocol_error, read_head

MAX_INTERIM = 16
_BEGIN, _END = b"HTTP/1.", b"\r\n\r\n"


class Response:
    """Feed it bytes; it adds those of the body to ``pieces``. Once the ``head`` has come, the
    ``body`` is there, too, and may be fed itself.

    Interim responses are skipped, so many of them. ``feed`` raises ``UpstreamInvalid`` for what
    is no response; what it had added by then is good.
    """

    __slots__ = ("_interim", "_kept", "body", "head")

    def __init__(self) -> None:
        self.head: Http1Head | None = None
        self.body: Body | None = None
        self._kept = bytearray()
        self._interim = 0

    @property
    def ended(self) -> bool:
        return self.body is not None and self.body.ended

    @property
    def keeps(self) -> bool:
        """Whether the connection is at the begin of another response, and may carry one."""
        head, body = self.head, self.body
        return head is not None and head.keeps and bool(body and body.ended and not body.surplus)

    def feed(self, data: bytes, pieces: list[bytes]) -> None:
        if self.body is not None:
            self.body.feed(data, pieces)
            return
        if self._kept:
            seen = max(0, len(self._kept) - len(_END))
            self._kept += data
            if self._kept.find(_END, seen) < 0:
                self._wait_for_more()
                return
            data, self._kept = bytes(self._kept), bytearray()
        self._begin(data, pieces)

    def _begin(self, data: bytes, pieces: list[bytes]) -> None:
        at = 0
        while (end := data.find(_END, at)) >= 0:
            if end - at > MAX_HEAD_BYTES:
                raise protocol_error()
            head = read_head(data[at : end + 2])
            at = end + 4
            if head.status >= 200:
                self.head, self.body = head, body_of(head)
                if rest := data[at:]:
                    self.body.feed(rest, pieces)
                return
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise protocol_error()
        self._kept += data[at:]
        self._wait_for_more()

    def _wait_for_more(self) -> None:
        """Keep no one waiting for the end of what is no head: it may never come."""
        if len(self._kept) > MAX_HEAD_BYTES or b"\n\n" in self._kept:
            raise protocol_error()
        if not _BEGIN.startswith(self._kept[: len(_BEGIN)]):
            raise protocol_error()

    def close(self) -> bool:
        """Take the connection's end, and say whether the response is whole."""
        return self.body is not None and self.body.close()
