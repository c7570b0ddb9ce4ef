"""An event loop whose time passes only when nothing else is to be done.

It is for work without sockets: a wait of minutes moves the clock, and takes no time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    """Waits for nothing; says how long it would have."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("the call waits for an event that no timer or response can trigger")
        if not ready and timeout:
            self.jumped += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.jumped


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a clock of its own, which begins at 0."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)
