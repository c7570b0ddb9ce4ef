"""Bounds the memory of bodies in progress, in total and per caller."""

from __future__ import annotations

from proxy.errors import Overloaded
from proxy.settings import KEY_SHARE

MOST_BYTES = 256 * 1024 * 1024


class Bodies:
    """Bytes of all bodies in progress, raw and parsed, until their calls end.

    One caller can use at most half, so that others are still served.
    """

    def __init__(self, max_bytes: int = MOST_BYTES, resource: str = "requests") -> None:
        self.most = max_bytes
        self.what = resource
        self.of_one = max_bytes // KEY_SHARE  # what one caller may have
        self.held = 0
        self.by_caller: dict[object, int] = {}


class BodyShare:
    """Bytes of one call's body, raw and parsed."""

    __slots__ = ("_bodies", "_size", "caller")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.caller: object = None
        self._size = 0

    def charge_to(self, caller: object) -> None:
        """Set the caller that is charged. Called before the first byte arrives."""
        self.caller = caller

    def take(self, size: int) -> None:
        """Count received bytes. Raises ``Overloaded``."""
        bodies, caller = self._bodies, self.caller
        by_caller = bodies.by_caller
        total = bodies.held + size
        of_caller = by_caller[caller] + size if caller in by_caller else size
        if total > bodies.most or of_caller > bodies.of_one:
            raise Overloaded(bodies.what)
        bodies.held, by_caller[caller] = total, of_caller
        self._size += size

    def take_read(self, size: int) -> None:
        """Count the memory of the parsed body. A single body always fits. Raises ``Overloaded``."""
        remaining = self._bodies.of_one - self._size
        if remaining > 0:
            self.take(size if size < remaining else remaining)

    def give_back(self) -> None:
        """Release all bytes."""
        if self._size:
            bodies, caller = self._bodies, self.caller
            bodies.held -= self._size
            bodies.by_caller[caller] -= self._size
            if not bodies.by_caller[caller]:
                del bodies.by_caller[caller]
            self._size = 0
