"""An event loop with a simulated clock, for work without sockets.

Time advances only when all tasks wait, so a wait of minutes takes no time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Selector that advances the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("the call waits for an event that no timer or response can trigger")
        if not ready and timeout:
            self.seconds += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._selector_clock = _JumpingSelector()
        super().__init__(self._selector_clock)

    def time(self) -> float:
        return self._selector_clock.seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. Its clock starts at 0."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)
