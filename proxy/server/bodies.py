"""How much memory bodies may take, all together and those of one caller: those of requests, and
those of answers."""

from __future__ import annotations

from proxy.errors import Overloaded
from proxy.settings import KEY_SHARE

MOST_BYTES = 256 * 1024 * 1024


class Bodies:
    """The bytes of the bodies under way, as they come and as they are read. One caller may have
    half of them, so that nobody shuts the others out. A body counts until its call has ended."""

    def __init__(self, most: int = MOST_BYTES, what: str = "requests") -> None:
        self.most = most
        self.what = what
        self.of_one = most // KEY_SHARE  # what one caller may have
        self.held = 0
        self.by_caller: dict[object, int] = {}


class BodyShare:
    """The bytes of one call's body, as it came and as it is read. ``caller`` is set before the
    first byte has come."""

    __slots__ = ("_bodies", "_size", "caller")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.caller: object = None
        self._size = 0

    def charge_to(self, caller: object) -> None:
        """Set whose bytes they are, before the first has come."""
        self.caller = caller

    def take(self, size: int) -> None:
        """Count bytes that have come. Raises ``Overloaded``."""
        bodies, caller = self._bodies, self.caller
        by_caller = bodies.by_caller
        held = bodies.held + size
        of_caller = by_caller[caller] + size if caller in by_caller else size
        if held > bodies.most or of_caller > bodies.of_one:
            raise Overloaded(bodies.what)
        bodies.held, by_caller[caller] = held, of_caller
        self._size += size

    def take_read(self, size: int) -> None:
        """Count what a body may take once it is read. Alone each body may be read, however large.
        Raises ``Overloaded``."""
        left = self._bodies.of_one - self._size
        if left > 0:
            self.take(size if size < left else left)

    def give_back(self) -> None:
        """Return all that was taken."""
        if self._size:
            bodies, caller = self._bodies, self.caller
            bodies.held -= self._size
            bodies.by_caller[caller] -= self._size
            if not bodies.by_caller[caller]:
                del bodies.by_caller[caller]
            self._size = 0
