"""How late the event loop is: what everything else in the process waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

EVERY_S = 0.25


class LoopLag:
    """Asks for a moment every ``EVERY_S`` while it is entered, and tells how late it came."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ask()

    async def __aexit__(self, *exc_info: object) -> None:
        self._timer.cancel()

    def _ask(self) -> None:
        due = self._loop.time() + EVERY_S
        self._timer = self._loop.call_at(due, self._woken, due)

    def _woken(self, due: float) -> None:
        self._tell(max(0.0, self._loop.time() - due))
        self._ask()
