"""The one timer of a connection: it is set again only when it is too late, so that what comes in
time costs no timer at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.upstream.reply import nothing

SLACK_S = 0.002


class Alarm:
    """Calls ``ring`` once the moment that was expected last is over, by the clock of the loop."""

    __slots__ = ("_at", "_expected", "_loop", "_ring", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at = self._expected = 0.0

    def expect(self, moment: float) -> None:
        """Ring at this moment, and at none that was expected before."""
        self._expected = moment
        if self._timer is None or self._at > moment:
            self._set()

    def end(self) -> None:
        """Ring no more, and let go of who would hear it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ring = nothing

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = self._expected
        self._timer = self._loop.call_at(self._at, self._over)

    def _over(self) -> None:
        self._timer = None
        if self._loop.time() + SLACK_S < self._expected:
            self._set()
        else:
            self._ring()
