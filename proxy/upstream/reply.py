"""Interfaces of the HTTP client, and of the memory share of a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from proxy.types import Timeouts

if TYPE_CHECKING:
    from proxy.types.passthrough import BoundedUpload

OnData = Callable[[bytes], bool]
"""Processes bytes of a body as they arrive. Returns False to wake the reader."""


def do_nothing() -> None:
    """Default for callbacks."""


class Reply(Protocol):
    """A response whose head has arrived."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by lower-case name."""
        ...

    def read(self, on_data: OnData | None = None) -> Awaitable[bytes | None]:
        """Return the next bytes of the body, or ``b""`` at its end. Raises ``UpstreamError``.

        Bytes that arrive meanwhile go to ``on_data``. Once it returns False, ``read`` returns None.
        """
        ...

    def release_after_last_frame(self) -> None:
        """Release a reply after its last frame. Its connection is reused if the body ends soon."""
        ...

    def release(self) -> None:
        """Release a reply now. Closes the connection unless the body has ended."""
        ...


class MemoryShare(Protocol):
    """The memory that one response uses, of the memory for all responses."""

    def take(self, size: int) -> None:
        """Add received bytes. Raises ``ProxyError`` if the memory is used up."""

    def release(self) -> None: ...


class Http(Protocol):
    """HTTP client."""

    async def request(  # noqa: PLR0913  # a request, and how it is sent
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | BoundedUpload,
        timeouts: Timeouts,
        on_sent: Callable[[], None] = do_nothing,
        *,
        new_connection: bool = False,
        method: str = "POST",
    ) -> Reply:
        """Send a request and wait for the head of its response.

        An upload is sent on a separate connection. ``new_connection`` opens a new connection. Calls
        ``on_sent`` once the request is written. Raises ``UpstreamError`` (``StaleConnection`` if an
        idle connection was closed by the upstream) and the errors of the upload.
        """
        ...
