"""The body of a request, sent piece by piece as it comes: no faster than the upstream takes it, and
no further than to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.errors import RequestTimeout, RequestTooLarge, UpstreamTimeout
from proxy.errors.field_problems import too_large
from proxy.runtime.frozen import frozen
from proxy.types.passthrough import Upload
from proxy.upstream.wire.connection import Connection

PIECE = 64 * 1024  # bytes of one write


@frozen
class Sending:
    """Sends one upload of ``most_bytes`` at the most on a connection, to which its head was sent.
    ``idle`` are the seconds that the upstream may take to take a piece, ``until`` is the moment of
    the loop's clock at which all has to be over."""

    connection: Connection
    most_bytes: int
    idle: float
    until: float

    async def run(self, upload: Upload, on_sent: Callable[[], None]) -> None:
        """Send all of it, and then call ``on_sent``, or leave off once nobody takes more. Raise
        ``RequestTooLarge``, ``RequestTimeout``, ``UpstreamTimeout``, and what the upload raises."""
        left, framed = self.most_bytes, upload.length is None
        while piece := await self._read(upload):
            left -= len(piece)
            if left < 0:
                raise RequestTooLarge(too_large(self.most_bytes))
            for at in range(0, len(piece), PIECE):
                if not await self._write(piece[at : at + PIECE], framed=framed):
                    return
        if not framed or await self.connection.write(b"0\r\n\r\n"):
            on_sent()

    async def _read(self, upload: Upload) -> bytes:
        try:
            async with asyncio.timeout_at(self.until):
                return await upload.read()
        except TimeoutError:  # its client was slow, which says nothing of the upstream
            raise RequestTimeout from None

    async def _write(self, piece: bytes, *, framed: bool) -> bool:
        """Write a piece. False where nobody takes it."""
        data = b"%x\r\n%b\r\n" % (len(piece), piece) if framed else piece
        loop = asyncio.get_running_loop()
        first = min(self.until, loop.time() + self.idle)
        try:
            async with asyncio.timeout_at(first):
                return await self.connection.write(data)
        except TimeoutError:
            raise UpstreamTimeout("total" if first == self.until else "idle") from None
