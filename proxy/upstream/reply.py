"""What this room needs of an HTTP client; ``client`` fulfils it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, Self

from proxy.types import Timeouts

if TYPE_CHECKING:
    from proxy.types.passthrough import BoundedUpload

Take = Callable[[bytes], bool]
"""Takes bytes of a body as they come. False if who waits for them has to be woken all the same."""


def nothing() -> None:
    """What is called where nobody wants to know."""


class Reply(Protocol):
    """A response whose head is there; entering owns it, leaving closes it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name."""
        ...

    def read(self, take: Take | None = None) -> Awaitable[bytes]:
        """Return the next bytes of the body, none at its end. Raises ``UpstreamError``.

        Bytes that come while they are waited for may go to ``take`` instead, which has them then;
        once it returns False, nothing is returned."""
        ...

    async def body(self, limit: int) -> bytes: ...

    def finish(self) -> None:
        """Leave it as its answer is finished; nobody waits for the end that follows."""
        ...

    def leave(self) -> None:
        """Let go of it, wherever it is: one that has not come to its end is cut."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...


class MemoryShare(Protocol):
    """What one answer may take of the memory for all answers."""

    def charge_to(self, caller: object) -> None:
        """Note whose they are, before the first byte has come."""

    def take(self, size: int) -> None:
        """Count bytes that have come. Raise ``ProxyError`` where there is no room for them."""

    def give_back(self) -> None:
        """Return all that was taken."""


class Http(Protocol):
    """What sends a request; raises ``UpstreamError`` when no response head comes.

    ``on_sent`` is called once all of the request has been written. A connection at rest may turn
    out to be closed just when it is used: ``UpstreamStale`` says so, and ``fresh`` takes none such.
    An upload is sent as it comes, on a connection of its own; what it raises is raised, too.
    """

    async def post(  # noqa: PLR0913  # a request, and how it is sent
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | BoundedUpload,
        timeouts: Timeouts,
        on_sent: Callable[[], None] = nothing,
        *,
        fresh: bool = False,
        method: str = "POST",
    ) -> Reply: ...
