"""A second descriptor of a socket, which still reads what had come when a write has failed: the
loop ends such a connection unread."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress


class SpareSocket:
    """None of a connection over TLS, nor where there are no descriptors left: then an early refusal
    may go unread, no more. ``close`` it."""

    __slots__ = ("_descriptor",)

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._descriptor: int | None = None
        if transport.get_extra_info("ssl_object") is None:
            with suppress(OSError):
                self._descriptor = os.dup(transport.get_extra_info("socket").fileno())

    def read(self, most: int) -> bytes:
        """Return what is there, or nothing."""
        if self._descriptor is not None:
            with suppress(OSError):
                return os.read(self._descriptor, most)
        return b""

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
