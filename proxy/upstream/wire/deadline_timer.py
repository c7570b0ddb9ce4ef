"""Timer of a connection. Moving its deadline to a later time costs no new timer of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SLACK_S = 0.002


class DeadlineTimer:
    """Calls ``on_timeout`` once when the deadline that was set last has passed."""

    __slots__ = ("_at", "_deadline", "_handle", "_loop", "_on_timeout")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_timeout: Callable[[], None]) -> None:
        self._loop = loop
        self._on_timeout: Callable[[], None] | None = on_timeout
        self._handle: asyncio.TimerHandle | None = None
        self._at = self._deadline = 0.0

    def set(self, deadline: float) -> None:
        """Replace the deadline, a time of the loop's clock."""
        self._deadline = deadline
        if self._handle is None or self._at > deadline:
            self._schedule()

    def close(self) -> None:
        """Cancel the timer, and release ``on_timeout``."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._on_timeout = None

    def _schedule(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at = self._deadline
        self._handle = self._loop.call_at(self._at, self._on_due)

    def _on_due(self) -> None:
        self._handle = None
        if self._loop.time() + SLACK_S < self._deadline:
            self._schedule()
        elif self._on_timeout is not None:
            self._on_timeout()
