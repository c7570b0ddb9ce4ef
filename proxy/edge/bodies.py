"""How much memory bodies may take, all together and those of one caller: those of requests, and
those of answers."""

from __future__ import annotations

from types import TracebackType

from proxy.errors import Overloaded
from proxy.settings import KEY_SHARE

MOST_BYTES = 256 * 1024 * 1024


class Bodies:
    """The bytes of the bodies under way, as they come and as they are read. One caller may have
    half of them, so that nobody shuts the others out. A body counts until its call has ended."""

    def __init__(self, most: int = MOST_BYTES, what: str = "requests") -> None:
        self._most = most
        self._what = what
        self._of_one = most // KEY_SHARE
        self._held = 0
        self._by: dict[object, int] = {}

    @property
    def held(self) -> int:
        return self._held

    def share(self) -> BodyShare:
        """Return the share of one call, which is given back when it is left."""
        return BodyShare(self)

    @property
    def of_one(self) -> int:
        """What one caller may have."""
        return self._of_one

    def take(self, caller: object, size: int) -> None:
        """Count bytes that have come. Raises ``Overloaded``."""
        of_caller = self._by.get(caller, 0) + size
        if self._held + size > self._most or of_caller > self._of_one:
            raise Overloaded(self._what)
        self._held += size
        self._by[caller] = of_caller

    def give_back(self, caller: object, size: int) -> None:
        self._held -= size
        self._by[caller] -= size
        if not self._by[caller]:
            del self._by[caller]


class BodyShare:
    """The bytes of one call's body, as it came and as it is read."""

    __slots__ = ("_bodies", "_caller", "_size")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._caller: object = None
        self._size = 0

    def charge_to(self, caller: object) -> None:
        """Set whose bytes they are, before the first has come."""
        self._caller = caller

    def take(self, size: int) -> None:
        """Count bytes that have come. Raises ``Overloaded``."""
        self._bodies.take(self._caller, size)
        self._size += size

    def take_read(self, size: int) -> None:
        """Count what a body may take once it is read. Alone each body may be read, however large.
        Raises ``Overloaded``."""
        self.take(max(0, min(size, self._bodies.of_one - self._size)))

    def __enter__(self) -> BodyShare:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()

    def give_back(self) -> None:
        """Return all that was taken."""
        if self._size:
            self._bodies.give_back(self._caller, self._size)
            self._size = 0
