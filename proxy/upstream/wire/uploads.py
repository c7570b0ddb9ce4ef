"""Sends large request bodies: uploads piece by piece, and a second descriptor of their socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

from proxy.errors import RequestTimeout, RequestTooLarge, UpstreamTimeout
from proxy.errors.field_problems import describe_large_body
from proxy.types.passthrough import BoundedUpload, Upload

WRITE_BYTES = 64 * 1024
Write = Callable[[bytes], Awaitable[bool]]
"""``Connection.write``."""


async def send_upload(
    write: Write, body: BoundedUpload, idle_s: float, deadline: float, on_sent: Callable[[], None]
) -> None:
    """Send an upload after its head, as fast as the upstream takes it, up to its response.

    ``idle_s`` bounds each write, ``deadline`` the upload. ``on_sent`` is called after the last
    write. Raises ``RequestTooLarge``, ``RequestTimeout``, ``UpstreamTimeout`` and the errors of the
    upload.
    """
    size, is_chunked = 0, body.upload.length is None
    while data := await _read(body.upload, deadline):
        size += len(data)
        if size > body.max_bytes:
            raise RequestTooLarge(describe_large_body(body.max_bytes))
        for start in range(0, len(data), WRITE_BYTES):
            piece = data[start : start + WRITE_BYTES]
            chunk = b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece
            if not await _write(write, chunk, idle_s, deadline):
                return
    if not is_chunked or await write(b"0\r\n\r\n"):
        on_sent()


async def _read(upload: Upload, deadline: float) -> bytes:
    try:
        async with asyncio.timeout_at(deadline):
            return await upload.read_chunk()
    except TimeoutError:  # the client was too slow
        raise RequestTimeout from None


async def _write(write: Write, data: bytes, idle_s: float, deadline: float) -> bool:
    write_deadline = min(deadline, asyncio.get_running_loop().time() + idle_s)
    try:
        async with asyncio.timeout_at(write_deadline):
            return await write(data)
    except TimeoutError:
        raise UpstreamTimeout("total" if write_deadline == deadline else "idle") from None


class DuplicateSocket:
    """Second descriptor of a connection's socket, to read an early refusal after a failed write.

    Reads nothing from TLS connections, or if no descriptor is left.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._descriptor: int | None = None
        if transport.get_extra_info("ssl_object") is None:
            with suppress(OSError):
                self._descriptor = os.dup(transport.get_extra_info("socket").fileno())

    def read(self, max_bytes: int) -> bytes:
        if self._descriptor is not None:
            with suppress(OSError):
                return os.read(self._descriptor, max_bytes)
        return b""

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
